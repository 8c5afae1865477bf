"""Blocks as elements of the page, with an id for each control that is unique in its message."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from simulator.slack.events.payloads import Payload, as_payload, as_payloads
from simulator.slack.shapes import page_url
from simulator.slack.world import Message, Workspace
from simulator.view import Button, Divider, Element, Markdown, Picture, Select, SelectOption, TaskCard

_MARKS = {"code": "`", "strike": "~", "italic": "_", "bold": "*"}
_USER: Final = re.compile(r"<@(\w+)(?:\|[^>]*)?>")
_STYLES: Final[dict[str, Literal["primary", "danger"]]] = {"primary": "primary", "danger": "danger"}


def draw_message(workspace: Workspace, message: Message) -> tuple[Element, ...]:
    """The elements of a message: its blocks, or its text where it has none."""
    drawn: list[Element] = []
    if message.blocks and message.is_bot:
        drawn.extend(draw_blocks(workspace, message.blocks))
    elif message.text:
        drawn.append(Markdown(text=named(workspace, message.text), flavour="mrkdwn"))
    for attachment in message.attachments:
        text = str(attachment.get("text") or attachment.get("fallback") or "")
        if text:
            drawn.append(Markdown(text=named(workspace, text), flavour="mrkdwn", size="small"))
        drawn.extend(draw_blocks(workspace, as_payloads(attachment.get("blocks"))))
    return tuple(drawn)


def draw_blocks(workspace: Workspace, blocks: list[Payload]) -> Iterator[Element]:
    """The blocks of a message or view as elements."""
    for block in blocks:
        yield from draw_block(workspace, block)


def named(workspace: Workspace, text: str) -> str:
    """The text with the ids of people replaced by their names."""
    if "<@" not in text:
        return text
    members = workspace.members
    return _USER.sub(lambda m: f"@{members[m[1]].name}" if m[1] in members else m[0], text)


def draw_block(workspace: Workspace, block: Payload) -> Iterator[Element]:
    """One block as elements. For a type that the page cannot draw, its name stands there."""
    match block["type"]:
        case "divider":
            yield Divider()
        case "header":
            yield Markdown(text=block["text"]["text"], flavour="plain", size="header")
        case "markdown":
            yield Markdown(text=named(workspace, block["text"]), flavour="markdown")
        case "section":
            yield from _section(workspace, block)
        case "context":
            yield from _context(workspace, block)
        case "image":
            yield Picture(url=_picture_url(workspace, block), alt=block["alt_text"])
        case "actions" | "context_actions":
            for element in as_payloads(block["elements"]):
                yield from draw_control(workspace, block["block_id"], element)
        case "rich_text":
            yield Markdown(text=named(workspace, mrkdwn_of(block)), flavour="mrkdwn")
        case _:
            yield from _composed(workspace, block)


def _composed(workspace: Workspace, block: Payload) -> Iterator[Element]:
    match block["type"]:
        case "plan":
            yield Markdown(text=block["title"], flavour="plain")
            for task in as_payloads(block.get("tasks")):
                yield _task(workspace, task)
        case "task_card":
            yield _task(workspace, block)
        case "alert":
            yield _text(workspace, block["text"])
        case "table" | "data_table":
            yield Markdown(text=named(workspace, _table(block)), flavour="markdown")
        case "data_visualization":
            yield Markdown(text=block["title"], flavour="plain")
            yield Markdown(text=_chart_table(block["chart"]), flavour="markdown")
        case "container":
            yield from _container(workspace, block)
        case "card":
            yield from _card(workspace, block, block["block_id"])
        case "carousel":
            for card in as_payloads(block["elements"]):
                yield from _card(workspace, card, block["block_id"])
        case "video":
            yield Picture(url=block["thumbnail_url"], alt=block["alt_text"])
        case "input":
            return  # a field of the form, see forms.py
        case unknown:
            yield Markdown(text=f"(unsupported block: {unknown})", flavour="plain")


def _text(workspace: Workspace, text: Payload, *, is_small: bool = False) -> Markdown:
    return Markdown(
        text=named(workspace, text["text"]),
        flavour="mrkdwn" if text["type"] == "mrkdwn" else "plain",
        size="small" if is_small else "normal",
    )


def _picture_url(workspace: Workspace, block: Payload) -> str:
    reference = as_payload(block.get("slack_file")) or {}
    stored = workspace.files.get(str(reference.get("id")))
    return page_url(workspace, stored) if stored is not None else str(block.get("image_url", ""))


def _section(workspace: Workspace, block: Payload) -> Iterator[Element]:
    text = as_payload(block.get("text"))
    if text is not None:
        yield _text(workspace, text)
    for entry in as_payloads(block.get("fields")):
        yield _text(workspace, entry)
    accessory = as_payload(block.get("accessory"))
    if accessory is not None:
        yield from draw_control(workspace, block["block_id"], accessory)


def _context(workspace: Workspace, block: Payload) -> Iterator[Element]:
    for element in as_payloads(block["elements"]):
        if element["type"] == "image":
            yield Picture(url=str(element.get("image_url", "")), alt=element["alt_text"])
        else:
            yield _text(workspace, element, is_small=True)


def _container(workspace: Workspace, block: Payload) -> Iterator[Element]:
    title = as_payload(block.get("title"))
    if title is not None:
        yield _text(workspace, title)
    for child in as_payloads(block["child_blocks"]):
        yield from draw_block(workspace, child)


def _card(workspace: Workspace, card: Payload, block_id: str) -> Iterator[Element]:
    for key in ("title", "subtitle", "body"):
        text = as_payload(card.get(key))
        if text is not None:
            yield _text(workspace, text)
    for element in as_payloads(card.get("actions")):
        yield from draw_control(workspace, block_id, element)


def _task(workspace: Workspace, task: Payload) -> TaskCard:
    details = as_payload(task.get("details"))
    output = as_payload(task.get("output"))
    parts = [plain_of(part) for part in (details, output) if part is not None]
    return TaskCard(
        title=task["title"],
        status=task.get("status", "pending"),
        detail=named(workspace, "\n".join(part for part in parts if part)),
    )


def _chart_table(chart: Payload) -> str:
    """The figures of a chart as a table, with a column for each series."""
    if chart["type"] == "pie":
        return _as_table([["pie", ""], *([one["label"], str(one["value"])] for one in chart["segments"])])
    rows = [[chart["type"], *(one["name"] for one in chart["series"])]]
    for at, category in enumerate(chart["axis_config"]["categories"]):
        rows.append([category, *(str(one["data"][at]["value"]) for one in chart["series"])])
    return _as_table(rows)


def _table(block: Payload) -> str:
    return _as_table([[_cell(cell) for cell in row] for row in block["rows"]])


def _as_table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"|{'---|' * len(rows[0])}")
    return "\n".join(lines)


def _cell(cell: Payload) -> str:
    text = plain_of(cell) if cell["type"] == "rich_text" else str(cell.get("text", cell.get("value")))
    return text.replace("|", "\\|").replace("\n", " ")


def plain_of(block: Payload) -> str:
    """The text of a rich_text block without its styles."""
    lines = ["".join(_parts(element)) for element in as_payloads(block.get("elements"))]
    return "\n".join(lines).strip("\n")


def mrkdwn_of(block: Payload) -> str:
    """The text of a rich_text block with its styles, lists, quotes and links, as Slack shows it."""
    shown: list[str] = []
    for element in as_payloads(block.get("elements")):
        match element.get("type"):
            case "rich_text_list":
                indent = "    " * int(element.get("indent", 0))
                first = int(element.get("offset", 0)) + 1
                for number, item in enumerate(as_payloads(element.get("elements")), first):
                    sign = f"{number}." if element.get("style") == "ordered" else "•"
                    shown.append(f"{indent}{sign} {_styled(item)}")
            case "rich_text_quote":
                shown += [f"> {line}" for line in _styled(element).split("\n")]
            case "rich_text_preformatted":
                shown.append(f"```\n{''.join(_parts(element))}\n```")
            case _:
                shown.append(_styled(element))
    return "\n".join(shown).strip("\n")


def _styled(element: Payload) -> str:
    return "".join(map(_styled_part, as_payloads(element.get("elements"))))


def _styled_part(part: Payload) -> str:
    text = "".join(_parts({"elements": [part]}))
    if part.get("type") == "link":
        text = f"<{part.get('url')}|{text}>"
    core = text.strip()
    if not core or "\n" in core:
        return text
    style, marked = as_payload(part.get("style")) or {}, core
    for name, mark in _MARKS.items():
        marked = f"{mark}{marked}{mark}" if style.get(name) else marked
    return text.replace(core, marked, 1)


def _parts(element: Payload) -> Iterator[str]:
    for part in as_payloads(element.get("elements")):
        match part.get("type"):
            case "rich_text_section":
                yield "".join((*_parts(part), "\n"))
            case "user":
                yield f"<@{part.get('user_id')}>"
            case "emoji":
                yield f":{part.get('name')}:"
            case "broadcast":
                yield f"@{part.get('range')}"
            case "link":
                yield str(part.get("text") or part.get("url"))
            case _:
                yield str(part.get("text", ""))


def draw_control(workspace: Workspace, block_id: str, element: Payload) -> Iterator[Element]:
    """A control of the page; its id is `<block_id>/<action_id>`."""
    control_id = f"{block_id}/{element.get('action_id', '')}"
    match element["type"]:
        case "button" | "workflow_button" | "icon_button":
            url = str(element.get("url", ""))
            yield Button(
                control_id=control_id,
                label=element["text"]["text"],
                style=_STYLES.get(str(element.get("style")), "link" if url else "normal"),
                url=url,
            )
        case "feedback_buttons":
            for kind in ("positive_button", "negative_button"):
                label = element[kind]["text"]["text"]
                yield Button(control_id=f"{control_id}#{kind}", label=label)
        case "image":
            yield Picture(url=str(element.get("image_url", "")), alt=element["alt_text"])
        case _:
            placeholder = as_payload(element.get("placeholder")) or {"text": ""}
            yield Select(control_id=control_id, placeholder=placeholder["text"], options=_choices(workspace, element))


def _choices(workspace: Workspace, element: Payload) -> tuple[SelectOption, ...]:
    kind = element["type"]
    if kind.endswith("users_select"):
        members = workspace.members.values()
        return tuple(SelectOption(value=kept.user_id, label=kept.name) for kept in members)
    if kind.endswith(("channels_select", "conversations_select")):
        channels = workspace.channels.values()
        return tuple(SelectOption(value=kept.channel_id, label=kept.name) for kept in channels)
    return tuple(SelectOption(value=option["value"], label=option["text"]["text"]) for option in options_of(element))


def options_of(element: Payload) -> list[Payload]:
    """The options of a menu, out of their groups."""
    groups = as_payloads(element.get("option_groups"))
    if groups:
        return [option for group in groups for option in as_payloads(group["options"])]
    return as_payloads(element.get("options"))
