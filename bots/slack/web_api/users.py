"""Looks up users' names, user groups, and facts such as whether they are guests, with short timeouts and a cache."""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bots.slack.events.payload_fields import get_object, get_strings, get_text
from bots.slack.web_api.client import SlackClient, lookup_seconds_left
from core.domain.actions import ActorContext
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.outside_text import single_line
from core.tasks import spawn

log = logging.getLogger(__name__)

LOOKUP_SECONDS_MAX = 0.8
REMEMBERED_SECONDS = 3600
"""How long a name is remembered, and how old a user's facts or memberships may be if Slack does not answer now."""
STANDING_REMEMBERED_SECONDS = 180
FAILURE_REMEMBERED_SECONDS = 60
STANDING_SECONDS_MAX = 1.0
LOOKUPS_MAX = 10
_CACHED_PEOPLE_MAX = 5000
NO_SUCH_USER = "user_not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedPerson:
    """A cached lookup of a person. `time_zone` is empty if it is unknown, and `standing` is None if the lookup failed.
    Times are monotonic."""

    name: str
    time_zone: str
    standing: ActorContext | None
    asked_at: float
    expires_at: float


class UserLookup:
    """Looks up users' names and facts with users.info.

    A lookup that exceeds its timeout continues in the background, so that the next call can use its result."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._known: dict[str, _CachedPerson] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def find_names(self, ids: Iterable[str]) -> dict[str, str]:
        """Returns users' names by id. Leaves out names that are not found within LOOKUP_SECONDS_MAX."""
        wanted, now = set(ids), time.monotonic()
        missing = [one for one in sorted(wanted) if one not in self._known or self._known[one].expires_at < now]
        lookups = [self._lookup(person) for person in missing[:LOOKUPS_MAX]]
        if lookups:
            await asyncio.wait(lookups, timeout=lookup_seconds_left(LOOKUP_SECONDS_MAX))
        return {person: self._known[person].name for person in wanted if person in self._known}

    def known_time_zones(self, ids: Iterable[str]) -> dict[str, str]:
        """Returns the time zones, by id, of those users who have been looked up."""
        return {person: self._known[person].time_zone for person in ids if person in self._known}

    async def fetch_actor_context(self, person: str) -> ActorContext:
        """Returns facts about the person that are at most a few minutes old. If Slack does not answer, returns older
        facts, or an ActorContext that is not known."""
        if self._asked_at(person) < time.monotonic() - STANDING_REMEMBERED_SECONDS:
            await asyncio.wait([self._lookup(person)], timeout=lookup_seconds_left(STANDING_SECONDS_MAX))
        is_recent = self._asked_at(person) > time.monotonic() - REMEMBERED_SECONDS
        standing = self._known[person].standing if is_recent else None
        return standing or ActorContext(is_known=False)

    def _asked_at(self, person: str) -> float:
        known = self._known.get(person)
        return known.asked_at if known and known.standing else -math.inf

    def _lookup(self, person: str) -> asyncio.Task[None]:
        if person not in self._asking:
            self._asking[person] = spawn(self._ask(person), name="slack-users-info")
        return self._asking[person]

    async def _ask(self, person: str) -> None:
        asked_at, before = time.monotonic(), self._known.get(person)
        try:
            user = get_object(await self._client.read("users.info", {"user": person}), "user")
            name = (
                get_text(user, "profile", "display_name")
                or get_text(user, "profile", "real_name")
                or get_text(user, "real_name")
                or get_text(user, "name")
            )
            found = _CachedPerson(
                name=single_line(name.strip()) or person,
                time_zone=get_text(user, "tz"),
                standing=parse_actor_context(user, self._client.identity.team_id),
                asked_at=asked_at,
                expires_at=time.monotonic() + REMEMBERED_SECONDS,
            )
        except SurfaceError as error:
            log.info("slack: a person cannot be looked up: %s", error)
            standing = None
            if isinstance(error, SurfaceRefused):  # what was known before no longer counts
                is_gone, before = error.code == NO_SUCH_USER, None
                standing = ActorContext(is_known=is_gone, has_left=is_gone, is_withheld=not is_gone)
            unknown = _CachedPerson(name=person, time_zone="", standing=standing, asked_at=asked_at, expires_at=0)
            found = replace(before or unknown, expires_at=time.monotonic() + FAILURE_REMEMBERED_SECONDS)
        finally:
            del self._asking[person]
        if len(self._known) >= _CACHED_PEOPLE_MAX:
            del self._known[next(iter(self._known))]
        self._known[person] = found

    async def close(self) -> None:
        """Cancels lookups in progress."""
        for task in list(self._asking.values()):
            task.cancel()
        if self._asking:
            await asyncio.wait(list(self._asking.values()))


