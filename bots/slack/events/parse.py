"""Parses Slack's event and interaction payloads into messages and commands; pure functions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast, get_args

from bots.inbound.actions import (
    CommandCalled,
    FeedbackGiven,
    RunButton,
    RunButtonPressed,
    UserAction,
    split_agent_prefix,
)
from bots.inbound.commands.short_replies import calls_agent_by_name
from bots.inbound.commands.table import parse_command, parse_written_command
from bots.slack.events import message_content
from bots.slack.events.payload_fields import get_object, get_objects, get_text
from bots.slack.render.messages import ASK_PREFIX, COMMAND_PREFIX, FEEDBACK_ACTION, RUN_PREFIX
from bots.slack.render.mrkdwn import begins_with_other_mention, mentioned_user_ids, message_mrkdwn
from bots.slack.web_api.client import Identity
from core.domain.actions import (
    ActorContext,
    AskAnswered,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
    estimate_sent_at,
)
from core.domain.approval import APPROVE_ONCE, DENY
from core.domain.json import JsonObject
from core.domain.schedules import TriggerEvent
from core.domain.threads import APP_PREFIX, Address, Person

STOP_REACTIONS = frozenset({"x", "no_entry", "octagonal_sign"})
VOTES: Mapping[str, str] = {"+1": APPROVE_ONCE, "thumbsup": APPROVE_ONCE, "-1": DENY, "thumbsdown": DENY}
"""The answers to an approval request that reactions on its message stand for."""
_TS = re.compile(r"\d{1,10}\.\d{1,9}")
EDITED_WITHIN = timedelta(microseconds=999_999)
"""Slack reports the time of an edit in whole seconds. The edit may be up to this much later."""
_CONTENT = frozenset({"text", "blocks", "files", "attachments", "message", "previous_message"})
A_BOTS = "a bot's"
# The subtypes of messages that users write. Messages with other subtypes come from Slack or from bots.
_WRITTEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A payload that needs no action. `reason` is for the log."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """Facts that are not in a payload: the bot's identity, users' names and time zones by id, and the thread of the
    message that a reaction is on."""

    identity: Identity
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    time_zones: Mapping[str, str] = field(default_factory=dict[str, str])
    reacted_thread_ts: str = ""

    def person(self, person_id: str) -> Person:
        name, time_zone = self.names.get(person_id) or person_id, self.time_zones.get(person_id, "")
        return Person(person_id=person_id, name=name, time_zone=time_zone)

    def address(self, channel_id: str, thread_key: str) -> Address:
        return Address(
            platform="slack", workspace_id=self.identity.team_id, channel_id=channel_id, thread_key=thread_key
        )

    def dedupe_key(self, *parts: str) -> str:
        """Returns the dedupe key of an event. Every delivery of the same event has the same key.

        Keys are kept longer than messages, so they must not contain the id of a person."""
        return ":".join(("slack", self.identity.team_id, *parts))


def find_user_ids(event: JsonObject) -> set[str]:
    """Returns the ids of the users whose names `parse_event` needs."""
    message = get_object(event, "message") or event
    authors = {get_text(event, "user"), get_text(message, "user"), get_text(event, "previous_message", "user")}
    return {person for person in authors if person} | mentioned_user_ids(message_mrkdwn(message))


def find_reacted_message(event: JsonObject, identity: Identity) -> tuple[str, str] | None:
    """Returns the channel and ts of the message if the reaction is a stop or a vote, or None for other events.

    Slack does not send the thread of the message. Votes count only on the bot's own messages."""
    if get_text(event, "type") != "reaction_added" or get_text(event, "item", "type") != "message":
        return None
    name = _reaction_name(event)
    is_vote = name in VOTES and get_text(event, "item_user") == identity.user_id
    if not is_vote and name not in STOP_REACTIONS:
        return None
    return get_text(event, "item", "channel"), get_text(event, "item", "ts")


def _reaction_name(event: JsonObject) -> str:
    """Returns the name of the reaction without its skin tone."""
    return get_text(event, "reaction").partition("::")[0]


