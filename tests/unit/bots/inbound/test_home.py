"""The page that is a person's own."""

from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.home import Greetings
from core.domain.actions import ActorContext
from core.domain.budget import NO_BUDGET, Spending
from core.domain.threads import Address, Person

ALICE = Person(person_id="U1", name="alice")
HERE = Address(platform="slack", workspace_id="T1", channel_id="D1", thread_key="")


async def nothing(*_arguments: object, **_named: object) -> tuple[()]:
    return ()


async def unspent(*_arguments: object, **_named: object) -> Spending:
    return Spending()


def greetings(tools: set[str], *, has_sandbox: bool) -> Greetings:
    agent = SimpleNamespace(
        agent_id="threadhand", description="Helps.", tools=SimpleNamespace(has=lambda name: name in tools)
    )

    async def agents() -> dict[str, Any]:
        return {"threadhand": agent}

    commands = SimpleNamespace(
        roster=SimpleNamespace(agents=agents, agent_in=lambda _channel_id: "threadhand"),
        conversations=SimpleNamespace(runs_of_person=nothing),
        schedules=SimpleNamespace(store=SimpleNamespace(list_schedules=nothing)),
        sandboxes=object() if has_sandbox else None,
        budget=SimpleNamespace(ledger=SimpleNamespace(spending_by=unspent), budget=NO_BUDGET),
    )
    policy = AccessPolicy(admins=("U2",))
    return Greetings(claim=nothing, commands=commands, policy=policy, startup_findings=["No key."])


@pytest.mark.parametrize(
    ("tools", "has_sandbox", "abilities"),
    [
        ({"web_search", "create_file"}, True, "write files, search the web"),
        ({"web_search", "create_file"}, False, "search the web"),
        (set(), True, ""),
    ],
)
async def test_the_page_names_what_the_agent_may_and_can_do(tools: set[str], has_sandbox: bool, abilities: str) -> None:
    page = await greetings(tools, has_sandbox=has_sandbox).read_page(ALICE, HERE, ActorContext())
    assert (page.abilities, page.agent) == (abilities, "`threadhand`: Helps.")


@pytest.mark.parametrize(("person_id", "findings"), [("U1", ()), ("U2", ("No key.",))])
async def test_only_admins_read_what_the_start_has_found(person_id: str, findings: tuple[str, ...]) -> None:
    person = Person(person_id=person_id, name="x")
    page = await greetings(set(), has_sandbox=False).read_page(person, HERE, ActorContext())
    assert (page.is_admin, page.findings) == (person_id == "U2", findings)
