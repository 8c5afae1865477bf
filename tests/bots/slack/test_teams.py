"""Many workspaces in one process: what is looked up for one does not hold up another, and nothing piles up."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from bots.slack.client import Identity, SlackClient
from bots.slack.file_names import FileNames
from bots.slack.teams import Team, Teams
from bots.slack.tokens import Access

WAIT_SECONDS = 5.0


def access_of(team_id: str) -> Access:
    return Access(
        token=f"xoxb-{team_id}",
        identity=Identity(team_id=team_id, user_id="U0", bot_id="B0"),
        installed_by=team_id,
    )


@dataclass
class Shelf:
    """Tokens by workspace; those of `slow` come once `released` is set."""

    known: dict[str, Access]
    slow: set[str] = field(default_factory=set[str])
    released: asyncio.Event = field(default_factory=asyncio.Event)
    asked: Counter[str] = field(default_factory=Counter[str])

    async def access(self, team_id: str) -> Access | None:
        self.asked[team_id] += 1
        if team_id in self.slow:
            await self.released.wait()
        return self.known.get(team_id)

    @property
    def file_names(self) -> FileNames:
        return FileNames(["secret"])

    async def talks_in(self, team_id: str, channel_id: str) -> bool:
        return False

    async def join(self, team_id: str, organisation_id: str) -> bool:
        return False


def teams_with(shelf: Shelf, **settings: float) -> Teams:
    return Teams(
        tokens=shelf,
        new_client=lambda token: SlackClient(bot_token=token, api_url="http://127.0.0.1:9/api/"),
        new_doorway=lambda client: None,
        **settings,
    )


def is_open(team: Team) -> bool:
    session = team.client.web.session
    return session is not None and not session.closed


async def found(teams: Teams, team_id: str) -> Team:
    async with asyncio.timeout(WAIT_SECONDS):
        team = await teams.find(team_id)
    assert team is not None
    return team


async def test_a_token_that_takes_long_holds_up_its_own_workspace_alone() -> None:
    shelf = Shelf({one: access_of(one) for one in ("T1", "T2")}, slow={"T1"})
    teams = teams_with(shelf)
    waiting = [asyncio.ensure_future(teams.find("T1")) for _ in range(20)]
    await found(teams, "T2")
    assert not any(one.done() for one in waiting)
    shelf.released.set()
    first = await asyncio.gather(*waiting)
    assert len({id(team) for team in first}) == 1
    assert shelf.asked == {"T1": 1, "T2": 1}, "who waits takes what the first has found"
    await teams.close()


async def test_a_workspace_that_another_process_let_go_is_closed() -> None:
    shelf = Shelf({"T1": access_of("T1")})
    teams = teams_with(shelf)
    team = await found(teams, "T1")
    team.looked_at = float("-inf")
    shelf.known.clear()
    assert await teams.find("T1") is None
    assert not is_open(team)
    await teams.close()


async def test_a_workspace_that_installed_the_bot_anew_has_its_new_identity() -> None:
    shelf = Shelf({"T1": access_of("T1")})
    teams = teams_with(shelf)
    team = await found(teams, "T1")
    team.looked_at = float("-inf")
    old = shelf.known["T1"]
    shelf.known["T1"] = replace(old, token="xoxb-2", identity=replace(old.identity, user_id="U9"))
    again = await found(teams, "T1")
    assert (again.client.identity.user_id, again.client.bot_token) == ("U9", "xoxb-2")
    assert not is_open(team)
    await teams.close()


async def test_a_workspace_that_is_silent_for_long_is_let_go() -> None:
    shelf = Shelf({f"T{number}": access_of(f"T{number}") for number in range(4)})
    teams = teams_with(shelf, idle_seconds=100.0)
    silent = await found(teams, "T0")
    busy = await found(teams, "T1")
    assert silent.looked_at is not None
    silent.looked_at -= 101
    await found(teams, "T2")
    assert (is_open(silent), is_open(busy)) == (False, True)
    assert is_open(await found(teams, "T0")), "it comes back when it speaks"
    await teams.close()