def parse_event(event: JsonObject, context: ParseContext) -> UserAction | Ignored:
    """Parses the `event` of an Events API payload. Returns Ignored for a malformed payload."""
    match get_text(event, "type"):
        case "app_mention" if get_text(event, "subtype") in {*_WRITTEN, "bot_message"}:
            return _message(event, context, is_addressed=mentions_bot(event, context.identity))
        case "message":
            match get_text(event, "subtype"):
                case "message_changed":
                    return _edit(event, context)
                case "message_deleted":
                    return _deletion(event, context)
                case subtype if subtype in _WRITTEN:
                    is_direct = get_text(event, "channel").startswith("D")
                    is_addressed = is_direct or mentions_bot(event, context.identity)
                    return _message(event, context, is_addressed=is_addressed)
                case "bot_message" if _app_ids(event) and mentions_bot(event, context.identity):
                    return _message(event, context, is_addressed=True)
                case subtype:
                    return Ignored(reason=f"message {subtype[:40]}")
        case "reaction_added":
            target, user = find_reacted_message(event, context.identity), get_text(event, "user")
            if target is None:
                return Ignored(reason="reaction without meaning")
            channel, ts = target
            if user in {"", context.identity.user_id}:
                return Ignored(reason="our own")
            if not (channel and _TS.fullmatch(ts)):
                return Ignored(reason="malformed")
            address = context.address(channel, context.reacted_thread_ts or ts)
            key = context.dedupe_key(channel, ts, "reaction", get_text(event, "event_ts"))
            person = context.person(user)
            if (vote := VOTES.get(_reaction_name(event))) is not None:
                return AskAnswered(
                    address=address,
                    dedupe_key=key,
                    ask_ref=ts,
                    text=vote,
                    person=person,
                    sent_at=_time_of(get_text(event, "event_ts")) or estimate_sent_at(),
                )
            return StopRequested(
                address=address,
                dedupe_key=key,
                message_ref=ts,
                person=person,
                sent_at=_time_of(get_text(event, "event_ts")),
            )
        case "agent_session_stopped":
            channel, thread_ts, user = (get_text(event, key) for key in ("channel", "thread_ts", "user"))
            if not (channel and user and _TS.fullmatch(thread_ts)):
                return Ignored(reason="malformed")
            return StopRequested(
                address=context.address(channel, thread_ts),
                dedupe_key=context.dedupe_key(channel, thread_ts, "session", get_text(event, "event_ts")),
                person=context.person(user),
                sent_at=_time_of(get_text(event, "event_ts")),
            )
        case other:
            return Ignored(reason=f"event {other[:40]}")


def parse_trigger_event(event: JsonObject, identity: Identity) -> TriggerEvent | None:
    """Returns the event that a schedule may wait for: a top-level message in a channel that does not mention the bot,
    or an emoji on a message. Returns None for everything else."""
    context = ParseContext(identity=identity)
    if get_text(event, "type") == "reaction_added":
        channel, ts = get_text(event, "item", "channel"), get_text(event, "item", "ts")
        is_own = get_text(event, "user") in {"", identity.user_id}
        if is_own or channel[:1] in {"", "D"} or not _TS.fullmatch(ts):
            return None
        return TriggerEvent(
            kind="emoji",
            address=context.address(channel, ts),
            key=f"{ts} {_reaction_name(event)}",
            message_ref=ts,
            happened_at=_time_of(get_text(event, "event_ts")),
            emoji=_reaction_name(event),
        )
    channel, ts = get_text(event, "channel"), get_text(event, "ts")
    is_reply = get_text(event, "thread_ts") not in {"", ts}
    is_written = get_text(event, "type") == "message" and get_text(event, "subtype") in {*_WRITTEN, "bot_message"}
    if not is_written or is_reply or channel[:1] in {"", "D"} or not _TS.fullmatch(ts) or mentions_bot(event, identity):
        return None
    app_ids, reason = _app_ids(event), _not_a_persons(event, context)
    if reason and not (reason == A_BOTS and app_ids):
        return None
    return TriggerEvent(
        kind="app" if app_ids else "post",
        address=context.address(channel, ts),
        key=ts,
        message_ref=ts,
        happened_at=parse_ts(ts),
        app_ids=app_ids,
        text=message_content.build_message_text(event, {}, bot_user_id=identity.user_id) if app_ids else "",
    )


