"""The command `plan`: what it shows, and which changes it refuses with a sentence."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.plan import AGENT_OWNS_LIST, NO_PLAN, OVER, answer_plan
from core.domain.plans import Plan, Plans, Step
from core.domain.threads import Address, Person
from core.flow.plan_changes import STEPS_MAX

STEPS = (Step(text="Look", status="completed"), Step(text="Open", status="in_progress"), Step(text="Enter"))
WORK = Plan(plan_id="p", title="Work", steps=STEPS, stage="going", is_active=True, run_id="r")
GIVEN_UP = Plan(plan_id="p", title="Work", steps=STEPS, stage="closed", run_id="r")
OLD_LIST = Plan(plan_id="q", title="Older", steps=STEPS)
OWN_LIST = Plan(plan_id="o", title="Own", steps=(Step(text="A_b"),), is_active=True)
SHOWN = "**Work**: 1 of 3 steps are done.\n1. [✓] Look\n2. [→] Open\n3. [ ] Enter"
STOPPED = SHOWN.replace("done.", "done. It was given up.").replace("[→] Open", "[!] Open (stopped by alice)")
FULL = Plan(plan_id="p", title="Full", steps=(Step(text="A"),) * STEPS_MAX, stage="going", run_id="r")


class Store:
    def __init__(self, plans: Plans) -> None:
        self.plans = plans

    async def read(self, _thread_id: str) -> Plans:
        return self.plans

    async def change(self, _thread_id: str, how: Callable[[Plans], Plans], *, key: str) -> Plans:
        self.plans = how(self.plans)
        return self.plans


@pytest.mark.parametrize(
    ("plans", "argument", "answer"),
    [
        ((), "", NO_PLAN),
        ((), "add More", NO_PLAN),
        ((OLD_LIST,), "show", NO_PLAN),
        ((OWN_LIST,), "", "**Own**: 0 of 1 steps are done.\n1. [ ] A_b"),
        ((OWN_LIST,), "skip 1", AGENT_OWNS_LIST),
        ((WORK,), "", SHOWN),
        ((WORK, OWN_LIST), "", SHOWN),
        ((GIVEN_UP,), "", SHOWN.replace("done.", "done. It was given up.")),
        ((GIVEN_UP,), "add More", OVER),
        ((WORK,), "add [research] Wave   back", SHOWN.replace("of 3", "of 4") + "\n4. [ ] [research] Wave back"),
        ((WORK,), "add " + "x" * 501, "A step has at most 500 characters."),
        ((FULL,), "add More", f"A plan has at most {STEPS_MAX} steps."),
        ((WORK,), "remove 1", "That step is over already."),
        ((WORK,), "remove 2", "It is being worked on just now; `plan skip 2` leaves it."),
        ((WORK,), "remove 3", SHOWN.replace("of 3", "of 2").removesuffix("\n3. [ ] Enter")),
        ((WORK,), "skip 2", SHOWN.replace("[→] Open", "[-] Open (skipped by alice)")),
        ((WORK,), "skip 4", "Name a step by its number, 1 to 3."),
        ((WORK,), "skip 0", "Name a step by its number, 1 to 3."),
        ((WORK,), "stop", STOPPED),
    ],
)  # fmt: skip
async def test_what_a_word_about_the_plan_is_answered_with(plans: Plans, argument: str, answer: str) -> None:
    person = Person(person_id="U1", name="alice")
    place = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    called = CommandCalled(address=place, dedupe_key="1", name="plan", argument=argument, person=person)
    run = SimpleNamespace(run_id="r") if argument == "stop" else None
    snapshot = SimpleNamespace(thread=SimpleNamespace(thread_id="t"), active_run=run)
    outcome = await answer_plan(called, snapshot, Store(plans))
    assert outcome.notice == answer
    assert outcome.run_id == ("r" if argument == "stop" else None)
    assert outcome.is_private is not (argument not in ("", "show") and "steps are done" in answer)
