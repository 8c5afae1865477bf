"""People's names by their ids: asked for once, remembered for a while, and never worth a delay."""

import asyncio
import logging
import time
from collections.abc import Iterable

from bots.slack.client import SlackClient
from bots.slack.payload import child, text
from core.errors import SurfaceError
from core.messages import JsonObject
from core.tasks import spawn

LOOKUP_SECONDS_MAX = 0.8
REMEMBERED_SECONDS = 3600
FAILURE_REMEMBERED_SECONDS = 60
LOOKUPS_MAX = 10
_REMEMBERED_MAX = 5000

log = logging.getLogger(__name__)


class People:
    """Names by users.info. Who cannot be looked up in time goes by the id; the lookup goes on for the next time."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._names: dict[str, tuple[str, float]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def names(self, ids: Iterable[str]) -> dict[str, str]:
        """The names of those who are known after at most LOOKUP_SECONDS_MAX."""
        wanted = set(ids)
        missing = [person for person in sorted(wanted) if self._is_missing(person)]
        lookups = [self._lookup(person) for person in missing[:LOOKUPS_MAX]]
        if lookups:
            await asyncio.wait(lookups, timeout=LOOKUP_SECONDS_MAX)
        return {person: self._names[person][0] for person in wanted if person in self._names}

    def _is_missing(self, person: str) -> bool:
        return person not in self._names or self._names[person][1] < time.monotonic()

    def _lookup(self, person: str) -> asyncio.Task[None]:
        if person not in self._asking:
            self._asking[person] = spawn(self._ask(person), name="slack-users-info")
        return self._asking[person]

    async def _ask(self, person: str) -> None:
        try:
            user = child(await self._client.read("users.info", {"user": person}), "user")
            name = _shown_name(user) or person
            seconds = REMEMBERED_SECONDS
        except SurfaceError as error:
            log.info("slack does not tell the name of a person: %s", error)
            name, seconds = person, FAILURE_REMEMBERED_SECONDS
        finally:
            del self._asking[person]
        if len(self._names) >= _REMEMBERED_MAX:
            del self._names[next(iter(self._names))]
        self._names[person] = (name, time.monotonic() + seconds)

    async def close(self) -> None:
        """Ends the lookups under way."""
        for task in list(self._asking.values()):
            task.cancel()
        if self._asking:
            await asyncio.wait(list(self._asking.values()))


def _shown_name(user: JsonObject) -> str:
    return (
        text(user, "profile", "display_name")
        or text(user, "profile", "real_name")
        or text(user, "real_name")
        or text(user, "name")
    ).strip()