def strip_content(event: JsonObject, identity: Identity) -> JsonObject:
    """Returns the message without its content. The result shows who wrote where, and whether the bot is mentioned."""
    kept = {name: value for name, value in event.items() if name not in _CONTENT}
    return {**kept, "text": f"<@{identity.user_id}>" if mentions_bot(event, identity) else ""}


def mentions_bot(message: JsonObject, identity: Identity) -> bool:
    return identity.user_id in mentioned_user_ids(message_mrkdwn(message))


def concerns_bot(event: JsonObject, identity: Identity) -> bool:
    """Whether the event is for the bot in any thread: it is in a direct message, or its message mentions the bot, or
    did so before an edit or a deletion."""
    is_direct = get_text(event, "channel").startswith("D")
    versions = (event, get_object(event, "message"), get_object(event, "previous_message"))
    return is_direct or any(mentions_bot(one, identity) for one in versions)


def _message(event: JsonObject, context: ParseContext, *, is_addressed: bool) -> UserAction | Ignored:
    channel, ts, thread_ts = (get_text(event, "channel"), get_text(event, "ts"), get_text(event, "thread_ts"))
    app_ids = _app_ids(event) if is_addressed and channel[:1] != "D" else frozenset[str]()
    reason = _not_a_persons(event, context)
    if (reason and not (reason == A_BOTS and app_ids)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    if not (thread_ts or is_addressed):
        return Ignored(reason="not addressed")
    words = message_content.build_message_text(event, context.names, bot_user_id=context.identity.user_id)
    files = message_content.parse_files(event)
    agent_id, request = split_agent_prefix(words)
    edited = get_text(event, "edited", "ts")
    person = context.person(get_text(event, "user"))
    if app_ids:
        app_id = get_text(event, "app_id") or get_text(event, "bot_profile", "app_id") or get_text(event, "bot_id")
        name = get_text(event, "username") or get_text(event, "bot_profile", "name")
        known = context.names.get(person.person_id)
        person = Person(person_id=f"{APP_PREFIX}{app_id}", name=name or known or f"{APP_PREFIX}{app_id}")
    message = IncomingMessage(
        address=context.address(channel, thread_ts or ts),
        dedupe_key=context.dedupe_key(channel, ts),
        message_ref=ts,
        person=person,
        text=request,
        sent_at=parse_ts(ts),
        is_addressed=is_addressed,
        is_by_name=calls_agent_by_name(words, context.identity.name),
        is_to_others=begins_with_other_mention(message_mrkdwn(event), context.identity.user_id),
        files=files,
        agent_id=agent_id,
        edited_at=parse_ts(edited) + EDITED_WITHIN if _TS.fullmatch(edited) else None,
        actor=ActorContext(app_ids=app_ids),
    )
    return parse_written_command(message, words, has_files=bool(files))


def _not_a_persons(message: JsonObject, context: ParseContext) -> str:
    """Returns the reason why the message does not count as written by a person, or "" if it does."""
    user = get_text(message, "user")
    if user == context.identity.user_id:
        return "our own"
    if get_text(message, "bot_id") or user in {"", "USLACKBOT"} or "bot_profile" in message:
        return A_BOTS
    return ""


def _app_ids(message: JsonObject) -> frozenset[str]:
    """Returns the ids of the app and the bot that wrote the message. Returns an empty set for a person's message."""
    keys = (("app_id",), ("bot_id",), ("bot_profile", "app_id"), ("bot_profile", "id"))
    is_apps = get_text(message, "bot_id") or "bot_profile" in message
    return frozenset(get_text(message, *key) for key in keys if is_apps) - {""}


def _edit(event: JsonObject, context: ParseContext) -> UserAction | Ignored:
    message, before = get_object(event, "message"), get_object(event, "previous_message")
    channel, ts = get_text(event, "channel"), get_text(message, "ts")
    if get_text(message, "subtype") == "tombstone":
        # Slack replaces a deleted thread root that has replies with a tombstone.
        return _deletion({**event, "deleted_ts": ts}, context)
    edited = get_text(message, "edited", "ts")
    if (reason := _not_a_persons(message, context)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    if not edited or (before and _written(before) == _written(message)):
        return Ignored(reason="no edit by a person")
    words = message_content.build_message_text(message, context.names, bot_user_id=context.identity.user_id)
    return MessageEdited(
        address=context.address(channel, get_text(message, "thread_ts") or ts),
        # the edit time in the message has whole seconds, and there may be two edits within a second
        dedupe_key=context.dedupe_key(channel, ts, "edit", get_text(event, "event_ts") or edited),
        message_ref=ts,
        person=context.person(get_text(message, "user")),
        text=split_agent_prefix(words)[1],
        is_addressed=channel.startswith("D") or mentions_bot(message, context.identity),
        sent_at=_time_of(get_text(event, "event_ts")) or parse_ts(edited),
    )


def _written(message: JsonObject) -> object:
    """Returns what the author wrote, without what Slack adds, such as link previews."""
    return message_mrkdwn(message), list(message_content.table_rows(message))


def _deletion(event: JsonObject, context: ParseContext) -> UserAction | Ignored:
    before = get_object(event, "previous_message")
    channel, ts = (get_text(event, "channel"), get_text(event, "deleted_ts") or get_text(before, "ts"))
    if (reason := _not_a_persons(before, context)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    return MessageDeleted(
        address=context.address(channel, get_text(before, "thread_ts") or ts),
        dedupe_key=context.dedupe_key(channel, ts, "delete"),
        message_ref=ts,
        person=context.person(get_text(before, "user")),
        sent_at=_time_of(get_text(event, "event_ts")) or parse_ts(ts),
    )


def parse_ts(ts: str) -> datetime:
    """Converts a Slack ts to a datetime. Returns the Unix epoch if the ts is malformed."""
    return datetime.fromtimestamp(float(ts) if _TS.fullmatch(ts) else 0, UTC)


def parse_click(payload: JsonObject, context: ParseContext) -> UserAction | Ignored:
    """Parses a `block_actions` payload. Returns Ignored for a malformed payload."""
    actions = get_objects(payload, "actions")
    if not actions:
        return Ignored(reason="no action")
    action = actions[0]
    action_id, user = get_text(action, "action_id"), get_text(payload, "user", "id")
    channel = get_text(payload, "channel", "id") or get_text(payload, "container", "channel_id")
    ts = get_text(payload, "message", "ts") or get_text(payload, "container", "message_ts")
    if not (user and channel and ts):
        return Ignored(reason="malformed")
    thread_ts = get_text(payload, "message", "thread_ts") or get_text(payload, "container", "thread_ts")
    address = context.address(channel, thread_ts or ts)
    key = context.dedupe_key(channel, "action", ts, action_id, get_text(action, "action_ts"))
    person = context.person(user)
    value = get_text(action, "value") or get_text(get_object(action, "selected_option"), "value")
    if action_id.startswith(ASK_PREFIX) and value:
        ask_id, _, at = action_id.removeprefix(ASK_PREFIX).partition(":")
        return AskAnswered(
            address=address,
            dedupe_key=key,
            ask_id=ask_id,
            text=value,
            option=int(at) if at.isdecimal() and "value" in action else None,
            person=person,
            sent_at=_time_of(get_text(action, "action_ts")) or estimate_sent_at(),
        )
    if action_id.startswith(COMMAND_PREFIX) and (command := parse_command(value)):
        name, argument = command
        return CommandCalled(address=address, dedupe_key=key, name=name, argument=argument, person=person)
    run_id, _, sign = value.rpartition(":")
    if action_id.partition(":")[0] == FEEDBACK_ACTION and run_id and sign in ("good", "bad"):
        return FeedbackGiven(address=address, dedupe_key=key, run_id=run_id, is_good=sign == "good", person=person)
    wish = action_id.removeprefix(RUN_PREFIX)
    if action_id.startswith(RUN_PREFIX) and wish in get_args(RunButton) and value:
        return RunButtonPressed(
            address=address,
            dedupe_key=key,
            run_id=value,
            action=cast(RunButton, wish),
            person=person,
            sent_at=_time_of(get_text(action, "action_ts")),
        )
    return Ignored(reason="unknown action")


def _time_of(ts: str) -> datetime | None:
    return parse_ts(ts) if _TS.fullmatch(ts) else None
