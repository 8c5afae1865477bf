"""Reads e-mails, with their attachments."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from typing import cast

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import left_out_page
from core.knowledge.parsing.child import read_document
from core.knowledge.parsing.encodings import decode_text

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_TEXTS = ("text/plain", "text/html")
_ADDRESS = re.compile(r"://\S*+|\s++")
_STUB_SHARE = 0.5


def read_mail(content: bytes, limits: ParseLimits) -> Document:
    """Reads an e-mail: its headers, texts and attachments. Names and counts the attachments that cannot be read."""
    message = cast(MIMEPart, email.message_from_bytes(content, policy=email.policy.default))
    shown = dict[str, str]()
    for name in _HEADERS:
        if value := message[name]:
            written = next(str(raw) for key, raw in message.raw_items() if key.lower() == name.lower())
            # old programs write headers without naming their encoding
            is_plain = written.isascii()
            shown[name] = str(value) if is_plain else decode_text(written.encode("utf-8", "surrogateescape"))
    headers, pages, unread = [f"{name}: {text}" for name, text in shown.items()], list[Page](), 0
    for part in _parts(message, limits):
        name = "" if _is_text(part) else part.get_filename() or f"attachment {len(headers) - len(shown) + 1}"
        try:
            pages += _read_part(part, limits, name)
            headers += [f"Attachment: {name}"] if name else []
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            # a library may raise anything for a broken file; the rest of the e-mail may be intact
            if name or not (isinstance(error, Unreadable) and error.reason == "empty"):
                unread += 1
                headers.append(f"Attachment, not shown: {name or 'the text'}")
    head = Page(None, "", "\n".join(headers))
    left_out = left_out_page({"attachment": unread})
    return Document(title=shown.get("Subject", ""), kind="eml", pages=(head, *left_out, *pages))


def _parts(message: MIMEPart, limits: ParseLimits) -> Iterator[MIMEPart]:
    """Yields the texts and attachments of an e-mail. Of alternative versions of a text, yields only one."""
    if not message.is_multipart() or message.get_content_maintype() == "message":
        yield message
        return
    parts = [inner for part in message.iter_parts() for inner in _parts(part, limits)]
    if message.get_content_subtype() == "alternative" and (texts := [part for part in parts if _is_text(part)]):
        sizes = [_count_characters(part, limits) for part in texts]
        # the first version is the plainest, but may be only a note that the program cannot show HTML
        best = next(at for at, size in enumerate(sizes) if size >= max(sizes) * _STUB_SHARE)
        others = {*texts} - {texts[best]}
        parts = [part for part in parts if part not in others]
    yield from parts


def _is_text(part: MIMEPart) -> bool:
    return part.get_content_type() in _TEXTS and not part.is_attachment() and not part.get_filename()


def _count_characters(part: MIMEPart, limits: ParseLimits) -> int:
    try:
        return sum(len(_ADDRESS.sub("", page.text)) for page in _read_part(part, limits, ""))
    except Unreadable:
        return 0


def _read_part(part: MIMEPart, limits: ParseLimits, name: str) -> Iterator[Page]:
    """Yields the pages of a text or attachment. `name` is empty for the e-mail's own text."""
    attached = part.get_payload(0) if part.get_content_type() == "message/rfc822" else None
    content = attached.as_bytes() if isinstance(attached, EmailMessage) else cast(bytes, part.get_payload(decode=True))
    if part.get_content_maintype() == "text":
        content = decode_text(content, part.get_content_charset("")).encode("utf-8", "replace")
    kind = "eml" if attached else part.get_content_subtype()
    document = read_document(content, name if "." in name else f"{name or 'text'}.{kind}", limits)
    for page in document.pages:
        place = " ".join(filter(None, (f"page {page.number}" if page.number else "", page.place)))
        yield Page(None, ": ".join(filter(None, (name, place))), page.text)
