"""Shared by several formats: decodes unknown encodings, renders Markdown tables, checks office zip packages."""

import codecs
import io
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator, Sequence

from core.knowledge.document import DocumentKind, ParseLimits, Unreadable

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_EAST_ASIAN = (
    # encoding, the character set with its common characters, and the lead bytes of these characters in that set
    ("gb18030", "gb2312", range(0xA1, 0xD8)),
    ("big5", "big5", range(0xA1, 0xC7)),
    ("shift_jis", "shift_jis", range(0x81, 0x98)),
    ("euc_kr", "euc_kr", range(0xA1, 0xC9)),
)
_EVERYDAY_SHARE_MIN = 0.85
_SAMPLE_CHARACTERS = 4_000


def decode_text(content: bytes, declared: str = "") -> str:
    """Decodes text. `declared` is the encoding that the file names. Raises Unreadable for binary content."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    if (wide := _wide(content)) is not None:
        return content.decode(wide, errors="replace")
    if b"\0" in content[:8192]:
        raise Unreadable("unsupported")
    for encoding in filter(None, ("utf-8", declared)):
        try:
            return content.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return _east_asian(content) or content.decode("cp1252", errors="replace")


def _wide(content: bytes) -> str | None:
    """Detects UTF-16 without a byte order mark, in which the same byte of most pairs is zero."""
    head = content[:2000]
    pairs = len(head) // 2
    if pairs < 2:
        return None
    if head[1::2].count(0) > pairs * 0.6 and head[::2].count(0) < pairs * 0.1:
        return "utf-16-le"
    if head[::2].count(0) > pairs * 0.6 and head[1::2].count(0) < pairs * 0.1:
        return "utf-16-be"
    return None


def _east_asian(content: bytes) -> str | None:
    """Decodes with the East Asian encoding in which nearly all characters are common, or returns None."""
    best, best_share = None, _EVERYDAY_SHARE_MIN
    for encoding, everyday, leads in _EAST_ASIAN:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        share = _everyday_share(text, everyday, leads)
        if share > best_share:
            best, best_share = text, share
    return best


def _everyday_share(text: str, encoding: str, leads: range) -> float:
    sample = [character for character in text if ord(character) > 0x7F][:_SAMPLE_CHARACTERS]
    if not sample:
        return 0.0
    return sum(_is_everyday(character, encoding, leads) for character in sample) / len(sample)


def _is_everyday(character: str, encoding: str, leads: range) -> bool:
    if unicodedata.east_asian_width(character) not in ("W", "F") and character not in "“”‘’…—·":
        return False
    try:
        spelled = character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return len(spelled) == 2 and spelled[0] in leads


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """Renders rows as a Markdown table with the first row as header. Skips empty rows and trailing empty columns."""
    kept = [row for row in map(_trimmed, rows) if row]
    width = max(map(len, kept), default=0)
    if width == 0:
        return ""
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in kept]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def limit_cells(rows: Iterable[Sequence[str]], cells_max: int) -> Iterator[Sequence[str]]:
    """Yields the rows unchanged. Raises Unreadable if they have too many cells."""
    cells = 0
    for row in rows:
        cells += len(row) + 1
        if cells > cells_max:
            raise Unreadable("cells", str(cells_max))
        yield row


def _trimmed(row: Sequence[str]) -> list[str]:
    cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


_KINDS: tuple[tuple[str, DocumentKind], ...] = (
    ("word/document", "docx"),
    ("ppt/presentation", "pptx"),
    ("xl/workbook", "xlsx"),
)
_DECLARATIONS = tuple(
    mark.encode(encoding)
    for mark in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)
_PROLOGUE_BYTES = 65_536
_ENCRYPTED = 0x1


def package_kind(content: bytes) -> DocumentKind | None:
    """Returns the kind of office file that a zip archive is, or None. Raises Unreadable if it cannot be opened."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            names = package.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Unreadable("broken") from error
    return next(
        (kind for prefix, kind in _KINDS if any(name.startswith(prefix) for name in names)), None
    )


def check_package(content: bytes, limits: ParseLimits) -> None:
    """Raises Unreadable for a package that unpacks to too much, or whose XML declares entities.

    ECMA-376 part 2 forbids document type declarations, so a file with one is hostile. A part cannot unpack to more than
    its declared size, because zipfile stops at that size."""
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        parts = package.infolist()
        if len(parts) > limits.zip_parts_max:
            raise Unreadable("unpacked")
        if sum(part.file_size for part in parts) > limits.zip_bytes_max:
            raise Unreadable("unpacked")
        for part in parts:
            if part.flag_bits & _ENCRYPTED:
                raise Unreadable("protected")
            if part.filename.lower().endswith((".xml", ".rels", ".vml")):
                with package.open(part) as opened:
                    head = opened.read(_PROLOGUE_BYTES)
                if any(mark in head for mark in _DECLARATIONS):
                    raise Unreadable("hostile")
