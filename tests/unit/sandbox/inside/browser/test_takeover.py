"""The person's waiting input in a take-over: movements are joined, everything else keeps its place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.browser.protocol import ProtocolError
from sandbox.inside.browser.takeover import WAITING_BYTES_MAX, WaitingInput

MOVEMENTS = ("move", "wheel")
messages = st.lists(
    st.sampled_from(
        (
            {"t": "wheel", "x": 1, "y": 2, "dx": 3, "dy": 10},
            {"t": "wheel", "x": 5, "y": 6, "dx": 0, "dy": -4},
            {"t": "move", "x": 1, "y": 2},
            {"t": "down", "x": 1, "y": 2},
            {"t": "up", "x": 1, "y": 2},
            {"t": "text", "text": "a"},
            {"t": "key", "key": "Enter"},
        )
    ),
    max_size=60,
)


def taken(waiting: WaitingInput) -> list[dict[str, Any]]:
    return [message for _, message in waiting._messages]


@given(messages)
def test_nothing_but_movements_is_joined_and_the_way_stays_the_same(sent: list[Any]) -> None:
    waiting = WaitingInput()
    for one in sent:
        waiting.put(dict(one))
    left = taken(waiting)
    others = [one for one in sent if one["t"] not in MOVEMENTS]
    assert [one for one in left if one["t"] not in MOVEMENTS] == others
    assert len(left) <= 3 * len(others) + 2
    for side in ("dx", "dy"):
        assert sum(one.get(side, 0) for one in left) == sum(one.get(side, 0) for one in sent)


@pytest.mark.parametrize("odd", ["5", None, True, [1], float("nan")])
def test_malformed_movements_raise_nothing(odd: object) -> None:
    waiting = WaitingInput()
    waiting.put({"t": "wheel", "x": 1, "y": 1, "dx": 1, "dy": 1})
    waiting.put({"t": "wheel", "x": odd, "dy": odd})
    assert len(taken(waiting)) == 1


def test_joined_movements_take_no_more_room_than_one() -> None:
    waiting = WaitingInput()
    waiting.put({"t": "wheel", "x": 1, "y": 1, "dx": 1, "dy": 1})
    waiting.put({"t": "move", "x": 1, "y": 1})
    for number in range(50):
        for kind in MOVEMENTS:
            fields = {"x": "x" * 10_000, "y": 2, "dx": 1, "dy": 10**4_000, f"more{number}": "x" * 10_000}
            waiting.put({"t": kind, **fields})
    waiting.put({"t": "wheel", "x": 1, "y": 1, "dx": 0.5, "dy": 0.5})
    assert len(str(taken(waiting))) < 1_000


def test_more_than_a_person_can_enter_ends_the_connection() -> None:
    waiting = WaitingInput()
    for _ in range(3):
        waiting.put({"t": "text", "text": "x" * (WAITING_BYTES_MAX // 4)})
    with pytest.raises(ProtocolError):
        waiting.put({"t": "text", "text": "x" * (WAITING_BYTES_MAX // 4)})


async def test_what_waits_for_long_is_behind() -> None:
    waiting = WaitingInput()
    waiting.put({"t": "down"})
    assert waiting.behind_seconds() == 0
    await waiting.take()
    waiting._handled_since = -1e6
    assert waiting.behind_seconds() > 1e6
