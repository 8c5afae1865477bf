"""Extracts the text, links, forwarded messages and files of a Slack message."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from bots.inbound.commands.short_replies import BLANK
from bots.slack.events.payload_fields import get_int, get_object, get_objects, get_text
from bots.slack.render.mrkdwn import MRKDWN_CHARACTERS_MAX, block_lines, message_mrkdwn, mrkdwn_to_text
from core.domain.json import JsonObject
from core.domain.outside_text import quote_lines, safe_file_name, single_line
from core.domain.threads import IncomingFile

FILES_MAX = 50
FORWARDS_MAX = 10
FORWARD_CHARACTERS_MAX = 4000
NAME_CHARACTERS_MAX = 255
APP_ATTACHMENTS_MAX = 20
APP_FIELDS_MAX = 50
TABLE_CELLS_MAX = 4_000
TABLE_COLUMNS_MAX = 50
TABLE_CHARACTERS_MAX = 40_000
"""More than a Slack message can hold, so that only forged payloads are truncated."""
_GONE = frozenset({"tombstone", "hidden_by_limit"})


def build_message_text(message: JsonObject, names: Mapping[str, str], *, bot_user_id: str) -> str:
    """Returns the message's text, followed by pasted tables, hidden link targets, external files and forwarded
    messages."""
    lines = [mrkdwn_to_text(message_mrkdwn(message), names, removed_user_id=bot_user_id)]
    if get_text(message, "bot_id") or "bot_profile" in message:
        shown = (*_block_texts(message, names), *_attachment_texts(message, names))
        lines += [one for one in shown if one not in lines[0]]
    else:
        lines += [f"Shown below a link:\n{quote_lines(one)}" for one in _attachment_texts(message, names) if one]
    lines += _tables(table_rows(message), names)
    lines += [f"[Link: {url}]" for url in dict.fromkeys(_urls(message)) if url not in lines[0]]
    lines += [
        f"[Linked file: {safe_file_name(get_text(file, 'name') or get_text(file, 'title'))} ({_address(file)})]"
        for file in get_objects(message, "files")
        if _is_elsewhere(file)
    ]
    lines += [
        f"[The file {get_text(file, 'name')!r} was removed.]" if get_text(file, "name") else "[A file was removed.]"
        for file in get_objects(message, "files")
        if get_text(file, "mode") in _GONE
    ]
    lines += _forwards(message, names)
    return "\n".join(line for line in lines if line).strip(BLANK)


def parse_files(message: JsonObject) -> tuple[IncomingFile, ...]:
    """Returns the files that Slack hosts, including those of forwarded messages."""
    shared = [one for one in get_objects(message, "attachments") if _is_forward(one)]
    found = (
        file
        for holder in (message, *shared[:FORWARDS_MAX])
        for file in get_objects(holder, "files")
        if not _is_elsewhere(file)
    )
    return tuple(
        IncomingFile(
            file_ref=build_file_ref(
                get_text(file, "id"), get_text(file, "url_private_download") or get_text(file, "url_private")
            ),
            name=(get_text(file, "name") or get_text(file, "title") or "file")[:NAME_CHARACTERS_MAX],
            mime_type=get_text(file, "mimetype") or "application/octet-stream",
            size_bytes=get_int(file, "size"),
        )
        for file in found
        if get_text(file, "id") and get_text(file, "mode") not in _GONE
    )[:FILES_MAX]


def build_file_ref(file_id: str, url: str) -> str:
    """Returns a reference with the file's id and, if known, its URL. Slack Connect messages have only the id."""
    return f"{file_id} {url}".rstrip()


def _is_elsewhere(file: JsonObject) -> bool:
    return file.get("is_external") is True or get_text(file, "mode") == "external"


def _address(file: JsonObject) -> str:
    """Returns the URL of a file that Slack does not host, for example a file in a cloud drive."""
    names = ("external_url", "url_private", "permalink")
    return next((url for name in names if (url := get_text(file, name))), "address unknown")


def _urls(message: JsonObject) -> Iterator[str]:
    """Yields the link targets in the rich text. Most of them are also in the plain text."""
    pending: list[JsonValue] = list(reversed(get_objects(message, "blocks")))
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if get_text(node, "type") == "link" and get_text(node, "url"):
                yield get_text(node, "url").replace("mailto:", "", 1)
            elements = node.get("elements")
            pending += reversed(elements) if isinstance(elements, list) else ()


