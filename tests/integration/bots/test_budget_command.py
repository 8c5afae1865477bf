"""The command `budget`: everybody reads the limits, admins change them, and the next turn obeys."""

from dataclasses import replace

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled
from bots.inbound.commands.budget import BudgetDeps
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.table import answer_command
from core.domain.budget import Budget, Limit
from core.domain.threads import Person
from storage.sql.stores.usage import SqlLedger
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ALICE, HERE, World, command_deps
from tests.integration.core.conftest import world as world

BUDGET = Budget(run=Limit(tokens=30), has_admins=True)


@pytest.fixture
def deps(world: World) -> CommandDeps:
    world.address = HERE
    world.with_deps(budget=BUDGET)
    policy = AccessPolicy(workspaces=("*",), admins=("U1",))
    budget = BudgetDeps(ledger=SqlLedger(world.database), budget=BUDGET)
    known = command_deps(world)
    return replace(known, budget=budget, admin=replace(known.admin, policy=policy))


async def told(deps: CommandDeps, argument: str, by: Person = ALICE) -> str:
    called = CommandCalled(address=HERE, dedupe_key=argument, name="budget", argument=argument, person=by)
    return (await answer_command(called, deps)).notice


async def test_a_run_at_its_limit_goes_on_after_an_admin_has_raised_it(world: World, deps: CommandDeps) -> None:
    world.model.turns = [calls(("echo", f'{{"text": "{number}"}}')) for number in range(3)]
    run_id = await world.run("go")
    last = await world.read_end(run_id)
    assert "`budget run 60 tokens`" in last.message
    assert len(world.model.requests) == 2

    assert await told(deps, "run 60 tokens") == "The limit for a run is now 60 tokens."
    world.model.turns = [*[calls(("echo", f'{{"text": "{number}"}}')) for number in range(2)], text("done")]
    last = await world.read_end(await world.run("go on"))
    assert last.finish_reason == "stop"


async def test_a_limit_is_switched_off_and_restored(deps: CommandDeps) -> None:
    assert await told(deps, "person 7.50") == "The limit for a person and day is now 7.50 US dollars."
    assert "a person and day: 7.50 US dollars (you have used 0.00" in await told(deps, "")
    assert await told(deps, "run none") == "The limit for a run is now no limit."
    assert await told(deps, "run default") == "The limit for a run is now 30 tokens."


@pytest.mark.parametrize(
    "argument", ["run", "run much", "run -5", "run nan", "run inf", "run 5 eggs", "world 5", "run 1e999"]
)
async def test_a_limit_that_is_none_changes_nothing(deps: CommandDeps, argument: str) -> None:
    assert "`budget run|person|app|channel|workspace LIMIT`" in await told(deps, argument)
    assert "a run: 30 tokens" in await told(deps, "")
