"""Handles a workspace's payloads: looks names up, parses, passes the result on, and shows its notice."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from bots.inbound.actions import (
    NOT_STORED,
    ActorContext,
    CommandCalled,
    IncomingMessage,
    Outcome,
    UserAction,
    acting_person,
)
from bots.slack.events.cursors import ChannelCursors
from bots.slack.events.parse import (
    Ignored,
    ParseContext,
    find_stop_reaction,
    parse_click,
    parse_event,
    user_ids_in,
)
from bots.slack.events.payload import get_objects, get_text
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.downloads import FileRefSigner, fetch_file_metadata
from bots.slack.web_api.people import STANDING_REMEMBERED_SECONDS, People, UserGroups
from bots.slack.web_api.posting import NoticeSender
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused, SurfaceUnclear
from core.domain.messages import JsonObject

_STORED_MESSAGES_MAX = 2000

MessageKey = tuple[str, str]


class MentionDedup:
    """Remembers recently stored messages by (channel, ts), so that a mention is handled only once.

    Slack sends a mention as `app_mention` and as `message`. Only the `message` event has the files, so the
    `app_mention` event waits for it.
    """

    def __init__(self) -> None:
        self._taken: OrderedDict[MessageKey, None] = OrderedDict()
        self._waiting: dict[MessageKey, asyncio.Event] = {}

    def record(self, channel: str, ts: str) -> None:
        """Records that the message was stored."""
        self._taken[channel, ts] = None
        while len(self._taken) > _STORED_MESSAGES_MAX:
            self._taken.popitem(last=False)
        if event := self._waiting.get((channel, ts)):
            event.set()

    async def wait_for(self, channel: str, ts: str, *, timeout_seconds: float) -> bool:
        """Waits for the message. Returns whether it was stored before the timeout."""
        key = (channel, ts)
        if key in self._taken:
            return True
        event = self._waiting.setdefault(key, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            if self._waiting.get(key) is event:
                del self._waiting[key]
        return True


Receive = Callable[[UserAction], Awaitable[Outcome]]

SECOND_COPY_SECONDS_MAX = 1.0
FETCH_SECONDS_MAX = 1.0
STANDING_SECONDS_MAX = 0.5
"""Timeout for a person's standing. Short, because the same lookup started earlier, for the person's name."""
CLICK_LOOKUP_SECONDS_MAX = 1.0
CLICK_STANDING_SECONDS = 0.0
_THREADS_REMEMBERED_MAX = 5000

log = logging.getLogger(__name__)


class EventHandler:
    """Handles every payload before it is acknowledged. Exceptions from `receive` propagate to Bolt."""

    def __init__(
        self,
        client: SlackClient,
        receive: Receive,
        groups: Sequence[str] = (),
        *,
        file_ref_signer: FileRefSigner | None = None,
        cursors: ChannelCursors | None = None,
    ) -> None:
        """`file_ref_signer` is needed if the app serves several workspaces; `cursors` record received messages."""
        self._client = client
        self._receive = receive
        self._file_names = file_ref_signer
        self._cursors = cursors
        self._people = People(client)
        self._groups = UserGroups(client, groups)
        self._mention_dedup = MentionDedup()
        self._notices = NoticeSender(client)
        self._threads: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def on_event(self, event: JsonObject) -> None:
        """Handles one event of the Events API."""
        is_ours = await self._on_event(event)
        if self._cursors is not None and get_text(event, "type") in {"message", "app_mention"}:
            place = self._client.identity.team_id, get_text(event, "channel"), get_text(event, "ts")
            await self._cursors.record_message(*place, is_unaddressed=not is_ours)

    async def _on_event(self, event: JsonObject) -> bool:
        """Handles an event. Returns whether it needed action."""
        if get_text(event, "type") == "app_mention":
            if await self._has_second_copy(event):
                return True
            event = await self._whole_message(event)
        inbound = await self._parsed(event)
        is_thread_open = get_text(event, "thread_ts") not in {"", get_text(event, "ts")}
        await self._receive_inbound(inbound, is_thread_open=is_thread_open)
        if isinstance(inbound, IncomingMessage | CommandCalled):
            self._record_taken(event, inbound)
        return not isinstance(inbound, Ignored)

    async def on_click(self, payload: JsonObject) -> None:
        """Handles one `block_actions` payload, such as a button click."""
        names = await self._people.find_names({get_text(payload, "user", "id")} - {""})
        context = ParseContext(identity=self._client.identity, names=names)
        inbound = parse_safely(partial(parse_click, payload, context))
        await self._receive_inbound(inbound, is_thread_open=True, is_click=True)

    async def _parsed(self, event: JsonObject) -> UserAction | Ignored:
        reacted = find_stop_reaction(event)
        context = ParseContext(
            identity=self._client.identity,
            names=await self._people.find_names(user_ids_in(event)),
            reacted_thread_ts=await self._thread_of(*reacted) if reacted else "",
        )
        return parse_safely(partial(parse_event, event, context))

    async def _receive_inbound(
        self, inbound: UserAction | Ignored, *, is_thread_open: bool, is_click: bool = False
    ) -> None:
        if isinstance(inbound, Ignored):
            log.debug("a slack payload was ignored: %s", inbound.reason)
            return
        actor = await self._standing(inbound, is_click=is_click)
        inbound = self._with_names(await self._whole_files(replace(inbound, actor=actor)))
        try:
            outcome = await self._receive(inbound)
        except StorageUnavailable:
            if not is_click:
                raise
            # Slack does not redeliver a click, and shows the user only a warning icon
            outcome = Outcome(notice=NOT_STORED)
        if self._cursors and outcome.is_ignored and _is_addressed(inbound):
            await self._cursors.mark_ignored(inbound.dedupe_key)
        if outcome.notice:
            self._notices.send(inbound, outcome, is_thread_open=is_thread_open)

    async def _whole_files(self, inbound: UserAction) -> UserAction:
        if not isinstance(inbound, IncomingMessage | CommandCalled) or not inbound.files:
            return inbound
        whole = await asyncio.gather(
            *(fetch_file_metadata(self._client, file) for file in inbound.files)
        )
        return replace(inbound, files=tuple(whole))

    def _with_names(self, inbound: UserAction) -> UserAction:
        names = self._file_names
        if names is None or not isinstance(inbound, IncomingMessage | CommandCalled):
            return inbound
        team_id = self._client.identity.team_id
        return replace(inbound, files=tuple(names.sign(team_id, file) for file in inbound.files))

    async def _standing(self, inbound: UserAction, *, is_click: bool) -> ActorContext:
        """Returns the sender's standing. Looks it up again for a click, since it may have changed since the message."""
        age = CLICK_STANDING_SECONDS if is_click else STANDING_REMEMBERED_SECONDS
        patience = CLICK_LOOKUP_SECONDS_MAX if is_click else STANDING_SECONDS_MAX
        person_id = acting_person(inbound).person_id
        actor, groups = await asyncio.gather(
            self._people.find_standing(person_id, age_seconds_max=age, timeout_seconds=patience),
            self._groups.find_groups(person_id, age_seconds_max=age, timeout_seconds=patience),
        )
        return replace(
            actor,
            groups=groups,
            organisation_id=self._client.identity.organisation_id,
            is_direct=inbound.address.channel_id.startswith("D"),
            expects_answer=is_click,
        )

    def _record_taken(self, event: JsonObject, inbound: IncomingMessage | CommandCalled) -> None:
        channel, ts = get_text(event, "channel"), get_text(event, "ts")
        self._threads[channel, ts] = inbound.address.thread_key
        while len(self._threads) > _THREADS_REMEMBERED_MAX:
            self._threads.popitem(last=False)
        if isinstance(inbound, CommandCalled) or inbound.is_addressed:
            self._mention_dedup.record(channel, ts)

    async def _has_second_copy(self, mention: JsonObject) -> bool:
        channel, ts = get_text(mention, "channel"), get_text(mention, "ts")
        return await self._mention_dedup.wait_for(
            channel, ts, timeout_seconds=SECOND_COPY_SECONDS_MAX
        )

    async def _whole_message(self, mention: JsonObject) -> JsonObject:
        """Adds fields that only the `message` event has, such as files. Returns the mention as is if Slack fails."""
        channel, ts = get_text(mention, "channel"), get_text(mention, "ts")
        thread_ts = get_text(mention, "thread_ts") or ts
        try:
            found = await self._fetch(channel, thread_ts, ts)
        except (SurfaceError, TimeoutError) as error:
            log.info("slack: the full message of a mention cannot be read: %s", error)
            return mention
        whole = {
            key: found[key] for key in ("text", "files", "blocks", "attachments") if key in found
        }
        return {**mention, **whole}

    async def _thread_of(self, channel: str, ts: str) -> str:
        """Returns the thread ts of a message, or "". Raises SurfaceError if Slack should redeliver the event."""
        if context := self._threads.get((channel, ts)):
            return context
        try:
            found = await self._fetch(channel, ts, ts)
        except SurfaceRefused as error:
            log.info("slack: the thread of a message cannot be read: %s", error)
            return ""
        except TimeoutError as error:
            raise SurfaceUnclear("Slack took too long to return a message") from error
        return get_text(found, "thread_ts")

    async def _fetch(self, channel: str, thread_ts: str, ts: str) -> JsonObject:
        async with asyncio.timeout(FETCH_SECONDS_MAX):
            answer = await self._client.read(
                "conversations.replies",
                {
                    "channel": channel,
                    "ts": thread_ts,
                    "oldest": ts,
                    "latest": ts,
                    "inclusive": True,
                    "limit": 2,
                },
            )
        found = [one for one in get_objects(answer, "messages") if get_text(one, "ts") == ts]
        return found[0] if found else {}

    async def close(self) -> None:
        """Waits for notices in progress and cancels lookups."""
        await self._notices.close()
        await self._people.close()


def parse_safely(parse: Callable[[], UserAction | Ignored]) -> UserAction | Ignored:
    """Calls `parse`. Logs and ignores a payload that breaks it, since each redelivery would break it too."""
    try:
        return parse()
    except Exception:
        log.exception("a slack payload could not be parsed")
        return Ignored(reason="unreadable")


def _is_addressed(inbound: UserAction) -> bool:
    return isinstance(inbound, IncomingMessage) and inbound.is_addressed
