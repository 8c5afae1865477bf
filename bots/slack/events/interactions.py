"""The shortcuts "Ask Threadhand" and their form, the command `/threadhand`, and the form for feedback."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from bots.delivery.content import Notice
from bots.delivery.markdown import markdown_to_words, truncate
from bots.delivery.rate_limiter import waiting_at_most
from bots.inbound.access import NOT_ALLOWED
from bots.inbound.actions import (
    UNKNOWN_CONTROL,
    Admits,
    CommandCalled,
    FeedbackGiven,
    Outcome,
    UserAction,
    describe_failure,
)
from bots.inbound.commands.table import suggest_command
from bots.slack import limits
from bots.slack.events.parse import Ignored, ParseContext, parse_event
from bots.slack.events.payload_fields import get_object, get_text
from bots.slack.install.manifest import ASK_ANYWHERE, ASK_MESSAGE
from bots.slack.render.block_kit import blocks_from_markdown, form_view, plain_text_object, simplify_blocks
from bots.slack.render.messages import command_button_blocks, render_content
from bots.slack.render.mrkdwn import escape_entities, unescape_entities
from bots.slack.web_api.client import SlackClient, lookup_seconds_left
from bots.slack.web_api.notices import notice_body
from core.domain.actions import IncomingMessage, StopRequested, estimate_sent_at
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.outside_text import escape_markdown, escape_name
from core.domain.threads import Person
from core.failpoints import Failpoint
from core.tasks import spawn

log = logging.getLogger(__name__)

REASON = "feedback_reason"
REQUEST_FIELD = "request"
NOT_IN_CHANNEL = "I am not a member of that conversation. Invite me there and try again, or write to me directly."
NOT_BEGUN = "Slack did not answer in time, so I could not begin. Please try it again."
FORM_REFUSED = "Slack did not open the form. Please try it again, or write to me here."
QUOTED_MAX = 1000
MISTYPED = (
    "There is no command `{}`. Did you mean `{}`? To ask me for something, write a few more words. `help` lists the "
    "commands."
)
ANSWER_SECONDS_MAX = 1.5
"""How long an acknowledgement waits for the outcome, after the look-up of the user's name."""
OPEN_SECONDS_MAX = 2.0
POST_SECONDS = 1.0
_CLOSED_CODES = ("not_in_channel", "channel_not_found", "is_archived")
OPEN = Failpoint("slack.open_form")
BEGIN = Failpoint("slack.begin")

FetchMessage = Callable[[str, str, str], Awaitable[JsonObject]]
"""Returns the message with the given channel, thread and ts, or an empty object. Raises SurfaceError."""
Take = Callable[[UserAction], Awaitable[tuple[UserAction, Outcome]]]
"""Adds facts about the action's person and passes the action on. Returns the action and the outcome."""


