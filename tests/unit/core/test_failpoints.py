"""Failpoints that are armed at a pass, or at a step of the program."""

import asyncio
from collections.abc import Iterator

import pytest

from core.failpoints import Failpoint, FailpointHit, arm, names

WRITE = Failpoint("unit.write")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


async def _store() -> str:
    with WRITE:
        await asyncio.sleep(0)
        return "stored"


async def begin_run() -> str:
    return await _store()


async def _finish_run() -> str:
    return await _store()


async def test_nothing_fails_unless_it_is_armed() -> None:
    assert {"unit.write.before", "unit.write.after"} <= {*names()}
    assert await begin_run() == "stored"
    arm("unit.other.before:raise")
    assert await begin_run() == "stored"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_number_chooses_the_pass(when: str) -> None:
    arm(f"unit.write.{when}:raise:2")
    assert await begin_run() == "stored"
    with pytest.raises(FailpointHit, match=f"unit.write.{when}"):
        await _finish_run()
    assert await begin_run() == "stored"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_step_is_a_function_that_waits_for_the_failpoint(when: str) -> None:
    arm(f"unit.write.{when}@finish_run:raise")
    assert await begin_run() == "stored"
    with pytest.raises(FailpointHit):
        await _finish_run()
    assert await _finish_run() == "stored"


async def test_the_number_counts_the_passes_of_the_step_only() -> None:
    arm("unit.write.before@finish_run:raise:2")
    assert await begin_run() == await _finish_run() == await begin_run() == "stored"
    with pytest.raises(FailpointHit):
        await _finish_run()


async def test_two_steps_of_one_failpoint_fail_independently() -> None:
    arm("unit.write.before@finish_run:raise, unit.write.before@begin_run:raise:2")
    assert await begin_run() == "stored"
    with pytest.raises(FailpointHit):
        await _finish_run()
    with pytest.raises(FailpointHit):
        await begin_run()


async def test_a_step_in_another_task_does_not_count() -> None:
    arm("unit.write.before@finish_run:raise")
    running = asyncio.gather(begin_run(), asyncio.sleep(0))
    with pytest.raises(FailpointHit):
        await _finish_run()
    assert (await running)[0] == "stored"


@pytest.mark.parametrize(
    ("specification", "problem"),
    [
        ("unit.write.before", "the action is one of kill, raise, pause"),
        ("unit.write.before:explode", "the action is one of kill, raise, pause"),
        ("unit.write.before@:raise", "the step is the name of a function"),
        ("unit.write.before@a b:raise", "the step is the name of a function"),
        ("unit.write.before@a@b:raise", "the step is the name of a function"),
        ("unit.write.before:raise:often", "invalid literal"),
    ],
)
def test_a_malformed_specification_is_refused(specification: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        arm(specification)
