"""Reads zip archives: the list of their files, and one file on demand."""

import io
import zipfile

from core.knowledge.document import Document, Page, ParseLimits, Unreadable
from core.knowledge.parsing.child import read_document

_LISTED_MAX = 2_000
_ENCRYPTED = 0x1
_LIST = "[an archive of {count:,} files, {size:,} bytes unpacked; page 2 shows the first of them, page 3 the second]"


def read_zip(content: bytes, limits: ParseLimits, wanted_page: int = 1) -> Document:
    """Lists the files of an archive as page 1. For a higher `wanted_page`, unpacks and reads the file of that page.
    Raises Unreadable, for example for a file that unpacks to too many bytes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) > limits.zip_parts_max:
            raise Unreadable("unpacked")
        size = sum(member.file_size for member in members)
        lines = [_LIST.format(count=len(members), size=size)]
        for number, member in enumerate(members[:_LISTED_MAX], start=2):
            year, month, day, hour, minute, _ = member.date_time
            moment = f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
            lines.append(f"{number}. {member.filename} ({member.file_size:,} bytes, {moment})")
        if len(members) > _LISTED_MAX:
            lines.append(f"[{len(members) - _LISTED_MAX:,} more files are not listed]")
        pages = [Page(1, "", "\n".join(lines))]
        if 2 <= wanted_page <= len(members) + 1:
            member = members[wanted_page - 2]
            if member.flag_bits & _ENCRYPTED:
                raise Unreadable("protected")
            if member.file_size > limits.file_bytes_max:
                raise Unreadable("unpacked")
            # zipfile stops at the size that the archive declares
            document = read_document(archive.read(member), member.filename, limits)
            texts = (f"[page {page.number}]\n{page.text}" if page.number else page.text for page in document.pages)
            pages.append(Page(wanted_page, member.filename, "\n\n".join(texts)))
    return Document(title="", kind="zip", pages=tuple(pages))