@dataclass(frozen=True, slots=True)
class Interactions:
    """Answers shortcuts, forms and commands of one workspace, each within the time that Slack allows. The work for a
    form or command has no deadline itself.

    `admits` returns whether the person has access. It is called before anything is posted in the person's name."""

    client: SlackClient
    fetch: FetchMessage
    take: Take
    admits: Admits
    tell_thread: Callable[[UserAction, Outcome], None]
    tell_privately: Callable[[str, Outcome | Awaitable[Outcome]], None]

    async def open_form(self, payload: JsonObject) -> None:
        """Opens the form of a shortcut. If that fails, notifies the person, because Slack shows nothing."""
        callback_id = get_text(payload, "callback_id")
        if callback_id not in (ASK_MESSAGE, ASK_ANYWHERE):
            self.refuse_unknown_control(payload, callback_id)
            return
        place = {
            "channel": get_text(payload, "channel", "id"),
            "ts": get_text(payload, "message", "ts"),
            "thread_ts": get_text(payload, "message", "thread_ts"),
        }
        about = "What should I do with this message?" if place["ts"] else "What can I do for you?"
        view = form_view("Ask Threadhand", about, REQUEST_FIELD, callback_id=callback_id, submit="Ask")
        view["private_metadata"] = json.dumps(place)
        await self._open(payload, view)

    async def _open(self, payload: JsonObject, view: JsonObject) -> None:
        body: JsonObject = {"trigger_id": get_text(payload, "trigger_id"), "view": view}
        try:
            with OPEN, waiting_at_most(POST_SECONDS):
                async with asyncio.timeout(lookup_seconds_left(OPEN_SECONDS_MAX)):
                    await self.client.write("views.open", body)
        except (SurfaceError, TimeoutError) as error:
            log.warning("slack: a form was not opened: %s", error or type(error).__name__)
            self.tell_privately(get_text(payload, "user", "id"), Outcome(notice=FORM_REFUSED))

    def refuse_unknown_control(self, payload: JsonObject, name: str) -> None:
        """Logs a warning and tells the user that this version does not recognize the shortcut or button."""
        log.warning("slack: someone used an unknown control or shortcut: %r", name)
        self.tell_privately(get_text(payload, "user", "id"), Outcome(notice=UNKNOWN_CONTROL))

    async def ask_feedback_reason(self, payload: JsonObject, given: FeedbackGiven) -> None:
        """Opens a form that asks why the answer was bad. The rating counts even if the form is not sent."""
        view = form_view(
            "What was wrong?",
            "What should it have done?",
            REQUEST_FIELD,
            callback_id=REASON,
            submit="Send",
            is_optional=True,
        )
        place = given.address
        kept = {"run_id": given.run_id, "channel": place.channel_id, "ts": place.thread_key}
        view["private_metadata"] = json.dumps(kept)
        await self._open(payload, view)

    async def submit_form(self, payload: JsonObject, context: ParseContext) -> JsonObject:
        """Handles a submitted form: starts a run for its request, or records the reason of a rating. Returns the
        response for Slack, which closes the form or shows an error in it."""
        view = get_object(payload, "view")
        callback_id = get_text(view, "callback_id")
        place = _parse_place(get_text(view, "private_metadata") or "{}")
        if place is None or callback_id not in (ASK_MESSAGE, ASK_ANYWHERE, REASON):
            log.warning("slack: someone sent an unknown form: %r", callback_id)
            return refusal_acknowledgement(payload, UNKNOWN_CONTROL)
        words = escape_entities(get_text(view, "state", "values", REQUEST_FIELD, REQUEST_FIELD, "value"))
        user, key = get_text(payload, "user", "id"), context.dedupe_key("form", get_text(view, "id"))
        if callback_id == REASON:
            given = FeedbackGiven(
                address=context.address(get_text(place, "channel"), get_text(place, "ts")),
                dedupe_key=key,
                run_id=get_text(place, "run_id"),
                is_good=False,
                person=context.person(user),
                text=unescape_entities(words).strip(),
            )
            work = self._take(given)
        elif get_text(place, "ts"):
            work = self._ask_about(place, words, user, key, context)
        else:
            work = self._begin_directly(words, user, key, context)
        outcome = await self._act(user, work)
        if outcome.run_id is not None or not outcome.notice:
            return {}
        return _field_error(outcome.notice) if outcome.is_ignored else refusal_acknowledgement(payload, outcome.notice)

    async def _ask_about(self, place: JsonObject, words: str, user: str, key: str, context: ParseContext) -> Outcome:
        """Starts a run in the thread of a message, with the message quoted, and posts in the thread who asked what."""
        channel, ts = get_text(place, "channel"), get_text(place, "ts")
        thread_ts = get_text(place, "thread_ts") or ts
        if not (found := await self.fetch(channel, thread_ts, ts)):
            return Outcome(notice="That message is gone.", is_ignored=True)
        quoted: JsonObject = {
            "is_share": True,
            "author_id": get_text(found, "user"),
            "author_name": context.names.get(get_text(found, "user"), ""),
            "message_blocks": [{"message": found}],
            "files": found.get("files") or [],
        }
        event: JsonObject = {
            "type": "app_mention",
            "channel": channel,
            "user": user,
            "ts": ts,
            "thread_ts": thread_ts,
            "text": f"<@{context.identity.user_id}> {words}",
            "attachments": [quoted],
        }
        action = _keyed(parse_event(event, context), key)
        if action is None:
            return Outcome(is_ignored=True)
        if isinstance(action, IncomingMessage):
            action = replace(action, is_about_message=True)
        action, outcome = await self.take(action)
        if outcome.run_id and isinstance(action, IncomingMessage):
            said = _asked(action.person, unescape_entities(words))
            self.tell_thread(action, replace(outcome, notice=said, is_private=False))
        return outcome

    async def run_command(self, payload: JsonObject, context: ParseContext) -> JsonObject:
        """Answers `/threadhand`: shows help, runs a chat command, or starts a run for a request in a new thread."""
        words = get_text(payload, "text").strip() or "help"
        if suggested := suggest_command(words):
            return _ephemeral(MISTYPED.format(truncate(words, QUOTED_MAX), suggested))
        channel, user = get_text(payload, "channel_id"), get_text(payload, "user_id")
        key = context.dedupe_key("command", get_text(payload, "trigger_id"))
        outcome = await self._act(user, self._begin(channel, words, user, key, context))
        return _ephemeral(outcome.notice, outcome.commands) if outcome.notice else {}

    async def _act(self, user: str, work: Coroutine[object, object, Outcome]) -> Outcome:
        """Does the work and returns its outcome.

        Work that takes too long for the acknowledgement is not cancelled, because that could leave it half done. An
        empty outcome is returned for it, and the notice of its own outcome is sent to the user's direct messages."""
        pending = spawn(_find_outcome(work), name="slack interaction")
        await asyncio.wait({pending}, timeout=ANSWER_SECONDS_MAX)
        if pending.done():
            return pending.result()
        self.tell_privately(user, pending)
        return Outcome()

    async def _begin_directly(self, words: str, user: str, key: str, context: ParseContext) -> Outcome:
        return await self._begin(await self.client.open_direct_message(user), words, user, key, context)

    async def _begin(self, channel: str, words: str, user: str, key: str, context: ParseContext) -> Outcome:
        """Posts who asked what and starts a run in the thread of that post, or runs a command. Raises SurfaceError."""
        text = f"<@{context.identity.user_id}> {words}"
        event: JsonObject = {"type": "app_mention", "channel": channel, "user": user, "ts": "1.0", "text": text}
        action = _keyed(parse_event(event, context), key)
        if action is None:
            return Outcome(is_ignored=True)
        action = replace(action, address=replace(action.address, thread_key=""))
        if isinstance(action, CommandCalled):  # nobody wrote a message
            action = replace(action, message=None)
        if not isinstance(action, IncomingMessage):
            return await self._take(action)
        action = replace(action, message_ref="")
        if not await self.admits(action):
            return await self._take(action)
        body = notice_body(channel, _asked(action.person, action.text))
        with BEGIN:
            ts = get_text(await self.client.write("chat.postMessage", body), "ts")
        address = replace(action.address, thread_key=ts)
        return await self._take(replace(action, address=address, message_ref=ts))

    async def _take(self, action: UserAction) -> Outcome:
        return (await self.take(action))[1]


