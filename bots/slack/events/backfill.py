"""Reading what was said while nobody listened, in the channels that the program knows."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bots.inbound.actions import CommandCalled, IncomingMessage, StopRequested
from bots.slack.events.cursors import PLATFORM, ChannelCursors, InboxStore, is_message_ts
from bots.slack.events.handler import EventHandler, parse_safely
from bots.slack.events.parse import ParseContext, parse_event
from bots.slack.events.payload import get_text
from bots.slack.web_api.client import Identity
from bots.slack.web_api.history import ChannelHistory
from bots.slack.workspaces import Workspace, Workspaces
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.messages import JsonObject
from core.domain.threads import JoinedThread
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

MESSAGE_AGE_SECONDS_MAX = 3 * 86_400
"""Whoever asked longer ago does not wait for the answer any more."""
OVERLAP_SECONDS = 600
"""Slack tries for some six minutes to deliver an event, so a later one may have come before it. Requests of that time
are looked at once more; of all else only what came after the mark."""
CHANNELS_MAX = 200
"""Channels of one workspace, the last heard first."""
THREADS_MAX = 200
"""Threads of one workspace that the agent is in, the last used first."""
SCAN_SECONDS_MAX = 1800.0
WORKSPACES_AT_ONCE = 4
OUTAGE_SECONDS = 30.0
"""What is missed in a shorter absence Slack delivers again."""
RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGap:
    """A channel that was heard until `mark`, and has to be read after `oldest`. `is_cut`: the age allows no more."""

    scope: str
    channel_id: str
    cursor: str
    oldest: str
    is_cut: bool


@dataclass(slots=True, kw_only=True)
class _BackfillSummary:
    """What came of one workspace's gaps: messages behind the marks, those of them that ask for something, channels
    with more than was read, and channels that were not read, by the reason."""

    heard: int = 0
    asked: int = 0
    cut: list[str] = field(default_factory=list[str])
    skipped: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def skip(self, reason: str, channel_id: str) -> None:
        self.skipped.setdefault(reason, []).append(channel_id)

    def log(self, team_id: str) -> None:
        """One line for each thing that an operator may want to know."""
        for reason, channels in self.skipped.items():
            arguments = (len(channels), team_id, reason, _format_channel_ids(channels))
            log.warning(
                "slack: %s channels of workspace %s are not caught up on (%s): %s", *arguments
            )
        if self.cut:
            arguments = (len(self.cut), team_id, _format_channel_ids(self.cut))
            log.warning("slack: in %s channels of workspace %s too much was missed: %s", *arguments)
        if self.heard:
            arguments = (team_id, self.heard, self.asked)
            log.info("slack: caught up in workspace %s: %s messages, %s for the agent", *arguments)


class Backfill:
    """Reads the gaps of all workspaces after a start and after each absence, beside the live events.

    Every message goes through the doorway as if it came now: its key tells whether it was taken before.
    """

    def __init__(
        self,
        inbox: InboxStore,
        cursors: ChannelCursors,
        workspaces: Workspaces,
        *,
        outage_seconds: float = OUTAGE_SECONDS,
    ) -> None:
        self._inbox = inbox
        self._cursors = cursors
        self._workspaces = workspaces
        self._unread_channels = UnreadChannels(inbox, workspaces)
        self._outage_seconds = outage_seconds
        self._connected_at: float | None = None
        self._is_disconnected = False
        self._scan: asyncio.Task[None] | None = None

    def pause_cursors(self) -> None:
        """To be called before the first event can come."""
        self._cursors.pause()

    def start(self) -> None:
        """Starts reading, in the background; what is being read already begins anew."""
        self._cursors.pause()
        self._connected_at = time.time()
        self._scan = spawn(self._run(self._scan), name="slack catch-up")

    def on_connection_state(self, *, is_connected: bool) -> None:
        """Told every few seconds. By the clock of the wall, which goes on while a machine sleeps."""
        now = time.time()
        if not is_connected:
            if not self._is_disconnected:
                self._is_disconnected = True
                self._cursors.pause()
            return
        was_away = (
            self._connected_at is not None and now - self._connected_at >= self._outage_seconds
        )
        if was_away or (self._is_disconnected and self._is_reading):
            self.start()
        elif self._is_disconnected:
            self._cursors.unpause()
        self._is_disconnected = False
        self._connected_at = now

    @property
    def _is_reading(self) -> bool:
        return self._scan is not None and not self._scan.done()

    async def close(self) -> None:
        """Gives up what is being read; the marks stand before it still."""
        if self._scan is not None:
            await cancel(self._scan)

    async def _run(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await cancel(earlier)
        gaps = await self._find_gaps()
        await self._cursors.resume([gap.scope for found in gaps.values() for gap in found])
        slots = asyncio.Semaphore(WORKSPACES_AT_ONCE)
        await asyncio.gather(
            *(self._backfill_workspace_safely(team_id, gaps[team_id], slots) for team_id in gaps)
        )

    async def _find_gaps(self) -> Mapping[str, list[ChannelGap]]:
        """By workspace, the channels that were heard last first."""
        while True:
            try:
                cursors = await self._unread_channels.with_new_channels(
                    await self._inbox.cursors(PLATFORM),
                    age_seconds_max=MESSAGE_AGE_SECONDS_MAX - OVERLAP_SECONDS,
                )
                break
            except StorageUnavailable as error:
                log.warning("slack: catching up waits for the database: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
        return find_gaps(cursors, now=time.time())

    async def _backfill_workspace_safely(
        self, team_id: str, gaps: list[ChannelGap], slots: asyncio.Semaphore
    ) -> None:
        """One workspace that cannot be read keeps no other from being read."""
        summary = _BackfillSummary()
        async with slots:
            try:
                async with asyncio.timeout(SCAN_SECONDS_MAX):
                    await self._backfill_workspace(team_id, gaps, summary)
            except TimeoutError:
                summary.skip("no time is left", "those that are left")
            except Exception:
                log.exception("slack: catching up in workspace %s failed", team_id)
        summary.log(team_id)

    async def _backfill_workspace(
        self, team_id: str, gaps: list[ChannelGap], summary: _BackfillSummary
    ) -> None:
        workspace = await self._workspaces.find(team_id)
        if workspace is None or workspace.event_handler is None:
            return
        for gap in gaps[CHANNELS_MAX:]:
            summary.skip(f"more than {CHANNELS_MAX}", gap.channel_id)
            await self._cursors.close_gap(gap.scope)
        joined = await self._inbox.joined(PLATFORM, team_id, limit=THREADS_MAX)
        history = ChannelHistory.for_client(workspace.client)
        replay = MessageReplay(
            workspace.client.identity, workspace.event_handler, self._cursors, joined
        )
        newest = max(gap.cursor for gap in gaps)
        for gap in gaps[:CHANNELS_MAX]:
            try:
                read_until = await self._backfill_channel(gap, history, replay, summary)
                # where nothing was said, nothing is missed up to a moment that Slack has named
                await self._cursors.close_gap(gap.scope, read_until or newest)
            except SurfaceRefused as error:
                summary.skip(error.code, gap.channel_id)
                await self._cursors.close_gap(gap.scope)
            except (SurfaceError, StorageUnavailable) as error:
                summary.skip(f"{error}; tried again at the next start", gap.channel_id)

    async def _backfill_channel(
        self,
        gap: ChannelGap,
        history: ChannelHistory,
        replay: "MessageReplay",
        summary: _BackfillSummary,
    ) -> str:
        missed = await history.read_since(
            gap.channel_id, gap.oldest, replay.threads_in(gap.channel_id)
        )
        for event in missed.messages:
            was_retold = await replay.replay_message(event, cursor=gap.cursor)
            if get_text(event, "ts") > gap.cursor:
                summary.heard += 1
                summary.asked += was_retold
        if missed.is_cut or gap.is_cut:
            summary.cut.append(gap.channel_id)
        return missed.newest


def find_gaps(cursors: Mapping[str, str], *, now: float) -> Mapping[str, list[ChannelGap]]:
    """What is to be read of each workspace, by how far its channels were heard."""
    gaps: dict[str, list[ChannelGap]] = defaultdict(list)
    for scope, cursor in sorted(cursors.items(), key=lambda item: item[1], reverse=True):
        team_id, _, channel_id = scope.partition(":")
        if team_id and channel_id and is_message_ts(cursor):
            eldest = now - MESSAGE_AGE_SECONDS_MAX
            gap = ChannelGap(
                scope=scope,
                channel_id=channel_id,
                cursor=cursor,
                oldest=f"{max(float(cursor) - OVERLAP_SECONDS, eldest):017.6f}",
                is_cut=float(cursor) < eldest,
            )
            gaps[team_id].append(gap)
    return gaps


class MessageReplay:
    """Puts messages of the history through the doorway: only those that were for the agent when they were said.

    What was heard live and left alone comes again here, so a message needs more than live: in a thread it has to stand
    behind what brought the agent in, and a stop behind everything that it may not stop.
    """

    def __init__(
        self,
        identity: Identity,
        event_handler: EventHandler,
        cursors: ChannelCursors,
        joined: Sequence[JoinedThread],
    ) -> None:
        self._known = ParseContext(identity=identity)
        self._doorway = event_handler
        self._cursors = cursors
        self._joined = {(one.channel_id, one.thread_key): one for one in joined}
        self._opened: set[tuple[str, str]] = set()

    def threads_in(self, channel_id: str) -> list[str]:
        return [thread_key for channel, thread_key in self._joined if channel == channel_id]

    async def replay_message(self, event: JsonObject, *, cursor: str) -> bool:
        """False: it is not for the agent. Raises what the doorway raises."""
        inbound, ts = parse_safely(partial(parse_event, event, self._known)), get_text(event, "ts")
        match inbound:
            case IncomingMessage(is_addressed=True):
                is_for_us = not await self._cursors.is_marked_ignored(inbound.dedupe_key)
                if is_for_us:
                    self._opened.add(_thread_of(inbound))
            case IncomingMessage() | StopRequested():
                is_for_us = ts > cursor and self._is_new_for_thread(inbound, ts)
            case CommandCalled():
                is_for_us = ts > cursor
            case _:
                is_for_us = False
        if is_for_us:
            await self._doorway.on_event(event)
        return is_for_us

    def _is_new_for_thread(self, inbound: IncomingMessage | StopRequested, ts: str) -> bool:
        joined = self._joined.get(_thread_of(inbound))
        if isinstance(inbound, StopRequested):
            return joined is None or joined.last_ref < ts
        return _thread_of(inbound) in self._opened or bool(joined and joined.first_ref < ts)


def _thread_of(inbound: IncomingMessage | StopRequested) -> tuple[str, str]:
    return inbound.address.channel_id, inbound.address.thread_key


def _format_channel_ids(channels: Sequence[str]) -> str:
    return ", ".join(channels[:5]) + (", ..." if len(channels) > 5 else "")


CHANNEL_TYPES = ("im", "mpim", "private_channel", "public_channel")
"""What is said to the agent alone goes first. Slack lists each kind by a scope of its own."""
NEW_CHANNELS_MAX = 100
"""Channels of a workspace at one start; the next start takes the next ones."""
LISTING_SECONDS_MAX = 120.0
LISTINGS_AT_ONCE = 4
_MISSING_SCOPE = "missing_scope"
_NOT_LISTED_MESSAGE = (
    "slack: channels of workspace %s from which nothing was ever heard are not looked for (%s)"
)


class UnreadChannels:
    """Whatever is said in a channel while the bot listens leaves a mark. So in one without a mark all is missed that
    came since they were last looked for; a workspace keeps that moment as its own mark."""

    def __init__(self, inbox: InboxStore, workspaces: Workspaces) -> None:
        self._inbox = inbox
        self._workspaces = workspaces

    async def with_new_channels(
        self, cursors: Mapping[str, str], *, age_seconds_max: float
    ) -> Mapping[str, str]:
        """The marks of all channels, these among them, none older than that. Raises StorageUnavailable."""
        newest = newest_cursor_by_workspace(cursors)
        eldest = _format_ts(time.time() - age_seconds_max)
        found: dict[str, str] = {}
        slots = asyncio.Semaphore(LISTINGS_AT_ONCE)

        async def look(team_id: str) -> None:
            since = last_listed_ts(team_id, cursors)
            await self._inbox.forward(PLATFORM, f"{team_id}:", since or _format_ts(time.time()))
            if not since:
                return  # what was said before the first start is nobody's
            async with slots:
                is_whole = await self._look(team_id, max(since, eldest), cursors, found)
            if is_whole and team_id in newest:
                await self._inbox.forward(PLATFORM, f"{team_id}:", newest[team_id])

        await asyncio.gather(*map(look, {*newest, *self._workspaces.active_ids}))
        return {**cursors, **found}

    async def _look(
        self, team_id: str, cursor: str, cursors: Mapping[str, str], found: dict[str, str]
    ) -> bool:
        """Whether all of them have a mark now. One workspace that cannot be listed keeps no other from being read."""
        try:
            workspace = await self._workspaces.find(team_id)
            # an organisation's token lists channels that several of its workspaces share
            if (
                workspace is None
                or workspace.event_handler is None
                or workspace.uses_organisation_token
            ):
                return True
            async with asyncio.timeout(LISTING_SECONDS_MAX):
                return await self._add_cursors(team_id, workspace, cursor, cursors, found)
        except (SurfaceError, StorageUnavailable, TimeoutError) as error:
            log.info(_NOT_LISTED_MESSAGE, team_id, str(error) or "no time is left")
        except Exception:
            log.exception("slack: listing the channels of workspace %s failed", team_id)
        return False

    async def _add_cursors(
        self,
        team_id: str,
        workspace: Workspace,
        cursor: str,
        cursors: Mapping[str, str],
        found: dict[str, str],
    ) -> bool:
        history = ChannelHistory.for_client(workspace.client)
        left = NEW_CHANNELS_MAX
        for kind in CHANNEL_TYPES:
            try:
                channels = await history.list_channels(kind)
            except SurfaceRefused as error:
                if error.code != _MISSING_SCOPE:
                    raise
                log.info(_NOT_LISTED_MESSAGE, team_id, f"{_MISSING_SCOPE} for the kind {kind}")
                continue
            scopes = [f"{team_id}:{channel_id}" for channel_id in channels]
            for scope in [one for one in scopes if one not in cursors]:
                if not left:
                    log.info(
                        _NOT_LISTED_MESSAGE,
                        team_id,
                        f"more than {NEW_CHANNELS_MAX}; at the next start",
                    )
                    return False
                await self._inbox.forward(PLATFORM, scope, cursor)
                found[scope] = cursor
                left -= 1
        return True


def newest_cursor_by_workspace(cursors: Mapping[str, str]) -> dict[str, str]:
    """By workspace, the newest mark of its channels."""
    newest: dict[str, str] = {}
    for scope, cursor in cursors.items():
        team_id, _, channel_id = scope.partition(":")
        if team_id and channel_id and is_message_ts(cursor):
            newest[team_id] = max(newest.get(team_id, ""), cursor)
    return newest


def last_listed_ts(team_id: str, cursors: Mapping[str, str]) -> str:
    """Since when channels without a mark may hold something unheard; empty for a workspace that is new. Marks of
    channels are Slack's own times: a clock of ours that was ahead takes nothing away."""
    context = (cursors.get(f"{team_id}:", ""), newest_cursor_by_workspace(cursors).get(team_id, ""))
    return min(filter(is_message_ts, context), default="")


def _format_ts(seconds: float) -> str:
    return f"{seconds:017.6f}"
