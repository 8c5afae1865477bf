"""Tests that a storm's actions depend only on its seed, and that its failpoints exist."""

from itertools import islice

from core import failpoints
from tests.chaos.actions import BOT_PLACES, WORKER_PLACES, actions, failpoint
from tests.chaos.test_crashes import NOT_PASSED, PASSED

PLACES = (WORKER_PLACES, *BOT_PLACES.values())


def test_the_same_seed_brings_the_same_actions() -> None:
    first, again, other = (list(islice(actions(seed), 200)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_processes_are_armed_with_places_that_a_run_passes() -> None:
    passed = {place for places in PASSED.values() for place in places} | {one for one in NOT_PASSED if "redis." in one}
    assert {place for places in PLACES for place in places} <= passed


def test_every_choice_of_a_place_can_be_armed() -> None:
    try:
        for places in PLACES:
            chosen = {failpoint(places, chance) for chance in range(500)}
            assert {one.split(".before:")[0].split(".after:")[0] for one in chosen} == {*places}
            assert {one.split(":")[1] for one in chosen} == {"kill", "pause"}
            failpoints.arm(",".join(chosen))
    finally:
        failpoints.arm("")