async def _find_outcome(work: Awaitable[Outcome]) -> Outcome:
    """Returns the outcome of the work. If the work fails or is refused, the notice says why."""
    try:
        outcome = await work
    except SurfaceError as error:
        log.info("slack: a request could not begin: %s", error)
        is_closed = isinstance(error, SurfaceRefused) and error.code in _CLOSED_CODES
        return Outcome(notice=NOT_IN_CHANNEL if is_closed else NOT_BEGUN, is_ignored=True)
    except Exception as error:  # without a response, Slack shows only that the app failed
        log.exception("an interaction failed")
        return Outcome(notice=describe_failure(error), is_ignored=True)
    is_refused = outcome.is_ignored and outcome.run_id is None
    return replace(outcome, notice=outcome.notice or NOT_ALLOWED) if is_refused else outcome


def _parse_place(private_metadata: str) -> JsonObject | None:
    """Returns where a form was opened, or None if the metadata cannot be parsed."""
    try:
        place: JsonValue = json.loads(private_metadata)
    except (ValueError, RecursionError):
        return None
    return place if isinstance(place, dict) else None


def _keyed(action: UserAction | Ignored, key: str) -> IncomingMessage | CommandCalled | StopRequested | None:
    if isinstance(action, IncomingMessage | CommandCalled | StopRequested):
        return replace(action, dedupe_key=key, sent_at=estimate_sent_at())
    return None


def _asked(person: Person, request: str) -> str:
    return f"**{escape_name(person.name)}** asked me: {escape_markdown(truncate(request.strip(), QUOTED_MAX))}"


def refusal_acknowledgement(payload: JsonObject, sentence: str) -> JsonObject:
    """Returns the acknowledgement that shows a sentence to the user. Slack can show one only after a form or a
    command."""
    if get_text(payload, "command"):
        return _ephemeral(sentence)
    if get_text(payload, "type") != "view_submission":
        return {}
    shown: JsonObject = {
        "type": "modal",
        "title": plain_text_object("Threadhand", limits.VIEW_TITLE_MAX),
        "blocks": _plain_blocks(sentence),
    }
    return {"response_action": "update", "view": shown}


def _field_error(markdown: str) -> JsonObject:
    """Returns the acknowledgement that shows a sentence below the form's field, so that the user's words stay."""
    return {"response_action": "errors", "errors": {REQUEST_FIELD: markdown_to_words(markdown)}}


def _ephemeral(markdown: str, commands: Mapping[str, str] | None = None) -> JsonObject:
    text = render_content(Notice(markdown=markdown)).text
    blocks: list[JsonValue] = [*_plain_blocks(markdown), *command_button_blocks(commands or {})]
    return {"response_type": "ephemeral", "text": text, "blocks": blocks}


def _plain_blocks(markdown: str) -> list[JsonValue]:
    """Returns blocks without `markdown` blocks, which views and responses to commands do not accept."""
    return list(simplify_blocks(blocks_from_markdown(markdown)))
