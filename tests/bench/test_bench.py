"""What the bench prints and answers; nothing here is timed."""

import json
from types import ModuleType

import pytest

from tests.bench.__main__ import main
from tests.bench.figure import Figure, figures
from tests.bench.figures import chunks, crowd, jail, start, steering, turns, xml


def figure(name: str, *, value: float, bound: float = 10) -> Figure:
    async def measure() -> float:
        return value

    return Figure(name=name, unit="ms", bound=bound, measure=measure)


def test_a_figure_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"walk_ms": figure("walk_ms", value=1.23456)}) == 0
    assert json.loads(capsys.readouterr().out) == {
        "figure": "walk_ms",
        "value": 1.235,
        "unit": "ms",
        "bound": 10,
        "ok": True,
    }


def test_one_figure_over_its_bound_fails_the_whole_and_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"slow": figure("slow", value=10.01), "quick": figure("quick", value=10)}
    assert main([], known) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["figure"], line["ok"]) for line in lines] == [("slow", False), ("quick", True)]


@pytest.mark.parametrize(
    ("name", "module", "sizes"),
    [
        ("turn_cpu_50_ms", turns, {"TURNS": 2, "CONVERSATIONS": 1}),
        ("turn_cpu_growth", turns, {"WARM_UP": 1, "TURNS": 2, "LONG_TURNS": 3, "PAIRS": 1}),
        ("conversations_s", crowd, {"CONVERSATIONS": 2, "TURNS": 2, "TIMES": 1}),
        ("chunk_cpu_us", chunks, {"CHUNKS": 200, "TIMES": 1}),
        ("xml_200kb_ms", xml, {"CHARACTERS": 2_000, "TIMES": 1}),
        ("jail_start_among_60_cpu_ms", jail, {"IDLE_JAILS": 1, "NEW_JAILS": 1}),
        ("idle_jail_cpu_ms_a_second", jail, {"IDLE_JAILS": 1, "QUIET_SECONDS": 0.1, "WORK_SECONDS": 0.5}),
        ("start_s", start, {"TIMES": 1}),
        ("stop_p95_ms", steering, {"RUNS": 1}),
        ("follow_up_p95_ms", steering, {"RUNS": 1}),
        ("edit_p95_ms", steering, {"RUNS": 1}),
    ],
)
def test_a_figure_is_measured_on_the_whole_program(
    name: str,
    module: ModuleType,
    sizes: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Small sizes; what comes out says nothing about speed."""
    for constant, value in sizes.items():
        monkeypatch.setattr(module, constant, value)
    main([name], figures())
    assert json.loads(capsys.readouterr().out)["figure"] == name
