"""What the bench prints and answers; nothing here is timed."""

import json
from types import ModuleType

import pytest

from tests.bench.__main__ import main
from tests.bench.figure import Figure, Unmeasurable, figures, percentile
from tests.bench.figures import chunks, crowd, jail, start, steering, turns, xml


def figure(name: str, *, value: float, bound: float = 10) -> Figure:
    async def measure() -> float:
        return value

    return Figure(name=name, unit="ms", bound=bound, measure=measure)


async def lacking() -> float:
    raise Unmeasurable("no namespaces here")


async def broken() -> float:
    raise OSError("cut")


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


def test_only_the_named_figures_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"slow": figure("slow", value=11), "quick": figure("quick", value=1)}
    assert main(["quick"], known) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == "quick"


def test_what_the_machine_lacks_is_said_on_stderr_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"jail": Figure(name="jail", unit="ms", bound=1, measure=lacking)}
    assert main([], known) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["jail was not measured: no namespaces here"]


def test_a_measurement_that_breaks_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"cut": Figure(name="cut", unit="ms", bound=1, measure=broken)}
    assert main([], known) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "cut broke" in shown.err


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["speed"], figures())
    assert refused.value.code == 2
    assert "turn_cpu_50_ms" in capsys.readouterr().err


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3, 1, 2, 4], 95) == 4
    assert percentile(range(1, 101), 95) == 95
    assert percentile([7], 95) == 7


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
