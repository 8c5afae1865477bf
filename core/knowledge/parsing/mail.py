"""Reads e-mails, with their attachments."""

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from typing import cast

from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.child import read_document
from core.knowledge.parsing.encodings import decode_text
from core.knowledge.parsing.model import name_left_out

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read_mail(content: bytes, limits: ParseLimits) -> Document:
    """Reads an e-mail: its headers and text, then its attachments. Names and counts those that cannot be read."""
    message = email.message_from_bytes(content, policy=email.policy.default)
    headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]]
    body = message.get_body(("plain", "html"))
    pages = list(_read_part(body, limits, "")) if body is not None else []
    unread = 0
    for number, part in enumerate(message.iter_attachments(), start=1):
        name = part.get_filename() or f"attachment {number}"
        try:
            pages += _read_part(part, limits, name)
            headers.append(f"Attachment: {name}")
        except (MemoryError, RecursionError):
            raise
        except Exception:
            # a library may raise anything for a broken file; the rest of the e-mail may be intact
            unread += 1
            headers.append(f"Attachment, not shown: {name}")
    head = Page(None, "", "\n".join(headers))
    return Document(
        title=str(message["Subject"] or ""), kind="eml", pages=(head, *name_left_out({"attachment": unread}), *pages)
    )


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
