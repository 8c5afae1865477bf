"""Slack's event and interaction payloads, parsed to what people did; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast, get_args

from bots.inbound.decide import (
    PLAN_WORDS,
    CommandCalled,
    CommandName,
    Inbound,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopWished,
    admin_word,
    named_agent,
)
from bots.slack.events import message_content
from bots.slack.events.payload import child, text
from bots.slack.render.mrkdwn import people_mentioned
from bots.slack.render.rich_text import mrkdwn_of
from bots.slack.web_api.client import Identity
from core.domain.messages import JsonObject
from core.domain.threads import Address, IncomingFile, Person

STOP_REACTIONS = frozenset({"x", "no_entry", "octagonal_sign"})
_COMMANDS = frozenset(get_args(CommandName))
_KNOWLEDGE = re.compile(r"knowledge(?:\s+(list|add|remove\s+\S.*))?", re.IGNORECASE)
"""The whole message: a sentence that only begins with the word is a request."""
_USE = re.compile(r"use\s+(\S{1,64})", re.IGNORECASE)
_TS = re.compile(r"\d{1,10}\.\d{1,9}")
# Everything else with a subtype is told by Slack or by a bot, not written by a person.
_WRITTEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A payload that asks for nothing; `reason` is for the log."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a payload does not say: who the bot is, people's names by id, and the thread of the message reacted to."""

    identity: Identity
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    reacted_thread: str = ""

    def person(self, person_id: str) -> Person:
        return Person(person_id=person_id, name=self.names.get(person_id) or person_id)

    def address(self, channel_id: str, thread_key: str) -> Address:
        return Address(
            platform="slack",
            workspace_id=self.identity.team_id,
            channel_id=channel_id,
            thread_key=thread_key,
        )

    def key(self, *parts: str) -> str:
        """A dedupe key: names the thing itself, so it holds nothing of one delivery of it."""
        return ":".join(("slack", self.identity.team_id, *parts))


def people_in(event: JsonObject) -> set[str]:
    """The ids of everybody whose name `parse_event` will ask for."""
    message = child(event, "message") or event
    authors = {
        text(event, "user"),
        text(message, "user"),
        text(event, "previous_message", "user"),
    }
    return {person for person in authors if person} | people_mentioned(mrkdwn_of(message))


def stop_reaction(event: JsonObject) -> tuple[str, str] | None:
    """(channel, ts) of the message that somebody put a stop sign on: the thread has to be looked up."""
    if text(event, "type") != "reaction_added" or text(event, "item", "type") != "message":
        return None
    if text(event, "reaction").partition("::")[0] not in STOP_REACTIONS:
        return None
    return text(event, "item", "channel"), text(event, "item", "ts")


def parse_event(event: JsonObject, known: Known) -> Inbound | Ignored:
    """What the `event` of an Events API payload asks for. Raises nothing, whatever the payload."""
    match text(event, "type"):
        case "app_mention":
            return _message(event, known, is_addressed=True)
        case "message":
            return _message_event(event, known)
        case "reaction_added":
            return _reaction(event, known)
        case "agent_session_stopped":
            return _session_stopped(event, known)
        case other:
            return Ignored(reason=f"event {other[:40]}")


def _message_event(event: JsonObject, known: Known) -> Inbound | Ignored:
    match text(event, "subtype"):
        case "message_changed":
            return _edit(event, known)
        case "message_deleted":
            return _deletion(event, known)
        case subtype if subtype in _WRITTEN:
            is_addressed = text(event, "channel_type") == "im" or mentions_bot(
                event, known.identity
            )
            return _message(event, known, is_addressed=is_addressed)
        case subtype:
            return Ignored(reason=f"message {subtype[:40]}")


def mentions_bot(message: JsonObject, identity: Identity) -> bool:
    return identity.user_id in people_mentioned(mrkdwn_of(message))


