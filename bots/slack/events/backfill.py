"""Backfill: reads the messages that were missed while the app was offline."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bots.inbound.actions import MISSED_SECONDS_MAX, CommandCalled
from bots.slack.events.cursors import PLATFORM, ChannelCursors, is_message_ts
from bots.slack.events.handler import EventHandler, parse_safely
from bots.slack.events.parse import ParseContext, parse_event
from bots.slack.events.payload_fields import get_text
from bots.slack.web_api.channel_history import ChannelHistory
from bots.slack.web_api.client import Identity
from bots.slack.workspaces import Workspaces
from core.domain.actions import IncomingMessage, StopRequested
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.threads import JoinedThread
from core.stores import Inbox
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

OVERLAP_SECONDS = 600
"""Slack redelivers an event for about six minutes, so a later event may have moved the cursor past it. Mentions and
direct messages from this period before the cursor are read again. Other messages are read only after the cursor."""
CHANNELS_MAX = 200
"""Limit on channels read per workspace, most recently active first."""
THREADS_MAX = 200
"""Limit on the agent's threads read per workspace, most recently used first."""
SCAN_SECONDS_MAX = 1800.0
WORKSPACES_AT_ONCE = 4
OUTAGE_SECONDS = 30.0
"""Shorter outages need no backfill, because Slack redelivers the events."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 30.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGap:
    """A channel whose messages after `oldest` must be read. `is_cut` is true if some messages after `cursor` are too
    old to be read."""

    scope: str
    channel_id: str
    cursor: str
    oldest: str
    is_cut: bool


@dataclass(slots=True, kw_only=True)
class _BackfillSummary:
    """The result of backfilling one workspace.

    `heard` counts the messages after the cursors, `asked` those among them that are for the agent. `cut` lists channels
    with more messages than were read. `skipped` maps reasons to the channels that were not read. `failed` holds the
    gaps that are read again later."""

    heard: int = 0
    asked: int = 0
    cut: list[str] = field(default_factory=list[str])
    skipped: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    failed: list[ChannelGap] = field(default_factory=list[ChannelGap])

    def fail(self, error: Exception, *gaps: ChannelGap) -> None:
        for gap in gaps:
            self.skip(f"{error}; tried again", gap.channel_id)
        self.failed += gaps

    def skip(self, reason: str, channel_id: str) -> None:
        self.skipped.setdefault(reason, []).append(channel_id)

    def log(self, team_id: str) -> None:
        """Logs one line per reason for skipped channels, one for cut channels, and one with the message counts."""
        for reason, channels in self.skipped.items():
            arguments = (len(channels), team_id, reason, _format_channel_ids(channels))
            log.warning("slack: %s channels of workspace %s are not caught up on (%s): %s", *arguments)
        if self.cut:
            arguments = (len(self.cut), team_id, _format_channel_ids(self.cut))
            log.warning("slack: in %s channels of workspace %s too much was missed: %s", *arguments)
        if self.heard:
            arguments = (team_id, self.heard, self.asked)
            log.info("slack: caught up in workspace %s: %s messages, %s for the agent", *arguments)


class Backfill:
    """Reads the gaps of all workspaces after a start and after each outage, while live events are handled.

    Every message goes through the event handler like a live one. Its dedupe key prevents a second run."""

    def __init__(
        self, inbox: Inbox, cursors: ChannelCursors, workspaces: Workspaces, *, outage_seconds: float = OUTAGE_SECONDS
    ) -> None:
        self._inbox = inbox
        self._cursors = cursors
        self._workspaces = workspaces
        self._unread_channels = NewChannels(inbox, workspaces)
        self._outage_seconds = outage_seconds
        self._connected_at: float | None = None
        self._is_disconnected = False
        self._scan: asyncio.Task[None] | None = None

    def pause_cursors(self) -> None:
        """Stops storing cursors until the backfill has found the gaps. Call this before the first event can arrive."""
        self._cursors.pause()

    def start(self) -> None:
        """Starts the backfill in the background. Restarts it if it is already running."""
        self._cursors.pause()
        self._connected_at = time.time()
        self._scan = spawn(self._run(self._scan), name="slack catch-up")

    def on_connection_state(self, *, is_connected: bool) -> None:
        """Detects outages. Call every few seconds. Uses the wall clock, because it advances while a machine sleeps."""
        now = time.time()
        if not is_connected:
            if not self._is_disconnected:
                self._is_disconnected = True
                self._cursors.pause()
            return
        was_away = self._connected_at is not None and now - self._connected_at >= self._outage_seconds
        is_reading = self._scan is not None and not self._scan.done()
        if was_away or (self._is_disconnected and is_reading):
            self.start()
        elif self._is_disconnected:
            self._cursors.resume_with_gaps()
        self._is_disconnected = False
        self._connected_at = now

    async def close(self) -> None:
        """Stops the backfill. Cursors of channels that were not read stay before their gaps."""
        if self._scan is not None:
            await cancel(self._scan)
        await self._cursors.flush()

    async def _run(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await cancel(earlier)
        while True:
            try:
                cursors = await self._unread_channels.add_new_channels(
                    await self._inbox.cursors(PLATFORM), age_seconds_max=MISSED_SECONDS_MAX - OVERLAP_SECONDS
                )
                break
            except StorageUnavailable as error:
                log.warning("slack: catching up waits for the database: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
        gaps = find_gaps(cursors, now=time.time())
        self._cursors.resume_with_gaps([gap.scope for found in gaps.values() for gap in found])
        slots, pause_seconds = asyncio.Semaphore(WORKSPACES_AT_ONCE), RETRY_SECONDS
        while True:
            reads = (self._backfill_workspace_safely(team, gaps[team], slots) for team in gaps)
            failed = zip(gaps, await asyncio.gather(*reads), strict=True)
            gaps = {team: left for team, left in failed if left}
            if not gaps:
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)

    async def _backfill_workspace_safely(
        self, team_id: str, gaps: list[ChannelGap], slots: asyncio.Semaphore
    ) -> list[ChannelGap]:
        """Backfills one workspace. Logs every failure, so that the other workspaces are still read. Returns the gaps
        that could not be read now."""
        summary = _BackfillSummary()
        async with slots:
            try:
                async with asyncio.timeout(SCAN_SECONDS_MAX):
                    await self._backfill_workspace(team_id, gaps, summary)
            except TimeoutError:
                summary.skip("no time is left", "those that are left")
            except (SurfaceError, StorageUnavailable) as error:
                summary.fail(error, *gaps)
            except Exception:  # continue with the other workspaces
                log.exception("slack: catching up in workspace %s failed", team_id)
        summary.log(team_id)
        return summary.failed

    async def _backfill_workspace(self, team_id: str, gaps: list[ChannelGap], summary: _BackfillSummary) -> None:
        workspace = await self._workspaces.find(team_id)
        if workspace is None or workspace.event_handler is None:
            return
        for gap in gaps[CHANNELS_MAX:]:
            summary.skip(f"more than {CHANNELS_MAX}", gap.channel_id)
            self._cursors.close_gap(gap.scope)
        joined = await self._inbox.joined_threads(PLATFORM, team_id, limit=THREADS_MAX)
        history = ChannelHistory.for_client(workspace.client)
        replay = MessageReplay(workspace.client.identity, workspace.event_handler, self._cursors, joined)
        newest = max(gap.cursor for gap in gaps)
        for gap in gaps[:CHANNELS_MAX]:
            try:
                missed = await history.read_since(gap.channel_id, gap.oldest, replay.joined_threads_in(gap.channel_id))
                for event in missed.messages:
                    was_retold = await replay.replay_message(event, cursor=gap.cursor)
                    if get_text(event, "ts") > gap.cursor:
                        summary.heard += 1
                        summary.asked += was_retold
                if missed.is_cut or gap.is_cut:
                    summary.cut.append(gap.channel_id)
                read_until = missed.newest
                # a channel without new messages has missed nothing up to the newest ts of any channel
                self._cursors.close_gap(gap.scope, read_until or newest)
            except SurfaceRefused as error:
                summary.skip(error.code, gap.channel_id)
                self._cursors.close_gap(gap.scope)
            except (SurfaceError, StorageUnavailable) as error:
                summary.fail(error, gap)


def find_gaps(cursors: Mapping[str, str], *, now: float) -> Mapping[str, list[ChannelGap]]:
    """Returns the gaps to read, grouped by workspace, for the stored cursors. `now` is in epoch seconds."""
    gaps: dict[str, list[ChannelGap]] = defaultdict(list)
    for scope, cursor in sorted(cursors.items(), key=lambda item: item[1], reverse=True):
        team_id, _, channel_id = scope.partition(":")
        if team_id and channel_id and is_message_ts(cursor):
            eldest = now - MISSED_SECONDS_MAX
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
    """Passes messages from the history to the event handler if they were for the agent when they were posted.

    Backfill also reads messages that were ignored on arrival, so stricter rules apply. A message in a thread must come
    after the message that brought the agent into the thread. A stop request must come after the last message that the
    agent received in the thread."""

    def __init__(
        self, identity: Identity, event_handler: EventHandler, cursors: ChannelCursors, joined: Sequence[JoinedThread]
    ) -> None:
        self._known = ParseContext(identity=identity)
        self._event_handler = event_handler
        self._cursors = cursors
        self._joined = {(one.channel_id, one.thread_key): one for one in joined}
        self._opened: set[tuple[str, str]] = set()

    def joined_threads_in(self, channel_id: str) -> list[str]:
        return [thread_key for channel, thread_key in self._joined if channel == channel_id]

    async def replay_message(self, event: JsonObject, *, cursor: str) -> bool:
        """Handles a message and returns True, or returns False if it is not for the agent. Raises the same exceptions
        as `on_event`."""
        inbound, ts = parse_safely(partial(parse_event, event, self._known)), get_text(event, "ts")
        match inbound:
            case IncomingMessage(is_addressed=True):
                is_for_us = not await self._cursors.is_marked_ignored(inbound.dedupe_key)
                if is_for_us:
                    self._opened.add(_thread_key(inbound))
            case IncomingMessage():
                joined = self._joined.get(_thread_key(inbound))
                is_heard = _thread_key(inbound) in self._opened or (joined is not None and joined.first_ref < ts)
                is_for_us = ts > cursor and is_heard
            case StopRequested():
                joined = self._joined.get(_thread_key(inbound))
                is_for_us = ts > cursor and (joined is None or joined.last_ref < ts)
            case CommandCalled():
                is_for_us = ts > cursor
            case _:
                is_for_us = False
        if is_for_us:
            await self._event_handler.on_event(event, is_missed=True)
        elif ts > cursor:
            await self._event_handler.pass_to_schedules(event)
        return is_for_us


def _thread_key(inbound: IncomingMessage | StopRequested) -> tuple[str, str]:
    return inbound.address.channel_id, inbound.address.thread_key


def _format_channel_ids(channels: Sequence[str]) -> str:
    return ", ".join(channels[:5]) + (", ..." if len(channels) > 5 else "")


CHANNEL_TYPES = ("im", "mpim", "private_channel", "public_channel")
"""Channel types to list, direct messages first. Slack requires a separate scope for each type."""
NEW_CHANNELS_MAX = 100
"""Limit on new channels added per workspace at each start. Later starts add the rest."""
LISTING_SECONDS_MAX = 120.0
LISTINGS_AT_ONCE = 4
_MISSING_SCOPE = "missing_scope"
_NOT_LISTED_MESSAGE = "slack: channels of workspace %s from which nothing was ever heard are not looked for (%s)"


class NewChannels:
    """Finds channels that the bot is in and that have no cursor yet.

    Every message that the bot receives leaves a cursor. All messages in a channel without one, since the channels were
    last listed, may have been missed. The time of that listing is stored as a cursor of the workspace."""

    def __init__(self, inbox: Inbox, workspaces: Workspaces) -> None:
        self._inbox = inbox
        self._workspaces = workspaces

    async def add_new_channels(self, cursors: Mapping[str, str], *, age_seconds_max: float) -> Mapping[str, str]:
        """Adds a cursor, at most `age_seconds_max` old, for each new channel. Raises StorageUnavailable."""
        newest = newest_cursor_by_workspace(cursors)
        eldest = _format_ts(time.time() - age_seconds_max)
        found: dict[str, str] = {}
        slots = asyncio.Semaphore(LISTINGS_AT_ONCE)

        async def look(team_id: str) -> None:
            since = last_listed_ts(team_id, cursors)
            await self._inbox.advance_cursors(PLATFORM, {f"{team_id}:": since or _format_ts(time.time())})
            if not since:
                return  # ignore messages from before the first start
            async with slots:
                is_whole = await self._look(team_id, max(since, eldest), cursors, found)
            if is_whole and team_id in newest:
                await self._inbox.advance_cursors(PLATFORM, {f"{team_id}:": newest[team_id]})

        await asyncio.gather(*map(look, {*newest, *self._workspaces.active_ids}))
        return {**cursors, **found}

    async def _look(self, team_id: str, cursor: str, cursors: Mapping[str, str], found: dict[str, str]) -> bool:
        """Adds cursors for a workspace's new channels. Returns whether all its channels now have one. Logs failures."""
        try:
            workspace = await self._workspaces.find(team_id)
            # an organisation's token also lists channels of other workspaces
            if workspace is None or workspace.event_handler is None or workspace.uses_organisation_token:
                return True
            async with asyncio.timeout(LISTING_SECONDS_MAX):
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
                            log.info(_NOT_LISTED_MESSAGE, team_id, f"more than {NEW_CHANNELS_MAX}; at the next start")
                            return False
                        await self._inbox.advance_cursors(PLATFORM, {scope: cursor})
                        found[scope] = cursor
                        left -= 1
                return True
        except (SurfaceError, StorageUnavailable, TimeoutError) as error:
            log.info(_NOT_LISTED_MESSAGE, team_id, str(error) or "no time is left")
        except Exception:  # continue with the other workspaces
            log.exception("slack: listing the channels of workspace %s failed", team_id)
        return False


def newest_cursor_by_workspace(cursors: Mapping[str, str]) -> dict[str, str]:
    """Returns the newest channel cursor of each workspace."""
    newest: dict[str, str] = {}
    for scope, cursor in cursors.items():
        team_id, _, channel_id = scope.partition(":")
        if team_id and channel_id and is_message_ts(cursor):
            newest[team_id] = max(newest.get(team_id, ""), cursor)
    return newest


def last_listed_ts(team_id: str, cursors: Mapping[str, str]) -> str:
    """Returns the ts after which channels without a cursor may have unread messages, or "" for a new workspace.

    Returns the newest channel cursor if it is older, because it is in Slack's time. A fast local clock must not hide
    messages."""
    context = (cursors.get(f"{team_id}:", ""), newest_cursor_by_workspace(cursors).get(team_id, ""))
    return min(filter(is_message_ts, context), default="")


def _format_ts(seconds: float) -> str:
    return f"{seconds:017.6f}"
