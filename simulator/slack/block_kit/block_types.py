"""Block Kit's block types: the fields of each, and their limits."""

from typing import Final, cast

from simulator.slack.block_kit import elements
from simulator.slack.block_kit.elements import TYPE, any_text, mrkdwn, plain_text
from simulator.slack.block_kit.schema import (
    Check,
    Flaw,
    address,
    any_key_of,
    anything,
    array,
    boolean,
    both,
    by_type,
    integer,
    number,
    one_of,
    string,
    table,
)
from simulator.slack.events.payloads import Payload, as_payload

MESSAGE_BLOCKS_MAX: Final = 50
VIEW_BLOCKS_MAX: Final = 100
MARKDOWN_CHARS_MAX: Final = 12_000
_BLOCK_ID = string(255)


def _block(fields: dict[str, Check], *required: str) -> Check:
    return table({"type": TYPE, "block_id": _BLOCK_ID, **fields}, *required)


def _rich_text_part(value: object) -> None:
    part = as_payload(value)
    if part is None:
        raise Flaw("must be an object")
    if part.get("type") not in _RICH_PARTS:
        raise Flaw(f"unsupported type: {part.get('type')}")
    if part["type"] == "text" and not isinstance(part.get("text"), str):
        raise Flaw("missing required field: text")


_RICH_PARTS = (*("text", "link", "emoji", "user", "usergroup", "channel"), *("team", "date", "broadcast", "color"))
_PARTS = array(_rich_text_part, most=5000, least=0)
_SECTION_PART = table({"type": TYPE, "elements": _PARTS}, "elements")
_BORDER = integer(0, 1)
_RICH_ELEMENT = by_type(
    {
        "rich_text_section": _SECTION_PART,
        "rich_text_quote": table({"type": TYPE, "elements": _PARTS, "border": _BORDER}, "elements"),
        "rich_text_preformatted": table(
            {"type": TYPE, "elements": _PARTS, "border": _BORDER, "language": string(50)}, "elements"
        ),
        "rich_text_list": table(
            {
                "type": TYPE,
                "style": one_of("bullet", "ordered"),
                "indent": integer(0, 8),
                "offset": integer(0, 10_000),
                "border": _BORDER,
                "elements": array(by_type({"rich_text_section": _SECTION_PART}), most=5000, least=0),
            },
            "style",
            "elements",
        ),
    }
)
_RICH_TEXT = _block({"elements": array(_RICH_ELEMENT, most=5000, least=0)}, "elements")
_ONE_RICH_TEXT = by_type({"rich_text": _RICH_TEXT})
_SOURCE = by_type({"url": table({"type": TYPE, "url": address(), "text": string(500)}, "url")})
_TASK_CARD = _block(
    {
        "task_id": string(255),
        "title": string(1000),
        "details": _ONE_RICH_TEXT,
        "output": _ONE_RICH_TEXT,
        "sources": array(_SOURCE, most=50, least=0),
        "status": one_of("pending", "in_progress", "complete", "error"),
    },
    "task_id",
    "title",
)
_IMAGE = both(
    _block(
        {"image_url": address(), "slack_file": anything, "alt_text": string(2000), "title": plain_text(2000)},
        "alt_text",
    ),
    any_key_of("image_url", "slack_file", is_exclusive=True),
)
_ICON = by_type({"image": elements.IMAGE_ELEMENT})
_CARD = both(
    _block(
        {
            "hero_image": _ICON,
            "icon": _ICON,
            "title": any_text(150),
            "subtitle": any_text(150),
            "body": any_text(200),
            "actions": array(by_type({"button": elements.PICKERS["button"]}), most=3),
        }
    ),
    any_key_of("hero_image", "title", "actions", "body"),
)
_CELL = by_type(
    {
        "raw_text": table({"type": TYPE, "text": string(10_000)}, "text"),
        "raw_number": table({"type": TYPE, "value": number(), "text": string(1000)}, "value", "text"),
        "rich_text": _RICH_TEXT,
    }
)


def _data_table(value: object) -> None:
    """The rules between the rows of a data table: one length for all, and a header without rich text."""
    rows = cast(Payload, value)["rows"]
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise Flaw("all rows must have the same number of cells").at(index).at("rows")
    if any(cell["type"] == "rich_text" for cell in rows[0]):
        raise Flaw("unsupported type: rich_text").at(0).at("rows")


_LABEL = string(20)
_POINT = table({"label": _LABEL, "value": number()}, "label", "value")
_SEGMENT = table({"label": _LABEL, "value": number(is_positive=True)}, "label", "value")
_SERIES = table({"name": _LABEL, "data": array(_POINT, most=20)}, "name", "data")
_AXES = table({"categories": array(_LABEL, most=20), "x_label": string(50), "y_label": string(50)}, "categories")
_XY = table({"type": TYPE, "series": array(_SERIES, most=6), "axis_config": _AXES}, "series", "axis_config")


