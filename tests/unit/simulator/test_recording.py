"""What a recorder sees of the simulators, which payloads it writes, and what a witness says about unknown kinds."""

import io
import json
from typing import Any

from simulator.recording import record, recording
from tests.payload_recorder import PayloadRecorder
from tests.support.published_types import PublishedTypes, without_nulls


def test_payloads_are_shown_inside_the_block_alone() -> None:
    seen: list[tuple[str, object]] = []
    record("slack a", 1)
    with recording(lambda *one: seen.append(one)):
        record("slack b", 2)
    record("slack c", 3)
    assert seen == [("slack b", 2)]


def written(*payloads: object) -> list[Any]:
    file = io.StringIO()
    recorder = PayloadRecorder(file)
    for payload in payloads:
        recorder("discord frame", payload)
    return [json.loads(line)["payload"] for line in file.getvalue().splitlines()]


def test_payloads_of_one_shape_are_written_once() -> None:
    button = {"type": 2, "label": "Go"}
    assert written(button, {"type": 2, "label": "Stop"}, '{"type": 2, "label": "x"}') == [button]
    assert len(written(button, {"type": 3, "label": "Go"}, {**button, "label": None})) == 3
    assert len(written([button], [button, button], [button, {"type": 1}])) == 2
    assert len(written({"U0001": 1}, {"U0002": 1}, {"name": 1})) == 2
    assert written("{") == []


def test_a_kind_without_a_type_is_refused_and_a_reading_is_a_second_chance() -> None:
    number = {"type": "object", "properties": {"n": {"type": "number"}}}
    types = PublishedTypes({}, {"known": number})
    types.check("known", {"n": 1})
    types.check("known", {"n": None}, as_well=(without_nulls,))
    assert types.report() == ""
    types.check("known", {"n": "1"}, as_well=(without_nulls,))
    types.check("unknown", {})
    assert "known at /n" in types.report()
    assert "unknown: no published type is known" in types.report()
    assert types.seen == {"known": 3, "unknown": 1}
