"""Block Kit is enforced as the platform enforces it."""

from typing import Any

import pytest

from bots.slack.render.rich_text import markdown_to_rich_text
from simulator.slack.block_kit.message_rules import check_message_blocks
from simulator.slack.events.payloads import Refused
from simulator.slack.people.block_view import mrkdwn_of


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text}


def button(**more: Any) -> dict[str, Any]:
    return {"type": "button", "text": plain("Go"), **more}


def section(**more: Any) -> dict[str, Any]:
    return {"type": "section", **more}


def actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def select(**more: Any) -> dict[str, Any]:
    return {"type": "static_select", **more}


def option(**more: Any) -> dict[str, Any]:
    return {"text": plain("a"), "value": "a", **more}


def data_table(*rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"type": "data_table", "caption": "a", "rows": list(rows), **more}


def chart(**more: Any) -> dict[str, Any]:
    return {"type": "data_visualization", "title": "a", "chart": more}


def bars(name: str = "s", label: str = "x", count: int = 1) -> dict[str, Any]:
    point = {"label": label, "value": 1}
    series = [{"name": f"{name}{number}", "data": [point]} for number in range(count)]
    return chart(type="bar", series=series, axis_config={"categories": ["x"]})


WORD: dict[str, Any] = {"type": "raw_text", "text": "a"}
RICH: dict[str, Any] = {"type": "rich_text", "elements": []}
SEGMENT = {"label": "a", "value": 1}


@pytest.mark.parametrize(
    "block",
    [
        data_table([WORD]),
        data_table(*[[WORD]] * 102),
        data_table([WORD, WORD], [WORD]),
        data_table([RICH], [WORD]),
        {"type": "data_table", "rows": [[WORD], [WORD]]},
        chart(type="pie", segments=[SEGMENT] * 7),
        chart(type="pie", segments=[{"label": "a", "value": 0}]),
        bars(count=7),
        bars(name="s" * 20),
        bars(label="y"),
    ],
)
def test_data_that_slack_does_not_draw_is_refused(block: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="invalid_blocks"):
        check_message_blocks([block])


BAD = [
    (section(text=mrkdwn("x" * 3001)), "must be less than 3001 characters", "0/text/text"),
    (section(text=mrkdwn("")), "must be more than 0 characters", "0/text/text"),
    (section(), "must define either `text` or `fields`", "0"),
    (section(fields=[mrkdwn("a")] * 11), "no more than 10 items allowed", "0/fields"),
    (section(fields=[mrkdwn("x" * 2001)]), "must be less than 2001 characters", "0/fields/0/text"),
    ({"type": "header", "text": mrkdwn("a")}, "unsupported type: mrkdwn", "0/text"),
    ({"type": "header", "text": plain("x" * 151)}, "must be less than 151 characters", "0/text/text"),
    ({"type": "nothing"}, "unsupported type: nothing", "0"),
    ({"type": "context", "elements": [mrkdwn("a")] * 11}, "no more than 10 items allowed", "0/elements"),
    (actions(*[button()] * 26), "no more than 25 items allowed", "0/elements"),
    (actions(), "no less than 1 items required", "0/elements"),
    (actions(button(text=plain("x" * 76))), "must be less than 76 characters", "0/elements/0/text/text"),
    (actions(button(value="x" * 2001)), "must be less than 2001 characters", "0/elements/0/value"),
    (actions(button(url="javascript:x")), "must be a valid URL", "0/elements/0/url"),
    (actions(button(action_id="x" * 256)), "must be less than 256 characters", "0/elements/0/action_id"),
    (actions(select(options=[option()] * 101)), "no more than 100 items allowed", "0/elements/0/options"),
    (
        actions(select(options=[option(text=plain("x" * 76))])),
        "must be less than 76 characters",
        "0/elements/0/options/0/text/text",
    ),
    (
        actions(select(options=[option(value="x" * 151)])),
        "must be less than 151 characters",
        "0/elements/0/options/0/value",
    ),
    (
        actions(button(action_id="a"), button(action_id="a")),
        "`action_id` a already exists",
        "0/elements",
    ),
    (
        {"type": "task_card", "task_id": "1", "title": "a", "status": "done"},
        "must be one of: pending, in_progress, complete, error",
        "0/status",
    ),
    ({"type": "plan", "title": "a", "tasks": [{"type": "divider"}]}, "unsupported type: divider", "0/tasks/0"),
    ({"type": "markdown", "text": "x" * 12_001}, "must be less than 12001 characters", "0/text"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "sentence", "place"), BAD)
def test_a_broken_rule_is_named_with_its_place(block: dict[str, Any], sentence: str, place: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_message_blocks([block])
    assert refusal.value.code == "invalid_blocks"
    assert refusal.value.messages == (f"[ERROR] {sentence} [json-pointer:/blocks/{place}]",)


def test_a_message_has_fifty_blocks_at_most() -> None:
    assert len(check_message_blocks([{"type": "divider"} for _ in range(50)])) == 50
    with pytest.raises(Refused) as refusal:
        check_message_blocks([{"type": "divider"} for _ in range(51)])
    assert refusal.value.answer()["response_metadata"] == {
        "messages": ["[ERROR] no more than 50 items allowed [json-pointer:/blocks]"]
    }


def test_too_much_text_in_all_blocks_is_refused() -> None:
    for blocks in (
        [{"type": "markdown", "text": "x" * 6001} for _ in range(2)],
        [section(text=mrkdwn("x" * 3000)) for _ in range(5)],
    ):
        with pytest.raises(Refused) as refusal:
            check_message_blocks(blocks)
        assert refusal.value.code == "msg_blocks_too_long"


def test_rich_text_is_shown_with_its_styles() -> None:
    text = "**All:** 6300, see [the *page*](https://example.com/a)\n\n- `report.md`, as asked\n\n1. ~~no~~\n\n> said"
    assert mrkdwn_of(markdown_to_rich_text(text)).split("\n") == [
        "*All:* 6300, see <https://example.com/a|the >_<https://example.com/a|page>_",
        "• `report.md`, as asked",
        "1. ~no~",
        "> said",
    ]
