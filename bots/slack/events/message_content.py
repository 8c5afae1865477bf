"""What a Slack message says and carries: words, hidden links, forwarded messages, files."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from bots.slack.events.payload import children, number, text
from bots.slack.render.mrkdwn import plain
from bots.slack.render.rich_text import mrkdwn_of
from core.domain.messages import JsonObject
from core.domain.threads import IncomingFile

FILES_MAX = 50
FORWARDS_MAX = 10
FORWARD_CHARACTERS_MAX = 4000
NAME_CHARACTERS_MAX = 255
_GONE = frozenset({"tombstone", "hidden_by_limit"})


def message_text(message: JsonObject, names: Mapping[str, str], *, bot: str) -> str:
    """The words, then what they do not show: addresses behind rich-text links, files elsewhere, forwarded messages."""
    lines = [plain(mrkdwn_of(message), names, without=bot)]
    lines += [f"Link: {url}" for url in dict.fromkeys(_urls(message)) if url not in lines[0]]
    lines += [
        f"Link: {text(file, 'name')} ({text(file, 'external_url')})"
        for file in children(message, "files")
        if _is_elsewhere(file)
    ]
    lines += list(_forwards(message, names))[:FORWARDS_MAX]
    return "\n".join(line for line in lines if line)


def files(message: JsonObject) -> tuple[IncomingFile, ...]:
    """The files that Slack itself holds."""
    found = (file for file in children(message, "files") if not _is_elsewhere(file))
    return tuple(
        IncomingFile(
            file_ref=file_ref(text(file, "id"), _download_url(file)),
            name=(text(file, "name") or text(file, "title") or "file")[:NAME_CHARACTERS_MAX],
            mime_type=text(file, "mimetype") or "application/octet-stream",
            size_bytes=number(file, "size"),
        )
        for file in found
        if text(file, "id") and text(file, "mode") not in _GONE
    )[:FILES_MAX]


def file_ref(file_id: str, url: str) -> str:
    """The opaque name of a file: its id, and its address where the message told it (Slack Connect tells none)."""
    return f"{file_id} {url}".rstrip()


def _download_url(file: JsonObject) -> str:
    return text(file, "url_private_download") or text(file, "url_private")


def _is_elsewhere(file: JsonObject) -> bool:
    return file.get("is_external") is True or text(file, "mode") == "external"


def _urls(message: JsonObject) -> Iterator[str]:
    """The addresses of the rich text, most of which the plain text has too."""
    pending: list[JsonValue] = list(children(message, "blocks"))
    while pending:
        node = pending.pop(0)
        if isinstance(node, dict):
            if text(node, "type") == "link" and text(node, "url"):
                yield text(node, "url").replace("mailto:", "", 1)
            elements = node.get("elements")
            pending = [*(elements if isinstance(elements, list) else []), *pending]


def _forwards(message: JsonObject, names: Mapping[str, str]) -> Iterator[str]:
    for attachment in children(message, "attachments"):
        if not (attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True):
            continue
        author = text(attachment, "author_name") or text(attachment, "author_id")
        words = plain(text(attachment, "text"), names)[:FORWARD_CHARACTERS_MAX]
        quoted = "\n".join(f"> {line}" for line in words.splitlines())
        if quoted:
            yield f"Forwarded from {author or 'somebody'}:\n{quoted}"
