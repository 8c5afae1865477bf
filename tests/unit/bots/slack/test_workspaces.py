"""Many workspaces in one process: what is looked up for one does not hold up another, and nothing piles up."""

import asyncio
from dataclasses import replace
from typing import cast

from bots.slack.events.handler import EventHandler
from bots.slack.workspaces import Workspace, Workspaces
from tests.support.memory_tokens import MemoryTokens, access_of, teams_with

WAIT_SECONDS = 30.0


def is_open(team: Workspace) -> bool:
    session = team.client.web.session
    return session is not None and not session.closed


async def found(teams: Workspaces, team_id: str) -> Workspace:
    async with asyncio.timeout(WAIT_SECONDS):
        team = await teams.find(team_id)
    assert team is not None
    return team


async def test_a_token_that_takes_long_holds_up_its_own_workspace_alone() -> None:
    tokens = MemoryTokens({one: access_of(one) for one in ("T1", "T2")}, slow={"T1"})
    teams = teams_with(tokens)
    waiting = [asyncio.ensure_future(teams.find("T1")) for _ in range(20)]
    await found(teams, "T2")
    assert not any(one.done() for one in waiting)
    tokens.released.set()
    first = await asyncio.gather(*waiting)
    assert len({id(team) for team in first}) == 1
    assert tokens.asked == {"T1": 1, "T2": 1}, "who waits takes what the first has found"
    await teams.close()


async def test_a_token_that_no_key_opens_leaves_out_its_own_workspace_alone() -> None:
    tokens = MemoryTokens({"T1": access_of("T1")}, unreadable={"T2"})
    teams = teams_with(tokens)
    sharing = await teams.find_sharing_channel("C1", frozenset({"T2", "T1"}))
    assert [one.client.identity.team_id for one in sharing] == ["T1"]
    await teams.close()


async def test_a_workspace_that_another_process_let_go_is_closed() -> None:
    tokens = MemoryTokens({"T1": access_of("T1")})
    teams = teams_with(tokens)
    team = await found(teams, "T1")
    team.token_read_at = float("-inf")
    tokens.known.clear()
    assert await teams.find("T1") is None
    assert not is_open(team)
    await teams.close()


async def test_a_workspace_that_installed_the_bot_anew_has_its_new_identity() -> None:
    tokens = MemoryTokens({"T1": access_of("T1")})
    teams = teams_with(tokens)
    team = await found(teams, "T1")
    team.token_read_at = float("-inf")
    old = tokens.known["T1"]
    tokens.known["T1"] = replace(old, token="xoxb-2", identity=replace(old.identity, user_id="U9"))
    again = await found(teams, "T1")
    assert (again.client.identity.user_id, again.client.bot_token) == ("U9", "xoxb-2")
    assert not is_open(team)
    await teams.close()


async def test_a_workspace_that_is_silent_for_long_is_let_go() -> None:
    tokens = MemoryTokens({f"T{number}": access_of(f"T{number}") for number in range(4)})
    teams = teams_with(tokens, idle_seconds=100.0)
    silent = await found(teams, "T0")
    busy = await found(teams, "T1")
    assert silent.token_read_at is not None
    silent.token_read_at -= 101
    await found(teams, "T2")
    assert (is_open(silent), is_open(busy)) == (False, True)
    assert is_open(await found(teams, "T0")), "it comes back when it speaks"
    await teams.close()


class Lingering:
    """A doorway that takes its time to close."""

    def __init__(self) -> None:
        self.is_closing = asyncio.Event()
        self.may_close = asyncio.Event()

    async def close(self) -> None:
        self.is_closing.set()
        await self.may_close.wait()


async def test_a_workspace_that_speaks_while_others_are_let_go_is_kept() -> None:
    tokens = MemoryTokens({f"T{number}": access_of(f"T{number}") for number in range(3)})
    teams = teams_with(tokens, idle_seconds=100.0)
    silent = [await found(teams, one) for one in ("T0", "T1")]
    for team in silent:
        assert team.token_read_at is not None
        team.token_read_at -= 101
    lingering = Lingering()
    silent[0].event_handler = cast(EventHandler, lingering)
    newcomer = asyncio.ensure_future(teams.find("T2"))
    async with asyncio.timeout(WAIT_SECONDS):
        await lingering.is_closing.wait()
    speaking = await found(teams, "T1")
    lingering.may_close.set()
    assert await newcomer is not None
    assert is_open(speaking)
    assert await found(teams, "T1") is speaking
    await teams.close()
