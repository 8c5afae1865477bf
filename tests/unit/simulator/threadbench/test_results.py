"""The figures of a result, and the difference of two."""

import pytest

from simulator.threadbench.page import comparison_lines, comparison_page, result_page, summary_lines
from simulator.threadbench.results import Attempt, EvalResult, TaskResult, compare

FAILED = Attempt(problems=("no reply",), turns=2, seconds=3)
PASSED = Attempt(turns=4, input_tokens=100, output_tokens=10, usd=0.5, seconds=1)


def task(name: str, *attempts: Attempt, area: str = "tables") -> TaskResult:
    return TaskResult(name=name, title=name, area=area, attempts=attempts)


def result(*tasks: TaskResult, subject: str = "a model") -> EvalResult:
    return EvalResult(subject=subject, started_at="2026-01-02T12:00:00", seconds=9, tasks=tasks)


@pytest.mark.parametrize(
    ("attempts", "k", "chance"),
    [
        ((PASSED,), 1, 1.0),
        ((FAILED,), 1, 0.0),
        ((PASSED, FAILED, FAILED, FAILED), 1, 0.25),
        ((PASSED, FAILED, FAILED, FAILED), 2, 0.5),
        ((PASSED, FAILED, FAILED, FAILED), 4, 1.0),
        ((PASSED, PASSED, FAILED, FAILED), 2, 1 - 1 / 6),
    ],
)
def test_pass_at_k_is_the_chance_that_one_of_k_attempts_passes(
    attempts: tuple[Attempt, ...], k: int, chance: float
) -> None:
    assert task("a", *attempts).pass_at(k) == pytest.approx(chance)


def test_the_totals_are_those_of_all_attempts() -> None:
    found = result(task("a", PASSED, PASSED), task("b", PASSED, FAILED, area="code"))
    assert found.pass_at(1) == 0.75
    assert found.pass_at(1, "code") == 0.5
    assert found.pass_at(2) == 1.0
    assert found.total(lambda one: one.usd) == 1.5
    *failures, totals = summary_lines(found)
    assert failures == ["failed  b: no reply"]
    assert totals == (
        "a model: 1 of 2 tasks passed, pass@1 75%, pass@2 100%, 14 turns, 330 tokens, 1.5000 US dollars, 9 s"
    )


def test_a_clear_change_is_sure_and_a_single_one_is_not() -> None:
    many = [f"t{number}" for number in range(20)]
    worse = result(*(task(name, FAILED) for name in many))
    better = result(*(task(name, PASSED) for name in many))
    clear = compare(worse, better)
    assert clear.differences[0].is_sure
    assert clear.differences[0].low > 0
    assert clear.better == tuple(many)
    one = result(task("t0", PASSED), *(task(name, FAILED) for name in many[1:]))
    slight = compare(worse, one)
    assert not slight.differences[0].is_sure
    assert slight.differences[0].low <= 0.05 <= slight.differences[0].high
    assert slight.better == ("t0",)
    assert compare(better, one).worse == tuple(many[1:])


def test_only_tasks_of_both_results_are_compared() -> None:
    found = compare(result(task("a", PASSED), task("b", FAILED)), result(task("a", PASSED)))
    assert found.differences[0].before == 1.0
    with pytest.raises(ValueError, match="no task in common"):
        compare(result(task("a", PASSED)), result(task("b", PASSED)))


def test_a_result_is_the_same_after_it_was_stored() -> None:
    found = result(task("a", PASSED, FAILED))
    assert EvalResult.model_validate_json(found.model_dump_json()) == found


def test_what_an_agent_wrote_cannot_become_part_of_the_page() -> None:
    bad = "<script>alert(1)</script>"
    attempt = Attempt(problems=(bad,), transcript=bad)
    found = result(task(bad, attempt, area=bad), subject=bad)
    compared = compare(found, found)
    for page in (result_page(found), comparison_page(compared)):
        assert "<script>" not in page
        assert "&lt;script&gt;" in page
    assert len(list(comparison_lines(compared))) == 9
