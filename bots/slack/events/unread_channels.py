"""Channels that the bot is in and has heard nothing from as yet: they get a mark, so that their gaps are read, too."""

import asyncio
import logging
import time
from collections.abc import Mapping

from bots.slack.events.cursors import PLATFORM, Past, is_mark
from bots.slack.events.history import History
from bots.slack.workspaces import Team, Teams
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused

KINDS = ("im", "mpim", "private_channel", "public_channel")
"""What is said to the agent alone goes first. Slack lists each kind by a scope of its own."""
MARKED_MAX = 100
"""Channels of a workspace at one start; the next start takes the next ones."""
LISTING_SECONDS_MAX = 120.0
TEAMS_AT_ONCE = 4
_NOT_GRANTED = "missing_scope"
_NOT_LISTED = (
    "slack: channels of workspace %s from which nothing was ever heard are not looked for (%s)"
)

log = logging.getLogger(__name__)


class Unheard:
    """Whatever is said in a channel while the bot listens leaves a mark. So in one without a mark all is missed that
    came since they were last looked for; a workspace keeps that moment as its own mark."""

    def __init__(self, past: Past, teams: Teams) -> None:
        self._past = past
        self._teams = teams

    async def marked(
        self, cursors: Mapping[str, str], *, age_seconds_max: float
    ) -> Mapping[str, str]:
        """The marks of all channels, these among them, none older than that. Raises StorageUnavailable."""
        newest = newest_of(cursors)
        eldest = _moment(time.time() - age_seconds_max)
        found: dict[str, str] = {}
        seats = asyncio.Semaphore(TEAMS_AT_ONCE)

        async def look(team_id: str) -> None:
            since = since_of(team_id, cursors)
            await self._past.forward(PLATFORM, f"{team_id}:", since or _moment(time.time()))
            if not since:
                return  # what was said before the first start is nobody's
            async with seats:
                is_whole = await self._look(team_id, max(since, eldest), cursors, found)
            if is_whole and team_id in newest:
                await self._past.forward(PLATFORM, f"{team_id}:", newest[team_id])

        await asyncio.gather(*map(look, {*newest, *self._teams.at_hand}))
        return {**cursors, **found}

    async def _look(
        self, team_id: str, mark: str, cursors: Mapping[str, str], found: dict[str, str]
    ) -> bool:
        """Whether all of them have a mark now. One workspace that cannot be listed keeps no other from being read."""
        try:
            team = await self._teams.find(team_id)
            # an organisation's token lists channels that several of its workspaces share
            if team is None or team.doorway is None or team.is_organisations:
                return True
            async with asyncio.timeout(LISTING_SECONDS_MAX):
                return await self._mark(team_id, team, mark, cursors, found)
        except (SurfaceError, StorageUnavailable, TimeoutError) as error:
            log.info(_NOT_LISTED, team_id, str(error) or "no time is left")
        except Exception:
            log.exception("slack: listing the channels of workspace %s failed", team_id)
        return False

    async def _mark(
        self,
        team_id: str,
        team: Team,
        mark: str,
        cursors: Mapping[str, str],
        found: dict[str, str],
    ) -> bool:
        history = History.of(team.client)
        left = MARKED_MAX
        for kind in KINDS:
            try:
                channels = await history.channels(kind)
            except SurfaceRefused as error:
                if error.code != _NOT_GRANTED:
                    raise
                log.info(_NOT_LISTED, team_id, f"{_NOT_GRANTED} for the kind {kind}")
                continue
            scopes = [f"{team_id}:{channel_id}" for channel_id in channels]
            for scope in [one for one in scopes if one not in cursors]:
                if not left:
                    log.info(_NOT_LISTED, team_id, f"more than {MARKED_MAX}; at the next start")
                    return False
                await self._past.forward(PLATFORM, scope, mark)
                found[scope] = mark
                left -= 1
        return True


def newest_of(cursors: Mapping[str, str]) -> dict[str, str]:
    """By workspace, the newest mark of its channels."""
    newest: dict[str, str] = {}
    for scope, mark in cursors.items():
        team_id, _, channel_id = scope.partition(":")
        if team_id and channel_id and is_mark(mark):
            newest[team_id] = max(newest.get(team_id, ""), mark)
    return newest


def since_of(team_id: str, cursors: Mapping[str, str]) -> str:
    """Since when channels without a mark may hold something unheard; empty for a workspace that is new. Marks of
    channels are Slack's own times: a clock of ours that was ahead takes nothing away."""
    known = (cursors.get(f"{team_id}:", ""), newest_of(cursors).get(team_id, ""))
    return min(filter(is_mark, known), default="")


def _moment(seconds: float) -> str:
    return f"{seconds:017.6f}"
