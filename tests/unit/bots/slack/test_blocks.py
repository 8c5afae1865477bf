"""Content as Slack messages: within every limit, no field that Slack does not know, and no mention that pings."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.run_view import RunView, Task, ViewState, apply_event
from bots.slack import limits
from bots.slack.events.parse import parse_click
from bots.slack.events.payload_fields import get_objects, get_text
from bots.slack.render.messages import RenderedMessage, render_content
from bots.slack.render.mrkdwn import neutralize_mentions
from bots.slack.render.rich_text import markdown_to_rich_text
from core.domain.actions import AskAnswered
from core.domain.approval import CHOICES
from core.domain.events import ChecklistItem, RunFailed
from core.domain.json import JsonObject
from core.domain.schedules import build_commands
from core.domain.threads import Ask, Person
from simulator.slack.block_kit.message_rules import check_message_blocks
from tests.support.narrow import require_type
from tests.unit.bots.slack.events.test_parse import KNOWN, fixture

words = st.text(max_size=60) | st.sampled_from(
    ["", " ", "<!channel>", "@here " * 400, "&" * 3500, "x" * 13_000, "😀" * 2000, "\n" * 50]
)
tasks = st.builds(Task, call_id=words, title=words, state=st.sampled_from(["running", "done", "failed"]), detail=words)
items = st.builds(ChecklistItem, text=words, state=st.sampled_from(["pending", "active", "done", "blocked"]))
views = st.builds(
    RunView,
    state=st.sampled_from(["queued", "working", "waiting", "completed", "asking", "stopped", "failed", "limited"]),
    activity=words,
    tasks=st.lists(tasks, max_size=45).map(tuple),
    tasks_dropped=st.integers(0, 500),
    checklist_title=words,
    checklist=st.lists(items, max_size=60).map(tuple),
    preview=words,
    message=words,
    can_stop=st.booleans(),
    can_retry=st.booleans(),
    can_continue=st.booleans(),
)
asks = st.builds(
    Ask,
    ask_id=st.just("a-1"),
    run_id=st.just("r-1"),
    text=words,
    options=st.lists(words, max_size=130).map(tuple),
    state=st.sampled_from(["open", "answered", "withdrawn", "expired"]),
    answer=st.none() | words,
    answered_by=st.none() | st.builds(Person, person_id=st.just("U1"), name=words),
)
MENTION_ELEMENTS = {"user", "usergroup", "channel", "broadcast", "team"}
PING = re.compile(r"<[!@#]|(?<!\w)@(channel|here|everyone|group)\b", re.IGNORECASE)


def checked(content: Content) -> RenderedMessage:
    drawing = render_content(content)
    check_message_blocks(list(drawing.blocks))
    assert 0 < len(drawing.text) <= limits.FALLBACK_TEXT_MAX
    assert 0 < len(drawing.blocks) <= limits.BLOCKS_MAX
    assert "<" not in drawing.text
    # rich text is literal: only its mention elements, which are never made, would notify people
    parsed = [block for block in drawing.blocks if block["type"] != "rich_text"]
    assert all(neutralize_mentions(shown) == shown for shown in texts(parsed))
    assert not MENTION_ELEMENTS & set(element_types(list(drawing.blocks)))
    return drawing


def element_types(value: object) -> list[str]:
    if isinstance(value, dict):
        return [str(value.get("type")), *element_types(list(value.values()))]
    return [one for item in value for one in element_types(item)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() if key != "value" for found in texts(item)]
    if isinstance(value, list):
        return [found for item in value for found in texts(item)]
    return [value] if isinstance(value, str) else []


def kinds(drawing: RenderedMessage) -> list[str]:
    return [get_text(block, "type") for block in drawing.blocks]


def controls(drawing: RenderedMessage) -> list[JsonObject]:
    return [
        element for block in drawing.blocks if block["type"] == "actions" for element in get_objects(block, "elements")
    ]


@given(views)
def test_any_run_is_drawn_within_the_limits(view: RunView):
    checked(RunStatus(run_id="r-1", view=view))


@given(asks)
def test_any_question_is_drawn_within_the_limits(ask: Ask):
    checked(AskPrompt(ask=ask))


@given(words, st.integers(1, 3))
def test_any_answer_is_drawn_within_the_limits(markdown: str, parts: int):
    checked(AnswerPart(markdown=markdown, part=1, parts=parts))


cells = st.text(max_size=20).map(lambda text: text.replace("\n", " ")) | st.sampled_from(
    ["", "|", "\\|", "1.5", "-2", "`<!channel>`", "**bold** @here", "[a](https://a.example)", "1e9"]
)


@given(words, st.lists(st.lists(cells, max_size=24), max_size=130), st.integers(1, 24))
def test_any_table_is_drawn_within_the_limits(around: str, rows: list[list[str]], width: int):
    lines = ["| head " * width + "|", "|---" * width + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    markdown = f"{around[:2000]}\n\n" + "\n".join(lines)[: limits.ANSWER_MAX - 2100] + f"\n\n{around[:50]}"
    drawing = checked(AnswerPart(markdown=markdown))
    check_message_blocks(list(drawing.plain_blocks))


TABLE = """Sales rose.

