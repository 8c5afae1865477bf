"""The states of a plan that is carried out: every change is a function, and none leaves it half done."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.plans import Plan, Step
from core.domain.threads import Reply
from core.flow import plan_changes
from core.flow.plan_changes import bracketed_agent_name, find_member, text_without_name
from core.flow.step_runner import blocked_reason

TEAM = ("research", "data-analysis", "qa2")


def plan(*texts: str) -> Plan:
    return Plan(plan_id="p", title="Work", steps=tuple(Step(text=text) for text in texts), stage="going", run_id="r1")


def states(now: Plan) -> list[str]:
    return [step.status for step in now.steps]


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("[research] Look it up", "research", "Look it up"),
        ("[DATA_ANALYSIS] Count", "data-analysis", "Count"),
        (" [Data Analysis]Count", "data-analysis", "Count"),
        ("[QA2] Test it", "qa2", "Test it"),
        ("[wizard] Do magic", None, "Do magic"),
        ("Look it up [research]", None, "Look it up [research]"),
        ("[] Look", None, "[] Look"),
    ],
)
def test_the_name_in_front_of_a_step_says_who_does_it(text: str, name: str | None, words: str) -> None:
    assert find_member(bracketed_agent_name(text), TEAM) == name
    assert text_without_name(text) == words


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("BLOCKED: no key", "no key"),
        ("**BLOCKED:** no\nkey", "no\nkey"),
        ("> BLOCKED - no key", "no key"),
        ("BLOCKED:", "The agent did not say what."),
        ("The road is BLOCKED: I went around.", None),
        ("blocked: is what the sign said", None),
        ("BLOCKED users are listed in users.csv", None),
    ],
)
def test_only_the_agreed_word_at_the_start_says_that_a_step_failed(said: str, why: str | None) -> None:
    assert blocked_reason(Reply(kind="answer", text=said)) == why


def test_the_result_of_a_step_that_people_took_out_changes_nothing() -> None:
    begun = plan_changes.start_next_step(plan("A", "B"), "k1")
    skipped = plan_changes.skip_step(begun, plan_changes.current_step(begun), "skipped by alice")
    assert plan_changes.mark_step_completed(skipped, "k1", "late") == skipped
    assert plan_changes.mark_step_failed(skipped, "k1", "late", is_last=False) == skipped


@pytest.mark.parametrize("leave", [partial(plan_changes.skip_step, note="skipped"), plan_changes.remove_step])
def test_words_answer_a_question_only_while_its_step_waits(leave: Callable[[Plan, Step], Plan]) -> None:
    asked = plan_changes.wait_for_answer(plan_changes.start_next_step(plan("A", "B"), "k1"), "k1")
    answered = plan_changes.apply_answer(asked, None, "r2", "m")
    assert (answered.seen_message_id, states(answered)) == ("m", ["in_progress", "not_started"])
    left = plan_changes.apply_answer(leave(asked, asked.steps[0]), None, "r2", "m")
    assert (left.seen_message_id, states(left)[-1]) == ("", "not_started")
    assert plan_changes.waiting_step(plan_changes.close_plan(asked, "stopped")) is None


def test_two_steps_with_the_same_words_are_two_steps() -> None:
    now = plan_changes.start_next_step(plan("Wait", "Wait"), "k1")
    assert states(plan_changes.mark_step_completed(now, "k1", "waited")) == ["completed", "not_started"]
    assert states(
        plan_changes.revise_steps(plan_changes.mark_step_completed(now, "k1", "x"), None, ["Wait", "Wait"])
    ) == ["completed", "not_started"]


def test_a_new_plan_closes_the_one_before_and_leaves_the_models_own() -> None:
    own = Plan(plan_id="own", title="Own", steps=(), is_active=True)
    old = plan_changes.start_next_step(plan("A"), "k1")
    after = plan_changes.add_plan((own, old), Plan(plan_id="q", title="New", steps=()))
    assert [(one.plan_id, one.stage, one.is_active) for one in after] == [
        ("own", "own", False),
        ("p", "closed", False),
        ("q", "going", True),
    ]
    assert states(after[1]) == ["blocked"]


def test_a_note_is_one_short_line() -> None:
    assert plan_changes.short_note("\n## **Result**\nmore") == "Result"
    assert len(plan_changes.short_note("x" * 300)) == plan_changes.NOTE_CHARACTERS_MAX


CHANGES: list[Callable[[Plan], Plan]] = [
    lambda now: plan_changes.start_next_step(now, "k"),
    lambda now: plan_changes.mark_step_completed(now, "k", "done"),
    lambda now: plan_changes.mark_step_failed(now, "k", "no", is_last=False),
    lambda now: plan_changes.mark_step_failed(now, "k", "no", is_last=True),
    lambda now: plan_changes.wait_for_answer(now, "k"),
    lambda now: plan_changes.block_open_step(now, "stopped"),
    lambda now: plan_changes.append_step(now, "More"),
    lambda now: plan_changes.remove_step(now, waiting) if (waiting := plan_changes.next_step(now)) else now,
    lambda now: plan_changes.skip_step(now, plan_changes.blocked_step(now), "skipped"),
    lambda now: plan_changes.close_plan(now, "stopped by alice"),
    lambda now: plan_changes.revise_steps(now, None, ["A", "C"]),
    *(
        partial(plan_changes.apply_answer, choice=choice, run_id="r2", message_id="m")
        for choice in ("again", "skip", "plan", "stop", None)
    ),
]


def completed(now: Plan) -> Counter[str]:
    return Counter(step.text for step in now.steps if step.status == "completed")


@given(st.lists(st.sampled_from(CHANGES), max_size=30))
def test_whatever_happens_one_step_is_at_work_at_most_and_what_is_done_stays_done(
    happened: list[Callable[[Plan], Plan]],
) -> None:
    now = plan("A", "B")
    for change in happened:
        done = completed(now)
        now = change(now)
        assert states(now).count("in_progress") <= 1
        assert now.stage != "closed" or "in_progress" not in states(now)
        assert done <= completed(now)
    assert "in_progress" not in states(plan_changes.block_open_step(now, "over"))
