"""From a Slack payload to a stored fact: names looked up, parsed, received, and the notice shown."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from bots.inbound.decide import (
    NOT_STORED,
    CommandCalled,
    Inbound,
    IncomingMessage,
    Outcome,
    Standing,
    person_of,
)
from bots.slack.events.clicks import parse_click
from bots.slack.events.cursors import Marks
from bots.slack.events.dedup import Twins
from bots.slack.events.parse import Ignored, Known, parse_event, people_in, stop_reaction
from bots.slack.events.payload import children, text
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.file_names import FileNames
from bots.slack.web_api.files import introduced
from bots.slack.web_api.notices import Notices
from bots.slack.web_api.people import STANDING_REMEMBERED_SECONDS, People
from bots.slack.web_api.user_groups import Groups
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused, SurfaceUnclear
from core.domain.messages import JsonObject

Receive = Callable[[Inbound], Awaitable[Outcome]]

TWIN_SECONDS_MAX = 1.0
FETCH_SECONDS_MAX = 1.0
STANDING_SECONDS_MAX = 0.5
"""The lookup was begun with that of the name, so it has had its time."""
CLICK_LOOKUP_SECONDS_MAX = 1.0
CLICK_STANDING_SECONDS = 0.0
_THREADS_REMEMBERED_MAX = 5000

log = logging.getLogger(__name__)


class Doorway:
    """Every payload passes here before Slack is acknowledged; what `receive` raises goes through to Bolt."""

    def __init__(
        self,
        client: SlackClient,
        receive: Receive,
        groups: Sequence[str] = (),
        *,
        file_names: FileNames | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`file_names`: what files are called where there are several workspaces. `marks`: told what was heard."""
        self._client = client
        self._receive = receive
        self._file_names = file_names
        self._marks = marks
        self._people = People(client)
        self._groups = Groups(client, groups)
        self._twins = Twins()
        self._notices = Notices(client)
        self._threads: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def on_event(self, event: JsonObject) -> None:
        """One event of the Events API."""
        is_ours = await self._on_event(event)
        if self._marks is not None and text(event, "type") in {"message", "app_mention"}:
            place = self._client.identity.team_id, text(event, "channel"), text(event, "ts")
            await self._marks.heard(*place, is_chatter=not is_ours)

    async def _on_event(self, event: JsonObject) -> bool:
        """Whether it asked for something."""
        if text(event, "type") == "app_mention":
            if await self._is_taken_up(event):
                return True
            event = await self._whole_message(event)
        inbound = await self._parsed(event)
        is_thread_open = text(event, "thread_ts") not in {"", text(event, "ts")}
        await self._take(inbound, is_thread_open=is_thread_open)
        if isinstance(inbound, IncomingMessage | CommandCalled):
            self._took(event, inbound)
        return not isinstance(inbound, Ignored)

    async def on_click(self, payload: JsonObject) -> None:
        """One `block_actions` payload."""
        names = await self._people.names({text(payload, "user", "id")} - {""})
        known = Known(identity=self._client.identity, names=names)
        inbound = guarded(partial(parse_click, payload, known))
        await self._take(inbound, is_thread_open=True, is_click=True)

    async def _parsed(self, event: JsonObject) -> Inbound | Ignored:
        reacted = stop_reaction(event)
        known = Known(
            identity=self._client.identity,
            names=await self._people.names(people_in(event)),
            reacted_thread=await self._thread_of(*reacted) if reacted else "",
        )
        return guarded(partial(parse_event, event, known))

    async def _take(
        self, inbound: Inbound | Ignored, *, is_thread_open: bool, is_click: bool = False
    ) -> None:
        if isinstance(inbound, Ignored):
            log.debug("a slack payload asks for nothing: %s", inbound.reason)
            return
        standing = await self._standing(inbound, is_click=is_click)
        inbound = self._with_names(await self._whole_files(replace(inbound, standing=standing)))
        try:
            outcome = await self._receive(inbound)
        except StorageUnavailable:
            if not is_click:
                raise
            # Slack delivers no click again, and shows people nothing but a small sign
            outcome = Outcome(notice=NOT_STORED)
        if self._marks and outcome.is_ignored and _is_addressed(inbound):
            await self._marks.leave(inbound.dedupe_key)
        if outcome.notice:
            self._notices.show(inbound, outcome, is_thread_open=is_thread_open)

    async def _whole_files(self, inbound: Inbound) -> Inbound:
        if not isinstance(inbound, IncomingMessage | CommandCalled) or not inbound.files:
            return inbound
        whole = await asyncio.gather(*(introduced(self._client, file) for file in inbound.files))
        return replace(inbound, files=tuple(whole))

    def _with_names(self, inbound: Inbound) -> Inbound:
        names = self._file_names
        if names is None or not isinstance(inbound, IncomingMessage | CommandCalled):
            return inbound
        team_id = self._client.identity.team_id
        return replace(inbound, files=tuple(names.named(team_id, file) for file in inbound.files))

    async def _standing(self, inbound: Inbound, *, is_click: bool) -> Standing:
        """Who acts, as Slack tells it. For a click it is asked anew: much may have changed since the message."""
        age = CLICK_STANDING_SECONDS if is_click else STANDING_REMEMBERED_SECONDS
        patience = CLICK_LOOKUP_SECONDS_MAX if is_click else STANDING_SECONDS_MAX
        person_id = person_of(inbound).person_id
        standing, groups = await asyncio.gather(
            self._people.standing(person_id, age_seconds_max=age, patience_seconds=patience),
            self._groups.of(person_id, age_seconds_max=age, patience_seconds=patience),
        )
        return replace(
            standing,
            groups=groups,
            organisation_id=self._client.identity.organisation_id,
            is_direct=inbound.address.channel_id.startswith("D"),
            expects_answer=is_click,
        )

    def _took(self, event: JsonObject, inbound: IncomingMessage | CommandCalled) -> None:
        channel, ts = text(event, "channel"), text(event, "ts")
        self._threads[channel, ts] = inbound.address.thread_key
        while len(self._threads) > _THREADS_REMEMBERED_MAX:
            self._threads.popitem(last=False)
        if isinstance(inbound, CommandCalled) or inbound.is_addressed:
            self._twins.took(channel, ts)

    async def _is_taken_up(self, mention: JsonObject) -> bool:
        channel, ts = text(mention, "channel"), text(mention, "ts")
        return await self._twins.comes(channel, ts, timeout_seconds=TWIN_SECONDS_MAX)

    async def _whole_message(self, mention: JsonObject) -> JsonObject:
        """The mention with what its twin would have told; as it is where Slack does not tell."""
        channel, ts = text(mention, "channel"), text(mention, "ts")
        thread_ts = text(mention, "thread_ts") or ts
        try:
            found = await self._fetch(channel, thread_ts, ts)
        except (SurfaceError, TimeoutError) as error:
            log.info("slack does not tell the whole of a mention: %s", error)
            return mention
        whole = {
            key: found[key] for key in ("text", "files", "blocks", "attachments") if key in found
        }
        return {**mention, **whole}

    async def _thread_of(self, channel: str, ts: str) -> str:
        """The thread that a message stands in, or "". Raises SurfaceError: then Slack shall deliver again."""
        if known := self._threads.get((channel, ts)):
            return known
        try:
            found = await self._fetch(channel, ts, ts)
        except SurfaceRefused as error:
            log.info("slack does not tell the thread of a message: %s", error)
            return ""
        except TimeoutError as error:
            raise SurfaceUnclear("Slack took too long to tell a message") from error
        return text(found, "thread_ts")

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
        found = [one for one in children(answer, "messages") if text(one, "ts") == ts]
        return found[0] if found else {}

    async def close(self) -> None:
        """Waits for notices under way, and ends look-ups."""
        await self._notices.close()
        await self._people.close()


def guarded(parse: Callable[[], Inbound | Ignored]) -> Inbound | Ignored:
    """The parsed payload. One that breaks the parser would break it at each delivery: it is logged and let go."""
    try:
        return parse()
    except Exception:
        log.exception("a slack payload could not be parsed")
        return Ignored(reason="unreadable")


def _is_addressed(inbound: Inbound) -> bool:
    return isinstance(inbound, IncomingMessage) and inbound.is_addressed