| Region | **Sales** | Link |
|---|---:|---|
| North | 12.5 | [report](https://a.example/r) |
| South | 1,200 |

That is all."""


def test_a_table_can_be_sorted_and_keeps_its_links():
    before, table, after = render_content(AnswerPart(markdown=TABLE)).blocks
    assert [get_text(one, "text") for one in (before, after)] == ["Sales rose.", "That is all."]
    link: JsonObject = {"type": "link", "url": "https://a.example/r", "text": "report"}
    line: JsonObject = {"type": "rich_text_section", "elements": [link]}
    assert table == {
        "type": "data_table",
        "caption": "Region, Sales, Link",
        "page_size": 2,
        "rows": [
            [{"type": "raw_text", "text": title} for title in ("Region", "Sales", "Link")],
            [
                {"type": "raw_text", "text": "North"},
                {"type": "raw_number", "value": 12.5, "text": "12.5"},
                {"type": "rich_text", "elements": [line]},
            ],
            [{"type": "raw_text", "text": text} for text in ("South", "1,200", " ")],
        ],
    }


@pytest.mark.parametrize(
    "markdown",
    [
        f"{TABLE}\n\n{TABLE}",
        "| a |\n|---|",
        "| a |\n|---|" + "\n| 1 |" * 101,
        "|a" * 21 + "|\n" + "|---" * 21 + "|\n" + "|1" * 21 + "|",
        f"```\n{TABLE}\n```",
    ],
    ids=["several", "no rows", "too long", "too wide", "code"],
)
def test_what_is_no_single_table_of_slacks_size_stays_markdown(markdown: str):
    drawing = render_content(AnswerPart(markdown=markdown))
    assert drawing.blocks == drawing.plain_blocks
    assert kinds(drawing) == ["markdown"]


@given(words, st.sampled_from(["info", "warning", "error"]))
def test_any_notice_is_drawn_within_the_limits(markdown: str, level: str):
    checked(Notice(markdown=markdown, level=level))


def test_an_answer_at_the_limit_of_the_surface_loses_nothing():
    markdown = "@channel " * (limits.ANSWER_MAX // 9)
    (block,) = checked(AnswerPart(markdown=markdown)).blocks
    assert get_text(block, "text") == markdown.replace("@", "＠")


@pytest.mark.parametrize(
    "call",
    [
        *("<!channel>", "<!here|here>", "<!everyone>", "<!subteam^S1|@crew>", "<@U123>", "<@W1|x>"),
        *("<#C123|general>", "@channel", "(@Here)", "@everyone!", "_@channel_", "x_@here", "__@group__"),
    ],
)
def test_what_the_model_writes_pings_nobody(call: str):
    (block,) = checked(AnswerPart(markdown=f"Look {call} now")).blocks
    assert not PING.search(get_text(block, "text"))


def test_addresses_and_code_stay_as_they_are():
    markdown = "mail a@here.org, see <https://example.com>, `@dataclass`, <!-- note -->, x <b>"
    (block,) = checked(AnswerPart(markdown=markdown)).blocks
    assert get_text(block, "text") == markdown


CODE = ["<!channel>", "List<@NonNull String>", "@group()", "<@U123>", "@here", "a <#C1|x> b"]


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize(
    "markdown", ["Use `{}`, **all** of you.", "```java\n{}\n```", "- one\n  - `{}`", "> `{}`", "# `{}`"]
)
def test_code_keeps_every_character_and_pings_nobody(markdown: str, code: str):
    drawing = checked(AnswerPart(markdown=markdown.format(code)))
    assert any(code in shown for shown in texts(list(drawing.blocks)))


@pytest.mark.parametrize("mark", ["`", "~"])
def test_only_the_block_with_the_mention_in_its_code_becomes_rich_text(mark: str):
    fence = mark * 3
    markdown = f"# One\n\n@here is **two**\n\n{fence}py\n@group()\n\nx\n{fence}\n\n| a |\n|---|\n| 1 |"
    checked(AnswerPart(markdown=markdown))
    first, code, last = render_content(AnswerPart(markdown=markdown)).plain_blocks
    assert first == {"type": "markdown", "text": "# One\n\n＠here is **two**"}
    assert code == {
        "type": "rich_text",
        "elements": [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "@group()\n\nx"}]}],
    }
    assert last == {"type": "markdown", "text": "| a |\n|---|\n| 1 |"}


@given(st.lists(st.sampled_from([*CODE, "`", "```", "\n", "\n\n", "- ", "> ", "  ", "# ", "|", "x"])))
def test_any_mix_of_code_and_mentions_is_drawn_within_the_limits(pieces: list[str]):
    checked(AnswerPart(markdown="".join(pieces)))


def test_a_notification_is_plain_words():
    drawing = checked(
        AnswerPart(markdown="# Sales\n**Up** by `3`, see [more](https://x.org)\n- _one_\n```py\nx = 1\n```")
    )
    assert drawing.text == "Sales\nUp by 3, see more\none\nx = 1"


def test_a_run_under_way_shows_state_checklist_steps_and_stop():
    view = RunView(
        state="working",
        activity="Running `ls <x>`",
        tasks=(
            Task(call_id="1", title="`ls`", state="done"),
            Task(call_id="2", title="`cat`", state="failed", detail="no such file"),
        ),
        tasks_dropped=3,
        checklist_title="Plan",
        checklist=(ChecklistItem(text="Look", state="done"), ChecklistItem(text="Do", state="active")),
        preview="So far",
    )
    drawing = checked(RunStatus(run_id="r-1", view=view))
    assert kinds(drawing) == ["section", "section", "plan", "context", "actions"]
    head, checklist, plan, _, _ = drawing.blocks
    assert get_text(head, "text", "text") == ":gear: *Working* · Running `ls &lt;x&gt;`"
    assert get_text(checklist, "text", "text") == "*Plan*\n☑ Look\n▸ Do"
    assert get_text(plan, "title") == "Steps (3 earlier ones are not shown)"
    assert [get_text(card, "status") for card in get_objects(plan, "tasks")] == ["complete", "error"]
    assert [get_text(card, "task_id") for card in get_objects(plan, "tasks")] == ["step-4", "step-5"]
    assert [get_text(one, "action_id") for one in controls(drawing)] == ["run:stop"]
    assert drawing.text == "Working: Running `ls &lt;x&gt;`"


@pytest.mark.parametrize(
    ("state", "allowed", "action"),
    [("failed", {"can_retry": True}, "retry"), ("limited", {"can_continue": True}, "continue")],
)
def test_a_run_that_ended_badly_offers_the_way_on(state: ViewState, allowed: dict[str, bool], action: str):
    view = replace(RunView(state=state, can_stop=False, message="No luck."), **allowed)
    drawing = checked(RunStatus(run_id="r-1", view=view))
    assert [(get_text(one, "action_id"), get_text(one, "value")) for one in controls(drawing)] == [
        (f"run:{action}", "r-1")
    ]
    assert "No luck." in drawing.text


def test_the_last_event_of_a_run_takes_the_stop_button_away():
    failed = RunFailed(public_message="It broke.", can_retry=False)
    assert controls(checked(RunStatus(run_id="r", view=apply_event(RunView(), failed)))) == []


def ask(*options: str) -> AskPrompt:
    return AskPrompt(ask=Ask(ask_id="a-1", run_id="r-1", text="Which **one**?", options=options))


def chosen(drawing: RenderedMessage, at: int) -> str:
    """What a click on the option says, by way of a payload as Slack makes it of the message."""
    found = controls(drawing)
    if found[0]["type"] == "static_select":
        option = get_objects(found[0], "options")[at]
        action: JsonObject = {"action_id": found[0]["action_id"], "selected_option": option}
    else:
        action = {"action_id": found[at]["action_id"], "value": found[at]["value"]}
    parsed = require_type(parse_click({**fixture("button_pressed"), "actions": [action]}, KNOWN), AskAnswered)
    assert parsed.ask_id == "a-1"
    return parsed.text


def test_few_short_options_are_buttons():
    drawing = checked(ask("Red", "Blue", "Blue", " "))
    assert kinds(drawing) == ["markdown", "actions", "context"]
    assert [get_text(one, "text", "text") for one in controls(drawing)] == ["Red", "Blue"]
    assert chosen(drawing, 1) == "Blue"
    assert "replying in this thread" in str(drawing.blocks[-1])


@pytest.mark.parametrize("count", [1, 5, 6, 26, 100, 101, 500])
@pytest.mark.parametrize("length", [10, 140])
def test_every_option_can_be_chosen_however_many_there_are(count: int, length: int):
    options = [f"{number} ".ljust(length, "x") for number in range(count)]
    drawing = checked(ask(*options))
    found = controls(drawing)
    values: list[str] = []
    for one in found:
        for option in get_objects(one, "options") or [one]:
            click = {**one, "value": "", "selected_option": option}
            action = click if get_objects(one, "options") else one
            parsed = require_type(parse_click({**fixture("button_pressed"), "actions": [action]}, KNOWN), AskAnswered)
            assert parsed.ask_id == "a-1"
            values.append(parsed.text)
    assert values == options
    assert len({get_text(one, "action_id") for one in found}) == len(found)
    assert "more options" not in str(drawing.blocks)


def test_more_options_than_menus_take_are_counted():
    drawing = checked(ask(*(f"Option {number}" for number in range(1030))))
    assert "30 more options" in str(drawing.blocks)


def test_long_options_are_written_out_and_chosen_by_number():
    options = [f"{number} " + "long " * 40 for number in range(7)]
    drawing = checked(ask(*options))
    assert [get_text(one, "text", "text") for one in controls(drawing)] == list("1234567")
    assert chosen(drawing, 6) == options[6].strip()


@pytest.mark.parametrize(("count", "length"), [(26, 140), (300, 60)])
def test_options_that_a_menu_would_cut_are_told_apart_by_their_numbers(count: int, length: int):
    drawing = checked(ask(*(f"{number}".rjust(length, "x") for number in range(count))))
    labels = [get_text(option, "text", "text") for one in controls(drawing) for option in get_objects(one, "options")]
    assert [label.partition(". x")[0] for label in labels] == [str(number) for number in range(1, count + 1)]
    whole = controls(checked(ask(*(f"Option {number}" for number in range(26)))))
    assert get_text(get_objects(whole[0], "options")[0], "text", "text") == "Option 0"


def test_a_question_without_options_asks_for_a_reply():
    assert kinds(checked(ask())) == ["markdown", "context"]


def test_an_answered_question_shows_who_and_what_and_no_controls():
    answered = replace(
        ask("Red", "Blue").ask,
        state="answered",
        answer="Blue & <green>",
        answered_by=Person(person_id="U1", name="*alice* [b](c)"),
    )
    drawing = checked(AskPrompt(ask=answered))
    assert controls(drawing) == []
    assert drawing.blocks[-1]["text"] == r"✅ **\*alice\* \[b\](c)** answered: Blue & \<green\>"


APPROVAL = Ask(ask_id="a-1", run_id="r-1", text="May I?", options=CHOICES, kind="approval")


def test_an_approval_shows_what_is_a_yes_and_what_a_no() -> None:
    drawing = checked(AskPrompt(ask=APPROVAL))
    (row,) = [block for block in drawing.blocks if block["type"] == "actions"]
    elements: Any = row["elements"]
    shown = [(one["text"]["text"], one.get("style")) for one in elements]
    assert shown == list(zip(CHOICES, ("primary", None, "danger"), strict=True))
    assert "plain yes or no" in str(drawing.blocks[-1])


@pytest.mark.parametrize(("answer", "sign"), [("Approve once", "✅"), ("Deny", "❌"), ("no", "❌")])
def test_an_answered_approval_shows_whether_it_was_a_yes(answer: str, sign: str) -> None:
    bob = Person(person_id="U2", name="bob")
    answered = replace(APPROVAL, state="answered", answer=answer, answered_by=bob)
    drawing = checked(AskPrompt(ask=answered))
    assert drawing.blocks[-1]["text"] == f"{sign} **bob** answered: {answer}"


def test_an_answered_approval_has_the_buttons_of_what_was_approved() -> None:
    answered = replace(APPROVAL, state="answered", answer="Approve once")
    commands = build_commands("k7m2xqab")
    assert "Pause" not in str(checked(AskPrompt(ask=APPROVAL, commands=commands)).blocks)
    (row,) = [one for one in checked(AskPrompt(ask=answered, commands=commands)).blocks if one["type"] == "actions"]
    elements: Any = row["elements"]
    assert {one["text"]["text"]: one["value"] for one in elements} == commands


def test_an_approval_that_nobody_gave_says_so_without_buttons() -> None:
    drawing = checked(AskPrompt(ask=replace(APPROVAL, state="expired")))
    assert [block["type"] for block in drawing.blocks] == ["markdown", "context"]
    assert "No one answered in time." in str(drawing.blocks)


def test_a_list_goes_on_with_its_numbers_after_a_nested_list():
    written = markdown_to_rich_text("3. three\n   1. a\n   2. b\n4. four\n5. five\n   - point\n6. six\n\n* bullet\n")
    lists = [(one["indent"], one.get("offset"), len(one["elements"])) for one in get_objects(written, "elements")]
    assert lists == [(0, 2, 1), (1, None, 2), (0, 3, 2), (1, None, 1), (0, 5, 1), (0, None, 1)]