def _series(value: object) -> None:
    """The rules between the series of a chart: names of their own, and a point for each category in its order."""
    chart = cast(Payload, value)
    names = [one["name"] for one in chart["series"]]
    if len(set(names)) != len(names):
        raise Flaw("series names must be unique").at("series")
    for index, one in enumerate(chart["series"]):
        if [point["label"] for point in one["data"]] != chart["axis_config"]["categories"]:
            raise Flaw("data labels must match the categories").at("data").at(index).at("series")


_CHART = by_type(
    {
        "pie": table({"type": TYPE, "segments": array(_SEGMENT, most=6)}, "segments"),
        **dict.fromkeys(("bar", "area", "line"), both(_XY, _series)),
    }
)
_COLUMN = table({"align": one_of("left", "center", "right"), "is_wrapped": boolean})
_COMMON: dict[str, Check] = {
    "section": both(
        _block(
            {
                "text": any_text(3000),
                "fields": array(any_text(2000), most=10),
                "accessory": by_type(elements.ACCESSORIES),
                "expand": boolean,
            }
        ),
        any_key_of("text", "fields"),
    ),
    "header": _block({"text": plain_text(150)}, "text"),
    "divider": _block({}),
    "image": _IMAGE,
    "actions": _block({"elements": array(by_type(elements.PICKERS), most=25)}, "elements"),
    "context": _block(
        {
            "elements": array(
                by_type({"image": elements.IMAGE_ELEMENT, "mrkdwn": mrkdwn(3000), "plain_text": plain_text(3000)}),
                most=10,
            )
        },
        "elements",
    ),
    "input": _block(
        {
            "label": plain_text(2000),
            "hint": plain_text(2000),
            "element": by_type(elements.INPUTS),
            "optional": boolean,
            "dispatch_action": boolean,
        },
        "label",
        "element",
    ),
    "rich_text": _RICH_TEXT,
    "video": _block(
        {
            "alt_text": string(2000),
            "video_url": address(),
            "thumbnail_url": address(),
            "title": plain_text(199),
            "title_url": address(),
            "description": plain_text(200),
            "provider_icon_url": address(),
            "provider_name": string(50),
            "author_name": string(49),
        },
        "alt_text",
        "video_url",
        "thumbnail_url",
        "title",
    ),
}
_CONTENT: dict[str, Check] = {
    **_COMMON,
    "markdown": _block({"text": string(MARKDOWN_CHARS_MAX)}, "text"),
    "table": _block(
        {"rows": array(array(_CELL, most=20), most=100), "column_settings": array(_COLUMN, most=20, least=0)}, "rows"
    ),
    "data_table": both(
        _block(
            {
                "caption": string(2000),
                "rows": array(array(_CELL, most=20), most=101, least=2),
                "page_size": integer(1, 100),
                "row_header_column_index": integer(0, 19),
            },
            "caption",
            "rows",
        ),
        _data_table,
    ),
    "data_visualization": _block({"title": string(50), "chart": _CHART}, "title", "chart"),
    "alert": _block({"text": any_text(200), "level": one_of("default", "info", "warning", "error", "success")}, "text"),
    "card": _CARD,
    "carousel": _block({"elements": array(by_type({"card": _CARD}), most=10)}, "elements"),
    "context_actions": _block({"elements": array(by_type(elements.CONTEXT_ACTIONS), most=5)}, "elements"),
    "task_card": _TASK_CARD,
    "plan": _block(
        {"title": string(1000), "tasks": array(by_type({"task_card": _TASK_CARD}), most=50, least=0)}, "title"
    ),
}
_MESSAGE: dict[str, Check] = {
    **_CONTENT,
    "file": _block({"external_id": string(255), "source": one_of("remote")}, "external_id"),
    "container": both(
        _block(
            {
                "title": plain_text(150),
                "rich_text_title": anything,
                "subtitle": any_text(150),
                "child_blocks": array(by_type(_CONTENT), most=10),
                "width": one_of("narrow", "standard", "wide", "full"),
                "icon": anything,
                "is_collapsible": boolean,
                "default_collapsed": boolean,
                "has_header_divider": boolean,
            },
            "child_blocks",
        ),
        any_key_of("title", "rich_text_title"),
    ),
}
MESSAGE_BLOCKS = array(by_type(_MESSAGE), most=MESSAGE_BLOCKS_MAX, least=0)
VIEW_BLOCKS = array(by_type(_COMMON), most=VIEW_BLOCKS_MAX, least=0)
