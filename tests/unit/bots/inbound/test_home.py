"""The page that is a person's own."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.home import GreetingsAndHome, HomePage
from core.domain.actions import ActorContext
from core.domain.budget import NO_BUDGET, Spending
from core.domain.threads import Address, FollowMode, Person

ALICE = Person(person_id="U1", name="alice")
HERE = Address(platform="slack", workspace_id="T1", channel_id="D1", thread_key="")
EVERY_TOOL = {
    *("execute_command", "create_file", "browser_navigate_to", "web_search", "scrape_webpage", "see_image"),
    *("image_edit_or_generate", "deploy"),
}


async def nothing(*_arguments: object, **_named: object) -> tuple[()]:
    return ()


async def unspent(*_arguments: object, **_named: object) -> Spending:
    return Spending()


def greetings(
    tools: set[str], *, has_sandbox: bool, chosen: str = "", modes: Mapping[str, FollowMode] = MappingProxyType({})
) -> GreetingsAndHome:
    agent = SimpleNamespace(
        agent_id="threadhand", description="Helps.", tools=SimpleNamespace(has=lambda name: name in tools)
    )

    async def agents() -> dict[str, Any]:
        return {"threadhand": agent}

    async def of_channel(_address: Address) -> Any:
        return chosen or None

    commands = SimpleNamespace(
        follow_modes=SimpleNamespace(find_channel_mode=of_channel),
        roster=SimpleNamespace(current_definitions=agents, agent_in=lambda _channel_id: "threadhand"),
        conversations=SimpleNamespace(runs_of_person=nothing),
        schedules=SimpleNamespace(store=SimpleNamespace(list_schedules=nothing)),
        sandboxes=object() if has_sandbox else None,
        budget=SimpleNamespace(ledger=SimpleNamespace(spending_by=unspent), budget=NO_BUDGET),
    )
    policy = AccessPolicy(admins=("U2",))
    findings = ["No key."]
    return GreetingsAndHome(
        claim=nothing, commands=commands, policy=policy, startup_findings=findings, default_modes=modes
    )


@pytest.mark.parametrize(
    ("tools", "has_sandbox", "abilities"),
    [
        (EVERY_TOOL, True,
         "run programs in a sandbox, write files, use a browser, search the web, read web pages, look at pictures, "
         "draw pictures, publish sites, after a question"),
        (EVERY_TOOL, False, "search the web, read web pages, look at pictures, draw pictures"),
        ({"create_file"}, True, "write files"),
        (set(), True, ""),
    ],
)  # fmt: skip
async def test_the_page_names_what_the_agent_may_and_can_do(tools: set[str], has_sandbox: bool, abilities: str) -> None:
    page = await greetings(tools, has_sandbox=has_sandbox).read_home_page(ALICE, HERE, ActorContext())
    assert (page.abilities, page.agent) == (abilities, "`threadhand`: Helps.")


@pytest.mark.parametrize(("person_id", "findings"), [("U1", ()), ("U2", ("No key.",))])
async def test_only_admins_read_what_the_start_has_found(person_id: str, findings: tuple[str, ...]) -> None:
    person = Person(person_id=person_id, name="x")
    page = await greetings(set(), has_sandbox=False).read_home_page(person, HERE, ActorContext())
    assert (page.is_admin, page.findings) == (person_id == "U2", findings)


@pytest.mark.parametrize(
    ("chosen", "modes", "words"),
    [
        ("quiet", {"D1": "mention"}, "I stay quiet here"),
        ("", {"D1": "mention", "": "quiet"}, "I answer here only"),
        ("", {"": "default"}, "In a thread in which only you"),
        ("", {"": "follow"}, "In a thread that you call me into"),
    ],
)
async def test_a_greeting_says_when_the_agent_answers(chosen: str, modes: dict[str, FollowMode], words: str) -> None:
    greeter = greetings(set(), has_sandbox=False, chosen=chosen, modes=modes)
    assert f" {words}" in await greeter.format_join_greeting(HERE, "@bot")


@pytest.mark.parametrize(
    ("statuses", "is_active"), [((), False), (("completed",), False), (("failed", "queued"), True)]
)
def test_a_page_is_active_while_a_run_goes_on(statuses: tuple[str, ...], *, is_active: bool) -> None:
    runs: Any = [(SimpleNamespace(status=status), None, "") for status in statuses]
    page = HomePage(runs=runs, schedules=(), limits="", agent="", abilities="", is_admin=False)
    assert page.is_active is is_active