def parse_actor_context(user: JsonObject, team_id: str) -> ActorContext:
    """Parses the facts in a `user` object. In an organisation, a user belongs to every workspace that is listed for
    them.

    Slack always names the home workspace. If a simulator does not, `is_stranger` decides. The user of an app counts as
    an app."""
    if user.get("is_bot") is True:
        ids = (get_text(user, "id"), get_text(user, "profile", "api_app_id"), get_text(user, "profile", "bot_id"))
        return ActorContext(app_ids=frozenset(filter(None, ids)))
    if user.get("deleted") is True:
        return ActorContext(has_left=True)
    home = get_text(user, "team_id")
    teams = get_strings(user, "enterprise_user", "teams")
    is_guest = user.get("is_restricted") is True or user.get("is_ultra_restricted") is True
    is_here = home == team_id or team_id in teams
    is_stranger = user.get("is_stranger") is True
    if not home:
        return ActorContext(is_known=bool(get_text(user, "id")) and not is_stranger, is_guest=is_guest)
    is_stranger = is_stranger or not is_here
    return ActorContext(is_guest=is_guest, home_id=home if is_stranger else "")


class UserGroups:
    """Looks up members of user groups with usergroups.users.list. A group whose members Slack refuses to list, such as
    one of another workspace, counts as empty."""

    def __init__(self, client: SlackClient, group_ids: Sequence[str]) -> None:
        self._client = client
        self._group_ids = [one for one in group_ids if one.startswith("S")]
        self._members: dict[str, tuple[frozenset[str], float]] = {}
        self._asking = asyncio.Lock()

    async def find_groups(self, person: str, *, is_click: bool) -> frozenset[str] | None:
        """Returns the person's groups, from data that is at most a few minutes old. If Slack does not answer, uses
        older data, or returns None if there is none.

        For a click, fetches the person's groups again, because the person may have left a group since their message."""
        try:
            async with asyncio.timeout(lookup_seconds_left(STANDING_SECONDS_MAX)), self._asking:
                old = self._older_than(STANDING_REMEMBERED_SECONDS)
                for group_id in {*old, *(one for one in self._group_ids if is_click and self._is_in(person, one))}:
                    await self._ask(group_id)
        except (SurfaceError, TimeoutError) as error:
            log.warning("slack: the members of a user group cannot be read: %s", error)
            if self._older_than(REMEMBERED_SECONDS):
                return None
        return frozenset(one for one in self._group_ids if self._is_in(person, one))

    def _is_in(self, person: str, group_id: str) -> bool:
        return group_id in self._members and person in self._members[group_id][0]

    def _older_than(self, seconds: float) -> list[str]:
        oldest = time.monotonic() - seconds
        return [one for one in self._group_ids if one not in self._members or self._members[one][1] < oldest]

    async def _ask(self, group_id: str) -> None:
        asked_at = time.monotonic()
        # a call with an organisation's token requires team_id; Slack ignores it with other tokens
        asked = {"usergroup": group_id, "team_id": self._client.identity.team_id}
        try:
            answer = await self._client.read("usergroups.users.list", asked)
        except SurfaceRefused as error:
            log.warning("slack: the members of the user group %s are not listed: %s", group_id, error)
            answer = {}
        self._members[group_id] = frozenset(get_strings(answer, "users")), asked_at
