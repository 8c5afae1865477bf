"""Handles a workspace's payloads: looks names up, parses, passes the result on, and shows its notice."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from bots.inbound.actions import NOT_STORED, Admits, CommandCalled, FeedbackGiven, Outcome, Receive, UserAction
from bots.inbound.home import GreetingsAndHome
from bots.inbound.schedules import TriggerEventHandler
from bots.slack.events.cursors import ChannelCursors
from bots.slack.events.greetings import GREETED_EVENTS, Greeter
from bots.slack.events.interactions import Interactions
from bots.slack.events.parse import (
    Ignored,
    ParseContext,
    concerns_bot,
    find_reacted_message,
    find_user_ids,
    parse_click,
    parse_event,
    parse_trigger_event,
    parse_ts,
    strip_content,
)
from bots.slack.events.payload_fields import find_channel, get_object, get_objects, get_text
from bots.slack.web_api.channel_history import ChannelHistory
from bots.slack.web_api.client import ACKNOWLEDGE_SECONDS, SlackClient, acknowledgement_deadline, lookup_seconds_left
from bots.slack.web_api.downloads import fetch_file_metadata
from bots.slack.web_api.notices import NoticeSender
from bots.slack.web_api.users import UserGroups, UserLookup
from core.domain.actions import ActorContext, IncomingMessage, MessageDeleted
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.schedules import TriggerEvent
from core.domain.threads import Address, IncomingFile
from core.stores import Conversations

_STORED_MESSAGES_MAX = 2000

MessageKey = tuple[str, str]
SignFile = Callable[[str, IncomingFile], IncomingFile]
ActionT = TypeVar("ActionT", bound=UserAction)


class MentionDedup:
    """Remembers recently stored messages by (channel, ts), so that a mention is handled only once.

    Slack sends a mention as an `app_mention` event and as a `message` event. Only the `message` event has the files, so
    the `app_mention` event waits for it."""

    def __init__(self) -> None:
        self._stored: OrderedDict[MessageKey, bool] = OrderedDict()
        self._waiting: dict[MessageKey, asyncio.Event] = {}

    def record(self, channel: str, ts: str, *, is_taken: bool) -> None:
        """Records that the message was handled. `is_taken` is false if it was ignored."""
        self._stored[channel, ts] = is_taken
        while len(self._stored) > _STORED_MESSAGES_MAX:
            self._stored.popitem(last=False)
        if event := self._waiting.get((channel, ts)):
            event.set()

    async def wait_for(self, channel: str, ts: str, *, timeout_seconds: float, is_edit: bool = False) -> bool:
        """Waits for the message. Returns whether it was handled before the timeout.

        For an edit, a message that was ignored counts as not handled, because the edit may turn it into a request."""
        key = (channel, ts)
        if key in self._stored:
            return self._stored[key] or not is_edit
        event = self._waiting.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            if self._waiting.get(key) is event:
                del self._waiting[key]
        return True


class ThreadOrder:
    """Handles the messages of a thread, their edits and their deletions in the order of their arrival, while their
    lookups run at the same time."""

    def __init__(self) -> None:
        self._newest: dict[MessageKey, asyncio.Event] = {}

    @asynccontextmanager
    async def in_order(self, event: JsonObject) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
        """Context manager: yields a function that waits until the thread's earlier events have been handled, but not
        longer than Slack waits for the acknowledgement."""
        # the event of an edit, a deletion or a reaction contains the message
        parts = (get_object(event, name) for name in ("message", "previous_message", "item"))
        message = next(filter(None, parts), event)
        thread = find_channel(event), get_text(message, "thread_ts") or get_text(message, "ts")
        earlier = self._newest.get(thread)
        own = self._newest[thread] = asyncio.Event()

        async def turn() -> None:
            if earlier is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(lookup_seconds_left(ACKNOWLEDGE_SECONDS)):
                        await earlier.wait()

        try:
            yield turn
        finally:
            own.set()
            if self._newest.get(thread) is own:
                del self._newest[thread]


ROOT_SECONDS = 1.0
"""A message that takes longer than this from its author to the inbox may arrive after replies to it."""
SECOND_COPY_SECONDS_MAX = 1.0
FETCH_SECONDS_MAX = 1.0

log = logging.getLogger(__name__)


class EventHandler:
    """Handles every payload before it is acknowledged. Exceptions from `receive` propagate to Bolt."""

    def __init__(
        self,
        client: SlackClient,
        people: UserLookup,
        receive: Receive,
        groups: Sequence[str] = (),
        *,
        hear: TriggerEventHandler | None = None,
        admits: Admits | None = None,
        conversations: Conversations | None = None,
        sign_file: SignFile = lambda _team_id, file: file,
        cursors: ChannelCursors | None = None,
        greetings: GreetingsAndHome | None = None,
    ) -> None:
        """`hear` handles events in channels that are not addressed to the bot. `admits` returns whether an author has
        access, before a message is parsed. `conversations` finds out whether an event that is not addressed to the bot
        is in one of its threads, before anyone is looked up. `sign_file` returns a file with a reference that
        names its workspace. `cursors` records received messages."""
        self._client = client
        self._receive = receive
        self._hear = hear
        self._admits = admits
        self._conversations = conversations
        self._sign_file = sign_file
        self._cursors = cursors
        self._people = people
        self._groups = UserGroups(client, groups)
        self._mention_dedup = MentionDedup()
        self._order = ThreadOrder()
        self._notices = NoticeSender(client)
        self._greeter = Greeter(client, greetings, self._find_access) if greetings else None
        self._shortcuts = Interactions(
            client,
            fetch=self._fetch,
            take=partial(self._take, is_click=True),
            admits=self._is_admitted,
            tell_thread=partial(self._notices.send, is_thread_open=True),
            tell_privately=self._notices.send_direct_message,
        )

    async def on_event(self, event: JsonObject, *, is_missed: bool = False) -> None:
        """Handles an event of the Events API, or with `is_missed`, an event that was made from a message in the
        history."""
        if get_text(event, "type") in GREETED_EVENTS:
            if self._greeter is not None:
                with acknowledgement_deadline():
                    await self._greeter.handle_event(event, await self._context_with({get_text(event, "user")}))
            return
        with acknowledgement_deadline():
            await self._on_event(event, is_missed=is_missed)
            await self.pass_to_schedules(event)
        if self._cursors is not None and get_text(event, "type") in {"message", "app_mention"}:
            place = self._client.identity.team_id, get_text(event, "channel"), get_text(event, "ts")
            self._cursors.record_message(*place)

    async def pass_to_schedules(self, event: JsonObject) -> None:
        """Passes the event to the schedules if a trigger can wait for events of its kind."""
        if self._hear and (happened := parse_trigger_event(event, self._client.identity)):
            is_reaction = happened.kind == "emoji"
            locate = partial(self._find_thread, happened, get_text(event, "user")) if is_reaction else None
            await self._hear(happened, locate)

    async def _on_event(self, event: JsonObject, *, is_missed: bool = False) -> None:
        channel, ts = get_text(event, "channel"), get_text(event, "ts")
        is_edit = bool(get_text(event, "edited", "ts"))
        if get_text(event, "type") == "app_mention" and await self._mention_dedup.wait_for(
            channel, ts, timeout_seconds=SECOND_COPY_SECONDS_MAX, is_edit=is_edit
        ):
            return
        async with self._order.in_order(event) as turn:
            inbound = await self._parse(event, turn)
            if not isinstance(inbound, Ignored):
                inbound = replace(inbound, is_missed=is_missed)
            is_reply = get_text(event, "thread_ts") not in {"", ts}
            outcome = await self._receive_inbound(inbound, is_thread_open=is_reply, turn=turn)
            if isinstance(inbound, CommandCalled) or (isinstance(inbound, IncomingMessage) and inbound.is_addressed):
                self._mention_dedup.record(channel, ts, is_taken=not outcome.is_ignored)
        is_late = (datetime.now(UTC) - parse_ts(ts)).total_seconds() > ROOT_SECONDS
        if isinstance(inbound, IncomingMessage) and outcome.run_id and is_late and not (is_reply or is_missed):
            # Slack keeps no order between a message and its replies, and a reply whose thread is unknown is ignored. If
            # the message came late, handle its replies now. Those that came after it are duplicates.
            try:
                replies = await ChannelHistory(client=self._client, pause_seconds=0).read_replies(channel, ts)
            except SurfaceError as error:
                log.info("slack: early replies to %s are not looked for: %s", ts, error)
                replies = []
            for reply in replies:
                await self._on_event(reply)

    async def on_shortcut(self, payload: JsonObject) -> None:
        """Handles a message shortcut or a global shortcut."""
        with acknowledgement_deadline():
            await self._shortcuts.open_form(payload)

    async def on_form(self, payload: JsonObject) -> JsonObject | None:
        """Handles a submitted form. Returns the acknowledgement for Slack."""
        if get_text(payload, "type") != "view_submission":
            return None
        return await self._shortcuts.submit_form(payload, await self._context_of(payload))

    async def on_command(self, payload: JsonObject) -> JsonObject:
        """Handles a slash command. Returns the acknowledgement for Slack."""
        return await self._shortcuts.run_command(payload, await self._context_of(payload))

    async def _context_of(self, payload: JsonObject) -> ParseContext:
        person_id = get_text(payload, "user", "id") or get_text(payload, "user_id")
        return await self._context_with({person_id})

    async def _context_with(self, people: set[str]) -> ParseContext:
        """Looks up the users with these ids, except the bot and empty ids."""
        identity = self._client.identity
        return ParseContext(
            identity=identity,
            names=await self._people.find_names(people - {"", identity.user_id}),
            time_zones=self._people.known_time_zones(people),
        )

    async def on_click(self, payload: JsonObject) -> None:
        """Handles one `block_actions` payload, such as a button click."""
        with acknowledgement_deadline():
            context = await self._context_of(payload)
            inbound = parse_safely(partial(parse_click, payload, context))
            if isinstance(inbound, Ignored):
                (action, *_) = get_objects(payload, "actions") or [{}]
                self._shortcuts.refuse_unknown_control(payload, get_text(action, "action_id"))
            outcome = await self._receive_inbound(inbound, is_thread_open=True, is_click=True)
            if outcome.is_ignored or not isinstance(inbound, FeedbackGiven):
                return
            if not inbound.is_good:
                await self._shortcuts.ask_feedback_reason(payload, inbound)

    async def _parse(self, event: JsonObject, turn: Callable[[], Awaitable[None]]) -> UserAction | Ignored:
        """Parses an event. Looks users up only if the event can matter, and names in the text only if the author has
        access.

        If the author has no access, the message comes without its content, so that nobody reads what strangers
        write."""
        identity = self._client.identity
        thread_ts = ""
        reacted = find_reacted_message(event, identity)
        if reacted:
            channel, thread_ts = reacted
            if self._conversations is not None:
                # look up the thread if the message is an active run's request or card
                place = ParseContext(identity=identity).address(channel, "")
                address = await self._conversations.find_run_address(place, thread_ts)
                if address is None or not address.thread_key:
                    return Ignored(reason="a reaction to nothing of ours")
                thread_ts = address.thread_key
        unnamed = ParseContext(identity=identity, reacted_thread_ts=thread_ts)
        inbound = parse_safely(partial(parse_event, event, unnamed))
        if isinstance(inbound, Ignored):
            return inbound
        if reacted is None and not concerns_bot(event, identity):
            await turn()  # wait, because an earlier message may begin a conversation here
            if self._conversations and not await self._conversations.has_thread(inbound.address):
                return Ignored(reason="not addressed")
        if isinstance(inbound, MessageDeleted):  # a deletion shows nothing of the message
            return inbound
        outline = parse_safely(partial(parse_event, strip_content(event, identity), unnamed))
        if isinstance(outline, IncomingMessage):
            outline, is_admitted = await self._find_access(outline, is_click=False)
            if not is_admitted:
                return outline
        if get_text(event, "type") == "app_mention":
            event = await self._whole_message(event)
        named = replace(await self._context_with(find_user_ids(event)), reacted_thread_ts=thread_ts)
        return parse_safely(partial(parse_event, event, named))

    async def _find_thread(self, happened: TriggerEvent, person_id: str) -> TriggerEvent:
        """Returns the event with the thread of its message and the ids of the app that reacted, because a reaction
        event does not contain them."""
        parameters = {"channel": happened.address.channel_id, "ts": happened.message_ref, "limit": 1}
        (message, *_) = get_objects(await self._client.look_up("conversations.replies", parameters), "messages") or [{}]
        thread_ts = get_text(message, "thread_ts") or happened.message_ref
        actor = await self._people.fetch_actor_context(person_id)
        if not (actor.is_known or actor.is_withheld):
            raise SurfaceUnclear("whether an app reacted is not known yet")
        return replace(happened, address=replace(happened.address, thread_key=thread_ts), app_ids=actor.app_ids)

    async def _receive_inbound(
        self,
        inbound: UserAction | Ignored,
        *,
        is_thread_open: bool,
        is_click: bool = False,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> Outcome:
        """Passes the action on, after `turn`, and shows its notice."""
        if isinstance(inbound, Ignored):
            log.debug("a slack payload was ignored: %s", inbound.reason)
            return Outcome(is_ignored=True)
        inbound, outcome = await self._take(inbound, is_click=is_click, turn=turn)
        is_addressed = isinstance(inbound, IncomingMessage) and inbound.is_addressed
        if self._cursors and outcome.is_ignored and is_addressed:
            await self._cursors.mark_ignored(inbound.dedupe_key)
        if outcome.notice:
            self._notices.send(inbound, outcome, is_thread_open=is_thread_open)
        return outcome

    async def _take(
        self, inbound: UserAction, *, is_click: bool, turn: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[UserAction, Outcome]:
        actor = await self._standing(inbound, is_click=is_click)
        whole = await asyncio.gather(*(fetch_file_metadata(self._client, file) for file in inbound.files))
        files = tuple(self._sign_file(self._client.identity.team_id, file) for file in whole)
        inbound = replace(inbound, actor=actor, files=files)
        if turn is not None:
            await turn()
        try:
            return inbound, await self._receive(inbound)
        except StorageUnavailable:
            if not is_click:
                raise
            # Slack does not redeliver a click, and shows the user only a warning icon
            return inbound, Outcome(notice=NOT_STORED, is_ignored=True)

    async def _is_admitted(self, inbound: UserAction) -> bool:
        return (await self._find_access(inbound))[1]

    async def _find_access(self, inbound: ActionT, *, is_click: bool = True) -> tuple[ActionT, bool]:
        """Returns the action with facts about its person, and whether the person has access."""
        inbound = replace(inbound, actor=await self._standing(inbound, is_click=is_click))
        return inbound, self._admits is None or await self._admits(inbound)

    async def _standing(self, inbound: UserAction, *, is_click: bool) -> ActorContext:
        """Returns facts about the person or the app that sent the action."""
        if inbound.actor.app_ids:
            return replace(inbound.actor, organisation_id=self._client.identity.organisation_id)
        return await self.fetch_actor_context(inbound.address, inbound.person.person_id, is_click=is_click)

    async def fetch_actor_context(self, address: Address, person_id: str, *, is_click: bool = False) -> ActorContext:
        """Returns what the workspace reports about a user who acts at the address."""
        actor, groups = await asyncio.gather(
            self._people.fetch_actor_context(person_id), self._groups.find_groups(person_id, is_click=is_click)
        )
        return replace(
            actor,
            groups=groups,
            organisation_id=self._client.identity.organisation_id,
            is_direct=address.is_direct,
            expects_answer=is_click,
        )

    async def _whole_message(self, mention: JsonObject) -> JsonObject:
        """Adds fields that only the `message` event has, such as files. Returns the mention unchanged if Slack
        fails."""
        channel, ts = get_text(mention, "channel"), get_text(mention, "ts")
        thread_ts = get_text(mention, "thread_ts") or ts
        try:
            found = await self._fetch(channel, thread_ts, ts)
        except SurfaceError as error:
            log.info("slack: the full message of a mention cannot be read: %s", error)
            return mention
        whole = {key: found[key] for key in ("text", "files", "blocks", "attachments") if key in found}
        return {**mention, **whole}

    async def _fetch(self, channel: str, thread_ts: str, ts: str) -> JsonObject:
        parameters = {"channel": channel, "ts": thread_ts, "oldest": ts, "latest": ts, "inclusive": True, "limit": 2}
        answer = await self._client.look_up("conversations.replies", parameters, seconds_max=FETCH_SECONDS_MAX)
        found = [one for one in get_objects(answer, "messages") if get_text(one, "ts") == ts]
        return found[0] if found else {}

    async def close(self) -> None:
        """Waits for notices in progress."""
        await self._notices.close()
        if self._greeter is not None:
            await self._greeter.close()


def parse_safely(parse: Callable[[], UserAction | Ignored]) -> UserAction | Ignored:
    """Calls `parse`. Logs and ignores a payload that breaks the parser, because each redelivery would break it
    again."""
    try:
        return parse()
    except Exception:  # a payload may have any shape
        log.exception("a slack payload could not be parsed")
        return Ignored(reason="unreadable")
