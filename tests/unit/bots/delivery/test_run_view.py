"""What the status message says about each step: what runs, what has ended, how, and after how long."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.run_view import (
    DETAILS_CHARACTERS_MAX,
    SEEN_ELSEWHERE,
    STEPS_KEPT,
    RunView,
    Task,
    apply_event,
    format_details,
    format_duration,
    keep_newest_tasks,
    to_past_tense,
)
from bots.discord.render.status import status_sections
from bots.slack.render.block_kit import blocks_to_mrkdwn, simplify_blocks
from bots.slack.render.messages import status_blocks
from core.domain.events import (
    ActivityChanged,
    AgentEvent,
    ApprovalAsked,
    ChecklistChanged,
    ChecklistItem,
    CommandEnded,
    ErrorRaised,
    FinishReached,
    ReplyLeft,
    ResponseStarted,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from core.domain.threads import Reply
from core.tools.catalogue import build_tool_set

SHELL = "execute_command"


def test_thinking_is_one_line_without_its_text() -> None:
    thinking = ThinkingStreamed(text="a secret thought", seconds=40, sequence=0)
    view = apply_event(RunView(), thinking)
    assert view.activity == "Thinking, 40 s"
    assert "secret" not in repr(view)


def test_another_attempt_to_reach_the_model_is_shown_until_it_answers() -> None:
    told = "The model is slow: attempt 2 of 6, 40 s"
    view = after(ToolStarted(index=0, call_id="a", name=SHELL, title="ls"), ActivityChanged(text=told))
    assert told in str(status_blocks("r", view))
    assert told in str(status_sections(view))
    assert told not in str(status_blocks("r", apply_event(view, ActivityChanged(text="Thinking"))))


def started(call_id: str, title: str, name: str = SHELL) -> ToolStarted:
    return ToolStarted(index=0, call_id=call_id, name=name, title=title)


def finished(call_id: str, name: str = SHELL, **fields: Any) -> ToolFinished:
    outcome = "failed" if fields.get("exit_code") else "completed"
    known: dict[str, Any] = {"outcome": outcome, "message": "", **fields}
    return ToolFinished(index=0, call_id=call_id, name=name, **known)


def after(*events: AgentEvent) -> RunView:
    view = RunView(state="working")
    for event in events:
        view = apply_event(view, event)
    return view


def shown(view: RunView) -> tuple[str, str]:
    """The status message on Slack and on Discord."""
    return blocks_to_mrkdwn(simplify_blocks(status_blocks("r", view))), "\n".join(status_sections(view))


def test_a_finished_step_is_told_in_the_past_tense_with_its_duration() -> None:
    view = after(started("a", "Running `head -5`"), finished("a", seconds=0.2, exit_code=0))
    slack, discord = shown(view)
    assert "☑ Ran head -5 · 0.2 s" in slack
    assert "✓ Ran `head -5` · 0.2 s" in discord


def test_a_non_zero_exit_is_shown() -> None:
    failed = finished("a", exit_code=2, message="The command reported a failure.")
    for text in shown(after(started("a", "Running `make`"), failed)):
        assert "Ran make · exit code 2" in text.replace("`", "")
        assert "reported a failure" not in text


def test_a_background_command_has_its_line_until_it_exits() -> None:
    view = after(started("a", "Running `npm start`"), finished("a", session="main", is_running=True))
    for number in range(STEPS_KEPT * 2):
        call = str(number)
        view = apply_event(view, started(call, "Reading a.md", "read_file"))
        view = apply_event(view, finished(call, "read_file"))
    for text in shown(view):
        line = next(line for line in text.split("\n") if "npm start" in line)
        assert line[0] not in "☑✓"
        assert "Started npm start · in the background" in line.replace("`", "")
    ended = apply_event(view, CommandEnded(session="main", exit_code=137))
    (task,) = [task for task in ended.tasks if task.session == "main"]
    assert (task.state, task.line) == ("failed", "Ran `npm start` · exit code 137")
    gone = apply_event(view, CommandEnded(session="main", exit_code=None))
    assert [task.state for task in gone.tasks if task.session == "main"] == ["ended"]


@pytest.mark.parametrize(
    ("event", "state", "exit_code"),
    [
        (finished("b", "check_command_output", session="main", is_running=True), "started", None),
        (finished("b", "check_command_output", session="main", exit_code=0), "done", 0),
        (finished("b", "check_command_output", session="main", exit_code=1), "failed", 1),
        (finished("b", "terminate_command", session="main"), "ended", None),
        (finished("b", SHELL, session="main", exit_code=1), "ended", None),
        (finished("b", SHELL, session="other", exit_code=1), "started", None),
    ],
)
def test_what_a_later_call_shows_of_a_background_command(
    event: ToolFinished, state: str, exit_code: int | None
) -> None:
    view = after(
        started("a", "Running `npm start`"),
        finished("a", session="main", is_running=True),
        started("b", "Looking", event.name),
        event,
    )
    assert (view.tasks[0].state, view.tasks[0].exit_code) == (state, exit_code)


def test_a_long_step_shows_elapsed_time_and_the_last_line_of_output() -> None:
    view = after(started("a", "Running `make`"), ToolProgressed(call_id="a", seconds=75, line="[3/9] cc x.c"))
    slack, discord = shown(view)
    assert "▸ Running make · 1 min 15 s" in slack
    assert "▸ Running `make` · 1 min 15 s\n-# [3/9] cc x.c" in discord
    done = apply_event(view, finished("a", seconds=80.0, exit_code=0))
    assert (done.tasks[0].line, done.tasks[0].output) == ("Ran `make` · 1 min 20 s", "")


@pytest.mark.parametrize(
    "end", [RunFailed(public_message="It broke."), RunFinished(status="stopped", finish_reason="stopped")]
)
def test_no_step_runs_on_in_the_status_of_a_run_that_has_ended(end: RunFailed) -> None:
    (task,) = after(started("a", "Running `make`"), end).tasks
    assert (task.state, task.line) == ("ended", "Ran `make` · interrupted")


@pytest.mark.parametrize("name", sorted(SEEN_ELSEWHERE))
def test_internal_steps_are_hidden(name: str) -> None:
    chunk = ToolCallStreamed(index=0, call_id="a", name=name, arguments="", sequence=0)
    view = after(chunk, started("a", "Finishing", name), finished("a", name))
    assert (view.tasks, view.activity) == ((), "")


def test_each_tool_of_ours_has_a_past_tense() -> None:
    titles = [
        tool.title(tool.params.model_validate(tool.example))
        for name, tool in build_tool_set().tools.items()
        if tool.example is not None and name not in SEEN_ELSEWHERE | {"web_browser_takeover"}
    ]
    assert len(titles) > 30
    assert [title for title in titles if to_past_tense(title) == title] == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.24, "0.2 s"), (9.94, "9.9 s"), (59.6, "1 min 0 s"), (80, "1 min 20 s"), (25.2, "25 s")]
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.lists(st.sampled_from(["running", "started", "done"]), max_size=30), st.integers(min_value=1, max_value=12))
def test_newest_tasks_keeps_the_order_and_counts_the_rest(states: list[Any], count: int) -> None:
    tasks = tuple(Task(call_id=str(at), title=str(at), state=state) for at, state in enumerate(states))
    kept, hidden = keep_newest_tasks(tasks, count)
    assert len(kept) == min(count, len(tasks))
    assert hidden == len(tasks) - len(kept)
    assert list(kept) == sorted(kept, key=lambda task: int(task.call_id))
    assert not tasks or kept[-1] == tasks[-1] or count == 1


def test_the_view_of_an_interrupted_call_that_runs_again_starts_anew() -> None:
    view = after(started("a", "Running `x`"), ToolProgressed(call_id="a", seconds=20, line="y"))
    again = apply_event(view, started("a", "Running `x`"))
    assert again.tasks == (replace(view.tasks[0], seconds=0.0, output=""),)


LOOKED = Task(call_id="a", title="Reading a.csv", state="done")
BROKEN = Task(call_id="b", title="Running make", state="failed", detail="No\n" * 60, exit_code=2)
BROKEN_LINE = "- ✗ Ran make · exit code 2: " + " ".join(["No"] * 53 + ["N"])
ITEMS = (ChecklistItem(text="Look", state="done"), ChecklistItem(text="Sum", state="blocked"))


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        (RunView(), []),
        (RunView(tasks=(LOOKED,)), ["- ✓ Read a.csv"]),
        (RunView(tasks=(replace(LOOKED, detail="I look."),)), ["- ✓ Read a.csv"]),
        (RunView(tasks=(replace(LOOKED, state="ended"),)), ["- ■ Read a.csv · interrupted"]),
        (RunView(checklist=(ChecklistItem(text="Say\n it", state="active"),)), ["- ☐ Say it"]),
        (RunView(checklist=ITEMS, tasks=(LOOKED,)), ["- ☑ Look", "- ☒ Sum", "- ✓ Read a.csv"]),
        (RunView(tasks=(LOOKED,), tasks_dropped=7), ["- 7 earlier steps are not shown", "- ✓ Read a.csv"]),
        (RunView(tasks=(BROKEN,)), [BROKEN_LINE]),
    ],
)  # fmt: skip
def test_the_details_of_a_run_are_lines_of_markdown(view: RunView, lines: list[str]) -> None:
    assert format_details(view).splitlines() == lines


def test_the_newest_steps_are_shown_as_far_as_there_is_room() -> None:
    step = "x" * 97
    tasks = tuple(replace(LOOKED, call_id=str(n), title=step) for n in range(40))
    lines = format_details(RunView(checklist=ITEMS[:1], tasks=tasks)).splitlines()
    room = DETAILS_CHARACTERS_MAX - len("☑ Look")
    shown = room // len(f"- ✓ {step}\n".rstrip() + " ")
    assert lines == ["- ☑ Look", f"- {40 - shown} earlier steps are not shown", *[f"- ✓ {step}"] * shown]


LEFT = Task(call_id="c", title="Running serve", state="left")


@pytest.mark.parametrize(
    ("view", "figures", "has_details"),
    [
        (RunView(), "", False),
        (RunView(state="completed"), "", False),
        (RunView(tasks=(LOOKED,)), "1 step", False),
        (RunView(state="completed", tasks=(LOOKED, BROKEN), tasks_dropped=4, seconds=80, cost_usd=0.04),
         "6 steps, 1 failed · 1 min 20 s · $0.04", True),
        (RunView(state="silent", tasks=(LEFT,), seconds=0.1, cost_usd=0.01),
         "1 step · 1 command still running · 0.1 s · $0.01", True),
        (RunView(tasks=(LEFT, LEFT), cost_usd=0.009), "2 steps · 2 commands still running · under $0.01", False),
        (RunView(state="asking", checklist=(*ITEMS, ITEMS[0])), "2 of 3 tasks", True),
    ],
)  # fmt: skip
def test_the_figures_of_a_run(view: RunView, figures: str, *, has_details: bool) -> None:
    assert (view.summary, view.has_details) == (figures, has_details)


def text(words: str) -> TextStreamed:
    return TextStreamed(text=words, sequence=0)


def ended(reply: str = "", **fields: Any) -> RunFinished:
    fields = {"status": "completed", "finish_reason": "stop", **fields}
    return RunFinished(**fields, reply=Reply(kind=reply, text="") if reply else None)  # type: ignore[arg-type]


RUNS_A, RUNS_B = started("a", "Running a"), started("b", "Running b")
GOES_ON = finished("a", session="main", is_running=True)
NO_BUTTONS = {"can_stop": False, "can_retry": False, "can_continue": False}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([text("x"), TurnStarted(turn_id="t", number=2)],
         {"state": "working", "turn": 2, "activity": "Thinking", "preview": "", "can_stop": True, "can_retry": False,
          "can_continue": False}),
        ([text("x"), ResponseStarted()], {"state": "working", "preview": "", "activity": "Writing"}),
        ([text("x" * 200), text("y" * 299)], {"preview": "x" + "y" * 299}),
        ([ToolCallStreamed(index=0, call_id="a", name=SHELL, arguments="", sequence=0)],
         {"activity": "Preparing the next step"}),
        ([text("x"), FinishReached(reason="stop"), TurnFinished(turn_id="t")], {"preview": "x"}),
        ([ErrorRaised(message="No.")], {"message": "No."}),
        ([ChecklistChanged(title="Plan", items=ITEMS)], {"checklist_title": "Plan", "checklist": ITEMS}),
        ([text("x"), ApprovalAsked(text="May I?", summary="asks")],
         {"state": "waiting", "activity": "asks", "preview": "", "approvals": 1}),
        ([ReplyLeft()], {"replies": 1}),
        ([RunFailed(public_message="No.")], {**NO_BUTTONS, "state": "failed", "message": "No.", "can_retry": True}),
        ([ended(status="stopped", can_continue=True)], {**NO_BUTTONS, "state": "stopped", "can_continue": True}),
        ([ended(can_continue=True)], {"state": "limited", "can_continue": True}),
        ([ended(finish_reason="budget")], {**NO_BUTTONS, "state": "limited"}),
        ([ended("silence")], {"state": "silent"}),
        ([ended("question")], {"state": "asking"}),
        ([ended("answer")], {"state": "completed"}),
        ([text("x"), ended(message="Done.")], {**NO_BUTTONS, "state": "completed", "message": "Done.", "preview": ""}),
        ([text("One.\n\nI look\nat it. "), RUNS_A], {"activity": "I look at it.", "preview": ""}),
        ([text("x" * 160), RUNS_A], {"activity": "x" * 160}),
        ([text("x" * 161), RUNS_A], {"activity": "x" * 160 + "…"}),
        ([text("x"), started("a", "Handing over", "web_browser_takeover")], {"activity": "Handing over"}),
    ],
)  # fmt: skip
def test_what_events_change(events: list[AgentEvent], expected: dict[str, object]) -> None:
    view = after(*events)
    assert {name: getattr(view, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([RUNS_A, RUNS_B, finished("a", seconds=0.1)], ["done Ran a · 0.1 s", "running Running b"]),
        ([RUNS_A, finished("a"), RUNS_A], ["done Ran a", "running Running a"]),
        ([RUNS_A, RUNS_B, ToolProgressed(call_id="b", seconds=20)], ["running Running a", "running Running b · 20 s"]),
        ([RUNS_A, GOES_ON, CommandEnded(session="other", exit_code=0)], ["started Started a · in the background"]),
        ([RUNS_A, RUNS_B, GOES_ON, ended()], ["left Started a · still ran at the end", "ended Ran b · interrupted"]),
        ([text("I run."), RUNS_A, finished("a", message="Ran.")], ["done Ran a: I run."]),
        ([text("I run."), RUNS_A, finished("a", outcome="error", message="No.")], ["failed Running a: No."]),
    ],
)  # fmt: skip
def test_what_events_change_in_the_steps(events: list[AgentEvent], lines: list[str]) -> None:
    steps = (f"{task.state} {task.line}{f': {task.detail}' * bool(task.detail)}" for task in after(*events).tasks)
    assert list(steps) == lines
