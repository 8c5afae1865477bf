"""In which dialect an agent writes its calls, and how long its run may wait for a share of the budget."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from core.dialects.native import NativeDialect
from core.domain.budget import Budget, Limit, Reservation, Spending, Spent
from core.domain.errors import BudgetExceeded
from core.run.agent_config import BUDGET_RETRY_SECONDS, RunBudget, select_dialect_of_agent
from tests.histories.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    ("dialect", "model", "setting", "chosen"),
    [
        ("", "", "auto", "native"),
        ("", "default", "auto", "native"),
        ("", "openai/o1-mini", "auto", "xml"),
        ("", "openai/o1-mini", "native", "native"),
        ("react", "", "auto", "react"),
        ("react", "openai/o1-mini", "native", "react"),
        ("auto", "openai/o1-mini", "native", "xml"),
        ("auto", "openai/gpt-5", "native", "native"),
    ],
)
def test_an_agents_own_dialect_goes_before_the_setting_and_that_before_its_model(
    dialect: str, model: str, setting: str, chosen: str
) -> None:
    agent: Any = SimpleNamespace(dialect=dialect, model=model)
    defaults: Any = SimpleNamespace(model="default", dialect=NativeDialect(), dialect_setting=setting)
    assert select_dialect_of_agent(agent, defaults).name == chosen


def reserved(cost_usd: float = 0, *, is_granted: bool = True, day_usd: float = 0, **changed: Limit) -> Reservation:
    run, person = Spent(cost_usd=cost_usd), Spent(cost_usd=day_usd)
    return Reservation(Spending(run=run, person=person, changed_limits=changed), is_granted)


LATER = reserved(1, is_granted=False)


@pytest.mark.parametrize(
    ("limit", "reservations", "words", "waits"),
    [
        (Limit(usd=2), [reserved()], "The run may cost 2.00 US dollars. All of it is left.", 0),
        (Limit(usd=2), [reserved(0.01)], "The run may cost 2.00 US dollars. All of it is left.", 0),
        (Limit(usd=2), [reserved(0.2)], "The run may cost 2.00 US dollars. At most 90% of it is left.", 0),
        (Limit(usd=2), [reserved(1.99)], "The run may cost 2.00 US dollars. At most 10% of it is left.", 0),
        (Limit(usd=2), [reserved(1, run=Limit(usd=4))],
         "The run may cost 4.00 US dollars. At most 80% of it is left.", 0),
        (Limit(tokens=5), [reserved()], "", 0),
        (Limit(usd=2), [LATER, LATER, reserved(1)], "The run may cost 2.00 US dollars. At most 50% of it is left.", 2),
        (Limit(usd=2), [LATER, reserved(2)], "can continue", 1),
        (Limit(usd=2), [reserved(1, day_usd=9)], "cannot", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("platform", ["slack", "api"])
@in_virtual_time
async def test_a_call_waits_for_its_share_of_the_budget(
    limit: Limit, reservations: list[Reservation], words: str, waits: int, platform: str
) -> None:
    first, *later = reservations
    commits, remedies = list[str](), list[bool]()

    async def reserve(run_id: str, _call: object) -> Reservation:
        assert run_id == "r"
        return later.pop(0) if later else reservations[-1]

    async def commit() -> None:
        commits.append("commits")

    deps: Any = SimpleNamespace(
        limits=SimpleNamespace(
            budget=Budget(run=limit, person=Limit(usd=9), has_admins=True),
            context_policy=SimpleNamespace(limit_of=lambda _model: SimpleNamespace(room=1, reserved=1)),
        ),
        models=SimpleNamespace(price_of=lambda _model: None),
        stores=SimpleNamespace(ledger=SimpleNamespace(reserve=reserve)),
    )
    thread: Any = SimpleNamespace(address=SimpleNamespace(platform=platform))
    run, recorder = SimpleNamespace(run_id="r"), SimpleNamespace(commit=commit)
    budget = RunBudget(run, thread, "model", deps, recorder)
    began = asyncio.get_running_loop().time()
    try:
        text = await budget.wait_for_reservation(first)
    except BudgetExceeded as exceeded:
        text = "can continue" if exceeded.can_continue else "cannot"
        remedies.append("An admin" in str(exceeded))
        with pytest.raises(BudgetExceeded):
            await budget.reserve_next_call()
    assert (text, round(asyncio.get_running_loop().time() - began, 1)) == (words, waits * BUDGET_RETRY_SECONDS)
    assert len(commits) == len(remedies) == (text in ("cannot", "can continue"))
    assert remedies in ([], [platform == "slack"])