def _tables(rows: Iterator[list[JsonValue]], names: Mapping[str, str], cells_max: int = TABLE_CELLS_MAX) -> list[str]:
    """Returns the first rows of the tables that the author pasted, and how many rows are left out."""
    kept, cells, room = list[str](), 0, TABLE_CHARACTERS_MAX
    for row in rows:
        cells += len(row[:TABLE_COLUMNS_MAX])
        if cells > cells_max or room <= 0:
            return ["Table:", *kept, f"({1 + sum(1 for _ in rows):,} more rows are left out)"]
        shown = [_cell_text(cell, names) for cell in row[:TABLE_COLUMNS_MAX]]
        kept.append(f"| {' | '.join(shown)} |"[:room])
        room -= len(kept[-1]) + 1
    return ["Table:", *kept] if kept else []


def table_rows(*messages: JsonObject) -> Iterator[list[JsonValue]]:
    """Yields the rows of the tables that the author pasted, each as a list of cells. Slack puts pasted tables into an
    attachment that has no other text, with the fallback "[no preview available]"
    (github.com/vercel/chat/issues/803)."""
    return (
        row
        for message in messages
        for holder in (message, *_own_attachments(message))
        for block in get_objects(holder, "blocks")
        if get_text(block, "type") in ("table", "data_table")
        if isinstance(rows := block.get("rows"), list)
        for row in rows
        if isinstance(row, list)
    )


def _own_attachments(message: JsonObject) -> list[JsonObject]:
    return [one for one in get_objects(message, "attachments") if not _is_forward(one)][:APP_ATTACHMENTS_MAX]


def _cell_text(cell: JsonValue, names: Mapping[str, str]) -> str:
    """Returns the text of a `rich_text`, `raw_text` or `raw_number` cell in one line."""
    if not isinstance(cell, dict):
        return ""
    if get_text(cell, "type") == "rich_text":
        written = " ".join(block_lines([cell]))[:TABLE_CHARACTERS_MAX]
        text = mrkdwn_to_text(written, names)
    else:
        value = cell.get("text", cell.get("value"))
        text = str(value) if isinstance(value, str | int | float) else ""
    return " ".join(text[:TABLE_CHARACTERS_MAX].split()).replace("|", "\\|")


def _forwards(message: JsonObject, names: Mapping[str, str]) -> Iterator[str]:
    found = [one for one in get_objects(message, "attachments") if _is_forward(one)][:FORWARDS_MAX]
    for attachment in found:
        author = get_text(attachment, "author_name") or get_text(attachment, "author_id")
        # Slack puts the blocks of the message into `message_blocks`
        inner = [get_object(one, "message") for one in get_objects(attachment, "message_blocks")]
        holders = [attachment, *inner[:FORWARDS_MAX]]
        written = next((text for one in holders if (text := message_mrkdwn(one)).strip()), "")
        parts = [mrkdwn_to_text(written, names)]
        parts += [one for holder in holders for one in _attachment_texts(holder, names)]
        text = "\n".join(dict.fromkeys(filter(None, parts)))[:FORWARD_CHARACTERS_MAX]
        text = "\n".join([text, *_tables(table_rows(*holders), names, TABLE_CELLS_MAX // len(found))]).strip()
        if text:
            yield f"Forwarded from {single_line(author) or 'somebody'}:\n{quote_lines(text)}"


def _is_forward(attachment: JsonObject) -> bool:
    return attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True


def _attachment_texts(message: JsonObject, names: Mapping[str, str]) -> Iterator[str]:
    """Yields the text that an app shows in each attachment: title, text, fields and blocks."""
    for attachment in _own_attachments(message):
        shown = [_attachment_text(attachment, name, names) for name in ("pretext", "author_name")]
        title, link = (_attachment_text(attachment, name, names) for name in ("title", "title_link"))
        shown.append(f"{title} ({link})" if title and link else title)
        shown.append(_attachment_text(attachment, "text", names))
        shown += [
            f"{get_text(field, 'title')}: {_attachment_text(field, 'value', names)}"
            for field in get_objects(attachment, "fields")[:APP_FIELDS_MAX]
        ]
        shown += _block_texts(attachment, names)
        shown.append(_attachment_text(attachment, "footer", names))
        whole = "\n".join(one for one in shown if one)
        # for blocks without text, such as a table, Slack's fallback states only that there is no preview
        yield whole or ("" if "blocks" in attachment else _attachment_text(attachment, "fallback", names))


def _block_texts(holder: JsonObject, names: Mapping[str, str]) -> list[str]:
    lines = block_lines(get_objects(holder, "blocks"))
    return [text for line in lines if (text := mrkdwn_to_text(line[:MRKDWN_CHARACTERS_MAX], names))]


def _attachment_text(holder: JsonObject, name: str, names: Mapping[str, str]) -> str:
    return mrkdwn_to_text(get_text(holder, name)[:MRKDWN_CHARACTERS_MAX], names)
