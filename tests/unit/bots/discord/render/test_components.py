"""Content drawn as Discord messages, held against the simulator's own checks."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.delivery.content import AnswerPart, AskPrompt, Notice, RunStatus
from bots.delivery.run_view import RunView, Task, ViewState
from bots.discord.interactions.controls import ASK_CUSTOM_ID
from bots.discord.render.components import COMPONENTS_V2, SUPPRESS_EMBEDS, render_content, simplify_layout
from bots.discord.rest import delivery_marker
from core.domain.approval import CHOICES
from core.domain.events import ChecklistItem
from core.domain.outside_text import utf16_length
from core.domain.schedules import build_commands
from core.domain.threads import Ask, Person
from simulator.discord.rest.errors import FormErrors
from simulator.discord.rules.components import check_components
from tests.support.narrow import require

TEXT = st.text(max_size=400) | st.sampled_from(
    ["@everyone", "<@&123>", "```" * 9, "\ud800", "😀" * 900, "| a |\n|---|\n" * 40, "x" * 6000, "\n" * 50]
)
VIEWS = st.builds(
    RunView,
    state=st.sampled_from(["queued", "working", "waiting", "completed", "asking", "stopped", "failed", "limited"]),
    activity=TEXT,
    turn=st.integers(0, 100),
    tasks=st.lists(
        st.builds(
            Task, call_id=st.just("c"), title=TEXT, state=st.sampled_from(["running", "done", "failed"]), detail=TEXT
        ),
        max_size=40,
    ).map(tuple),
    tasks_dropped=st.integers(0, 999),
    checklist_title=TEXT,
    checklist=st.lists(
        st.builds(ChecklistItem, text=TEXT, state=st.sampled_from(["pending", "active", "done", "blocked"])),
        max_size=60,
    ).map(tuple),
    preview=TEXT,
    message=TEXT,
    can_stop=st.booleans(),
    can_retry=st.booleans(),
    can_continue=st.booleans(),
)
ASK_ID = "019a0000-0000-7000-8000-000000000001"


def refusals(body: dict) -> object:
    errors = FormErrors()
    check_components(errors, body["components"], is_v2=True, filenames=frozenset())
    try:
        errors.raise_if_any()
    except Exception as refused:
        return refused
    return None


def texts(component: object) -> list[str]:
    if isinstance(component, list):
        return [text for item in component for text in texts(item)]
    if not isinstance(component, dict):
        return []
    own = [component["content"]] if "content" in component else []
    return own + [text for value in component.values() for text in texts(value)]


def controls(component: object) -> list[dict]:
    if isinstance(component, list):
        return [found for item in component for found in controls(item)]
    if not isinstance(component, dict):
        return []
    own = [component] if "custom_id" in component else []
    return own + [found for value in component.values() for found in controls(value)]


@given(VIEWS)
def test_any_run_view_is_drawn_within_discords_limits(view: RunView) -> None:
    body = render_content(RunStatus(run_id=ASK_ID, view=view), delivery_id="d")
    assert refusals(body) is None
    assert sum(utf16_length(text) for text in texts(body["components"])) <= 4000
    assert all(text.strip() for text in texts(body["components"]))
    str(body["components"]).encode("utf-8")


@given(text=TEXT, options=st.lists(TEXT, max_size=40).map(tuple), answer=TEXT)
def test_any_question_is_drawn_within_discords_limits(text: str, options: tuple[str, ...], answer: str) -> None:
    ask = Ask(ask_id=ASK_ID, run_id="r", text=text, options=options)
    assert refusals(render_content(AskPrompt(ask=ask), delivery_id="d")) is None
    answered = Ask(
        ask_id=ASK_ID,
        run_id="r",
        text=text,
        options=options,
        state="answered",
        answer=answer,
        answered_by=Person(person_id="1", name=text),
    )
    body = render_content(AskPrompt(ask=answered))
    assert refusals(body) is None
    assert controls(body["components"]) == []


@given(TEXT)
@settings(deadline=None)
def test_any_answer_fits_an_ordinary_message(text: str) -> None:
    body = render_content(AnswerPart(markdown=text), delivery_id="d")
    assert 0 < len(body["content"]) <= 2000
    assert body["allowed_mentions"] == {"parse": []}


def test_a_working_run_can_be_stopped_and_a_failed_one_tried_again() -> None:
    working = render_content(RunStatus(run_id="r1", view=RunView(state="working")))
    failed = render_content(
        RunStatus(run_id="r1", view=RunView(state="failed", can_stop=False, can_retry=True, message="No."))
    )
    assert [c["custom_id"] for c in controls(working["components"])] == ["th:run:stop:r1"]
    assert [c["custom_id"] for c in controls(failed["components"])] == ["th:run:retry:r1"]
    assert working["flags"] == COMPONENTS_V2
    assert "No." in texts(failed["components"])


def test_the_newest_tasks_are_shown_and_the_rest_is_counted() -> None:
    tasks = tuple(Task(call_id=str(n), title=f"Task {n}", state="done") for n in range(40))
    body = render_content(RunStatus(run_id="r", view=RunView(state="working", tasks=tasks, tasks_dropped=3)))
    shown = "\n".join(texts(body["components"]))
    assert "✓ Task 39" in shown
    assert "Task 29" not in shown
    assert "33 earlier steps" in shown


def test_a_failed_task_says_why() -> None:
    task = Task(call_id="1", title="Running `ls`", state="failed", detail="exit code 2")
    shown = texts(render_content(RunStatus(run_id="r", view=RunView(state="working", tasks=(task,))))["components"])
    assert "✗ Running `ls`\n-# exit code 2" in shown


def test_few_short_options_are_buttons_and_an_own_answer_is_always_possible() -> None:
    ask = Ask(ask_id="a", run_id="r", text="Which?", options=("red", "blue"))
    found = controls(render_content(AskPrompt(ask=ask))["components"])
    assert [(c["custom_id"], c["label"]) for c in found] == [
        ("th:ask:a:0", "red"),
        ("th:ask:a:1", "blue"),
        ("th:ask:a:write", "Write an answer"),
    ]


@pytest.mark.parametrize("count", [1, 5, 26, 101, 425, 426, 500])
def test_every_option_is_offered_as_far_as_a_message_holds_them(count: int) -> None:
    options = tuple(f"option {number} ".ljust(100, "x") for number in range(count))
    ask = Ask(ask_id=ASK_ID, run_id="r", text="Which? " * 300, options=options)
    body = render_content(AskPrompt(ask=ask), delivery_id="d")
    assert refusals(body) is None
    offered: list[str] = []
    for one in controls(body["components"])[:-1]:
        match = require(ASK_CUSTOM_ID.fullmatch(one["custom_id"]))
        parts = [str(option["value"]) for option in one.get("options", ())] or [match["part"]]
        offered += [ask.choices[int(part)] for part in parts]
    assert offered == [*options][: min(count, 425)]
    left = count - 425
    assert (f"{left} more options do not fit" in str(body)) == (left > 0)
    simple = require(simplify_layout(body, "d"))
    assert len(simple["components"]) <= 5


def test_equal_and_blank_options_are_one_button_and_none() -> None:
    ask = Ask(ask_id="a", run_id="r", text="Which?", options=("red", " ", "red ", "blue"))
    found = controls(render_content(AskPrompt(ask=ask))["components"])
    assert [(c["custom_id"], c["label"]) for c in found[:-1]] == [("th:ask:a:0", "red"), ("th:ask:a:1", "blue")]
    assert ask.choices == ("red", "blue")


@pytest.mark.parametrize("count", [2, 6, 26])
def test_options_that_a_menu_would_cut_are_told_apart_by_their_numbers(count: int) -> None:
    options = tuple("alike " * 50 + str(number) for number in range(count))
    ask = Ask(ask_id=ASK_ID, run_id="r", text="Which?", options=options)
    body = render_content(AskPrompt(ask=ask))
    assert refusals(body) is None
    labels = [option["label"] for one in controls(body["components"]) for option in one.get("options", ())]
    assert [label.partition(". alike")[0] for label in labels] == [str(number) for number in range(1, count + 1)]


def test_an_option_that_a_select_would_cut_is_also_listed_whole() -> None:
    long = "a very long option " * 10
    ask = Ask(ask_id="a", run_id="r", text="Which?", options=(long, "short"))
    body = render_content(AskPrompt(ask=ask))
    assert f"**1.** {long.strip()}" in texts(body["components"])


def test_a_name_shows_no_link_in_the_words_of_the_bot() -> None:
    name = "[free](https://evil.example) *x*"
    person, ask = Person(person_id="1", name=name), replace(APPROVAL, state="answered", answer="ok")
    body = render_content(AskPrompt(ask=replace(ask, answered_by=person)))
    assert r"\[free\](https://evil.example) \*x\*** answered" in texts(body["components"])[-1]


def test_an_answered_question_tells_who_answered_what() -> None:
    ask = Ask(
        ask_id="a",
        run_id="r",
        text="Which?",
        options=("red",),
        state="answered",
        answer="red",
        answered_by=Person(person_id="1", name="alice"),
    )
    body = render_content(AskPrompt(ask=ask))
    assert texts(body["components"])[-1] == "✅ **alice** answered: red"


def test_an_answer_is_plain_text_without_link_previews_and_carries_its_footprint() -> None:
    body = render_content(AnswerPart(markdown="See https://example.com"), delivery_id="d1")
    assert body["flags"] == SUPPRESS_EMBEDS
    assert str(body["content"]).startswith("See https://example.com")
    assert delivery_marker.has_marker(body, "d1")
    assert not delivery_marker.has_marker(body, "d2")


def test_a_footprint_is_found_on_layouts_and_files_too() -> None:
    layout = render_content(RunStatus(run_id="r", view=RunView()), delivery_id="d1")
    assert delivery_marker.has_marker(layout, "d1")
    assert not delivery_marker.has_marker(layout, "d2")
    file = {"attachments": [{"description": f"a.csv, made by the agent, {delivery_marker.readable_marker('d1')}"}]}
    assert delivery_marker.has_marker(file, "d1")
    assert not delivery_marker.has_marker(file, "d2")
    assert len(delivery_marker.delivery_nonce("d1")) <= 25


def test_a_notice_shows_its_level() -> None:
    assert render_content(Notice(markdown="Careful.", level="warning"))["content"] == "⚠️ Careful."


APPROVAL = Ask(ask_id=ASK_ID, run_id="r", text="May I?", options=CHOICES, kind="approval")


def test_an_approval_shows_what_is_a_yes_and_what_a_no() -> None:
    body = render_content(AskPrompt(ask=APPROVAL))
    found = controls(body["components"])
    assert [one["label"] for one in found] == [*CHOICES, "Deny with a reason"]
    assert [one["style"] for one in found] == [3, 2, 4, 2]
    assert refusals(body) is None


@pytest.mark.parametrize(("answer", "sign"), [("Approve once", "✅"), ("Deny", "❌"), ("no", "❌")])
def test_an_answered_approval_shows_whether_it_was_a_yes(answer: str, sign: str) -> None:
    bob = Person(person_id="2", name="bob")
    answered = replace(APPROVAL, state="answered", answer=answer, answered_by=bob)
    assert any(sign in text for text in texts(render_content(AskPrompt(ask=answered))["components"]))


def test_an_answered_approval_has_the_buttons_of_what_was_approved() -> None:
    answered = replace(APPROVAL, state="answered", answer="Approve once")
    commands = build_commands("k7m2xqab")
    assert "Pause" not in str(render_content(AskPrompt(ask=APPROVAL, commands=commands)))
    body = render_content(AskPrompt(ask=answered, commands=commands))
    found = {one["label"]: one["custom_id"] for one in controls(body["components"])}
    assert found == {label: f"th:command:{command}" for label, command in commands.items()}
    assert refusals(body) is None


def test_an_approval_that_nobody_gave_says_so_without_buttons() -> None:
    body = render_content(AskPrompt(ask=replace(APPROVAL, state="expired")))
    assert controls(body["components"]) == []
    assert any("No one answered in time." in text for text in texts(body["components"]))


@pytest.mark.parametrize(("state", "is_silent"), [("working", True), ("completed", True), ("failed", False)])
def test_a_new_status_notifies_nobody_unless_it_is_all_that_comes(state: ViewState, is_silent: bool) -> None:
    content = RunStatus(run_id="r", view=RunView(state=state))
    body = render_content(content, delivery_id="d")
    simple = require(simplify_layout(body, "d"))
    assert [bool(int(str(one["flags"])) & 4096) for one in (body, simple)] == [is_silent] * 2
    edited = render_content(content)
    assert not int(str(edited["flags"])) & 4096, "Discord takes the flag of new messages only"
    for other in (AnswerPart(markdown="x"), Notice(markdown="x")):
        assert not int(str(render_content(other, delivery_id="d")["flags"])) & 4096