def _message(event: JsonObject, known: Known, *, is_addressed: bool) -> Inbound | Ignored:
    channel, ts, thread_ts = text(event, "channel"), text(event, "ts"), text(event, "thread_ts")
    if (reason := _not_a_persons(event, known)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    if not (thread_ts or is_addressed):
        return Ignored(reason="not addressed")
    words = message_content.message_text(event, known.names, bot=known.identity.user_id)
    address = known.address(channel, thread_ts or ts)
    person, key = known.person(text(event, "user")), known.key(channel, ts)
    files = message_content.files(event)
    name = words.strip(" .!").lower()
    if is_addressed and (command := _command(words, name, files)):
        return CommandCalled(
            address=address,
            dedupe_key=key,
            name=command[0],
            argument=command[1],
            person=person,
            files=files,
        )
    if name == "stop" and not files:
        # Somebody else's thread may hold the word too: this asks, and is silent where nothing runs.
        return StopWished(address=address, dedupe_key=key, message_ref="", person=person)
    agent_id, request = named_agent(words)
    return IncomingMessage(
        address=address,
        dedupe_key=key,
        message_ref=ts,
        author=person,
        text=request,
        sent_at=moment(ts),
        is_addressed=is_addressed,
        files=files,
        agent_id=agent_id,
    )


def _command(
    words: str, name: str, files: tuple[IncomingFile, ...]
) -> tuple[CommandName, str] | None:
    """The command and its argument, where the whole message is one."""
    if taught := _KNOWLEDGE.fullmatch(words.strip()):
        return "knowledge", taught[1] or ""
    if not files and (planned := PLAN_WORDS.fullmatch(words.strip())):
        return "plan", planned[1] or ""
    if not files and (chosen := _USE.fullmatch(words.strip())):
        return "use", chosen[1]
    if not files and (admin := admin_word(words)):
        return admin
    return (cast(CommandName, name), "") if name in _COMMANDS and not files else None


def _not_a_persons(message: JsonObject, known: Known) -> str:
    """Why the message is no person's, or ""."""
    user = text(message, "user")
    if user == known.identity.user_id:
        return "our own"
    if text(message, "bot_id") or user in {"", "USLACKBOT"} or "bot_profile" in message:
        return "a bot's"
    return ""


def _edit(event: JsonObject, known: Known) -> Inbound | Ignored:
    message, before = child(event, "message"), child(event, "previous_message")
    channel, ts = text(event, "channel"), text(message, "ts")
    if text(message, "subtype") == "tombstone":
        # The root of a thread with replies is not removed but emptied.
        return _deletion({**event, "deleted_ts": ts}, known)
    edited = text(message, "edited", "ts")
    if (reason := _not_a_persons(message, known)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    is_same_text = bool(before) and mrkdwn_of(before) == mrkdwn_of(message)
    if not edited or edited == text(before, "edited", "ts") or is_same_text:
        return Ignored(reason="no edit by a person")
    if _is_foreign(channel, message, before, known):
        return Ignored(reason="not addressed")
    words = message_content.message_text(message, known.names, bot=known.identity.user_id)
    return MessageEdited(
        address=known.address(channel, text(message, "thread_ts") or ts),
        dedupe_key=known.key(channel, ts, "edit", edited),
        message_ref=ts,
        author=known.person(text(message, "user")),
        text=named_agent(words)[1],
        sent_at=moment(edited),
    )


def _deletion(event: JsonObject, known: Known) -> Inbound | Ignored:
    before = child(event, "previous_message")
    channel, ts = text(event, "channel"), text(event, "deleted_ts") or text(before, "ts")
    if (reason := _not_a_persons(before, known)) or not (channel and _TS.fullmatch(ts)):
        return Ignored(reason=reason or "malformed")
    if _is_foreign(channel, before, before, known):
        return Ignored(reason="not addressed")
    return MessageDeleted(
        address=known.address(channel, text(before, "thread_ts") or ts),
        dedupe_key=known.key(channel, ts, "delete"),
        message_ref=ts,
        author=known.person(text(before, "user")),
        sent_at=moment(text(event, "event_ts") or ts),
    )


def _is_foreign(channel: str, message: JsonObject, before: JsonObject, known: Known) -> bool:
    """Whether the message stands at the top of a channel and never called the bot: no thread of ours begins there."""
    is_top = text(message, "thread_ts") in {"", text(message, "ts")}
    called = mentions_bot(message, known.identity) or mentions_bot(before, known.identity)
    return is_top and not called and not channel.startswith("D")


def _reaction(event: JsonObject, known: Known) -> Inbound | Ignored:
    target, user = stop_reaction(event), text(event, "user")
    if target is None:
        return Ignored(reason="reaction without meaning")
    channel, ts = target
    if user in {"", known.identity.user_id}:
        return Ignored(reason="our own")
    if not (channel and _TS.fullmatch(ts)):
        return Ignored(reason="malformed")
    return StopWished(
        address=known.address(channel, known.reacted_thread or ts),
        dedupe_key=known.key(channel, ts, "reaction", user, text(event, "event_ts")),
        message_ref=ts,
        person=known.person(user),
    )


def _session_stopped(event: JsonObject, known: Known) -> Inbound | Ignored:
    channel, thread_ts, user = (text(event, key) for key in ("channel", "thread_ts", "user"))
    if not (channel and user and _TS.fullmatch(thread_ts)):
        return Ignored(reason="malformed")
    return StopWished(
        address=known.address(channel, thread_ts),
        dedupe_key=known.key(channel, thread_ts, "session", text(event, "event_ts")),
        message_ref="",
        person=known.person(user),
    )


def moment(ts: str) -> datetime:
    """A Slack timestamp as a time; the epoch where it is none."""
    return datetime.fromtimestamp(float(ts) if _TS.fullmatch(ts) else 0, UTC)
