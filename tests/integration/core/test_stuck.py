"""A run that goes in circles is warned once and then ended, whatever its words."""

import pytest

from core.domain.messages import Message, ToolCall
from core.loop.calls import CallOutcome
from core.loop.repetition import WARNING, RepetitionDetector
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World


def outcome(name: str = "echo", argument: str = "a", output: str = "b") -> CallOutcome:
    call = ToolCall(name=name, arguments={"text": argument}, call_id="made anew each time")
    return CallOutcome(call=call, outcome="completed", result={"success": True, "output": output, "error": None})


def ended_after(turns: list[tuple[str, list[CallOutcome]]]) -> int | None:
    """The number of the turn after which the watch gives up, from 1."""
    watch = RepetitionDetector()
    for number, (words, outcomes) in enumerate(turns, start=1):
        watch.notes(())
        if watch.is_stuck_after(words, outcomes):
            return number
    return None


async def test_twenty_identical_calls_are_caught_although_the_words_differ(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}'), said=f"Attempt {number}.") for number in range(20)]
    run_id = await world.run("go")
    assert world.bench.said == ["a"] * 4
    last = await world.read_end(run_id)
    assert (last.status, last.can_continue) == ("completed", True)
    assert "again and again" in last.message


async def test_the_warning_is_told_once(world: World) -> None:
    world.model.turns = [
        *(calls(("echo", '{"text": "a"}')) for _ in range(3)),
        calls(("echo", '{"text": "b"}')),
        text("done"),
    ]
    run_id = await world.run("go")
    warned = [WARNING in tail for tail in world.model.tails]
    assert warned == [False, False, False, True, False]
    assert str(world.model.requests[-1].messages).count("Note from the system") == 1
    assert not [one for one in await world.history(run_id) if one.type == "user"][1:]


async def test_an_answer_cut_off_again_and_again_with_the_same_words_ends(world: World) -> None:
    world.model.turns = [text("the same words", finish="length") for _ in range(20)]
    run_id = await world.run("go")
    assert len(world.model.requests) == 4
    assert (await world.read_end(run_id)).can_continue


def test_a_circle_of_several_steps_is_seen() -> None:
    circle = [("", [outcome(argument=one)]) for one in "abcabcabc"]
    assert ended_after(circle) == 6


def test_a_plan_written_again_and_again_is_nothing_new() -> None:
    def written(text: str, path: str = "todo.md") -> CallOutcome:
        call = ToolCall(name="create_file", arguments={"file_path": path, "file_contents": text}, call_id="c")
        return CallOutcome(call=call, outcome="completed", result={"success": True, "output": text, "error": None})

    plans = [("", [written(str(one))]) for one in range(9)]
    assert ended_after(plans) == 4
    assert ended_after([turn for one in range(9) for turn in (plans[one], ("", [outcome(argument=str(one))]))]) is None
    assert ended_after([("", [*turn[1], outcome(argument=str(one))]) for one, turn in enumerate(plans)]) is None
    assert ended_after([("", [written(str(one), "book.md")]) for one in range(9)]) is None


@pytest.mark.parametrize(
    "turns",
    [
        [("", [outcome(output=str(one))]) for one in range(50)],
        [("Next page.", [outcome(argument=str(one))]) for one in range(50)],
        [("", [outcome(), outcome(argument=str(one // 3))]) for one in range(30)],
        [("", [outcome(argument=str(one))]) for one in range(10)] * 2,
    ],
    ids=["other results", "other arguments", "one new call among old ones", "what was read long ago"],
)
def test_what_brings_something_new_is_no_circle(turns: list[tuple[str, list[CallOutcome]]]) -> None:
    assert ended_after(turns) is None


@pytest.mark.parametrize("between", [[], [outcome("execute_command", "sleep 1", "[session b, in /: exit code 0]")]])
def test_waiting_for_a_command_that_runs_is_no_circle(between: list[CallOutcome]) -> None:
    running = outcome("check_command_output", output="[session a, in /workspace: still running]")
    ended = outcome("check_command_output", output="[session a, in /workspace: exit code 0]")
    turns = [("", [one]) for one in [*between, running] * 40]
    assert ended_after(turns) is None
    assert ended_after([*turns, *([("", [ended])] * 5)]) == len(turns) + 4


def test_a_persons_words_clear_the_count() -> None:
    watch = RepetitionDetector()
    said = Message(type="user", content={"role": "user"}, is_llm_message=True, thread_id="t")
    for _ in range(3):
        assert not watch.is_stuck_after("", [outcome()])
    assert watch.notes((said,)) == ()
    assert not watch.is_stuck_after("", [outcome()])
