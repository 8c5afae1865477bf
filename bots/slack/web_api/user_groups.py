"""Who is in the user groups that the operator has let in."""

import asyncio
import logging
import time
from collections.abc import Sequence

from bots.slack.events.payload import strings
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceError, SurfaceRefused

NO_SUCH_GROUP = "no_such_subteam"

log = logging.getLogger(__name__)


class Groups:
    """The members of some user groups, by usergroups.users.list. A group of another workspace has nobody here."""

    def __init__(self, client: SlackClient, group_ids: Sequence[str]) -> None:
        self._client = client
        self._group_ids = [one for one in group_ids if one.startswith("S")]
        self._members: dict[str, tuple[frozenset[str], float]] = {}

    async def of(
        self, person: str, *, age_seconds_max: float, patience_seconds: float
    ) -> frozenset[str] | None:
        """The groups that the person is in, as Slack told not longer ago than that; None: it did not tell."""
        oldest = time.monotonic() - age_seconds_max
        old = [
            one for one in self._group_ids if one not in self._members or self._asked(one) < oldest
        ]
        try:
            async with asyncio.timeout(patience_seconds):
                for group_id in old:
                    await self._ask(group_id)
        except (SurfaceError, TimeoutError) as error:
            log.warning("slack does not tell who is in a user group: %s", error)
            return None
        return frozenset(one for one in self._group_ids if person in self._members[one][0])

    def _asked(self, group_id: str) -> float:
        return self._members[group_id][1]

    async def _ask(self, group_id: str) -> None:
        asked_at = time.monotonic()
        # which of its workspaces is meant, an organisation's token does not say; others ignore it
        asked = {"usergroup": group_id, "team_id": self._client.identity.team_id}
        try:
            answer = await self._client.read("usergroups.users.list", asked)
        except SurfaceRefused as error:
            if error.code != NO_SUCH_GROUP:
                raise
            answer = {}
        self._members[group_id] = frozenset(strings(answer, "users")), asked_at
