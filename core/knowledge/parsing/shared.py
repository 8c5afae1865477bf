"""Shared by several formats: decodes unknown encodings, renders Markdown tables."""

import codecs
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from unicodedata import category, east_asian_width

from core.knowledge.document import Unreadable

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_EAST_ASIAN = (
    # encoding, the character set with its common characters, and the lead bytes of these characters in that set
    ("gb18030", "gb2312", range(0xA1, 0xD8)),
    ("big5", "big5", range(0xA1, 0xC7)),
    ("shift_jis", "shift_jis", range(0x81, 0x98)),
    ("euc_kr", "euc_kr", range(0xA1, 0xC9)),
)
_EVERYDAY_SHARE_MIN = 0.85
_ASCII = bytes((*range(0x20, 0x7F), *b"\0\t\n\r\f"))
_SAMPLE_BYTES = 8192
_FOREIGN = re.compile("[^\0-\x7f]{1,40}")
_RUNS_MAX = 500


def decode_text(content: bytes, declared: str = "") -> str:
    """Decodes text. `declared` is the encoding that the file names. Raises Unreadable for binary content."""
    encoding, mark = detect_encoding(content, declared)
    return content[len(mark) :].decode(encoding, errors="replace")


def detect_encoding(content: bytes, declared: str = "") -> tuple[str, bytes]:
    """Returns the encoding of a text and its byte order mark, which may be empty. The text may end inside a character.

    `declared` is the encoding that the file names. Raises Unreadable for binary content."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return encoding, mark
    if b"\0" in content[:_SAMPLE_BYTES]:
        if (wide := _wide(content)) is None:
            raise Unreadable("unsupported")
        return wide, b""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(content)
    damaged = text.count("\ufffd") - content.count("\ufffd".encode())
    if damaged * 10 <= len(content) - len(text):  # at most a few of many characters
        return "utf-8", b""
    with suppress(UnicodeError, LookupError):
        name = codecs.lookup(declared).name
        content.decode(name)
        return ("cp1252" if name == "iso8859-1" else name), b""
    return _east_asian(content) or "cp1252", b""


def _wide(content: bytes) -> str | None:
    """Detects UTF-16 without a byte order mark: nearly all is text in one of the byte orders, and some of it ASCII."""
    sample, found = content[: min(len(content), _SAMPLE_BYTES) & ~1], dict[str, int]()
    # no ASCII text with zeros between its words, whose pairs of letters are East Asian characters
    is_foreign = len(sample.translate(None, _ASCII)) * 5 > len(sample)
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, "replace")
        count = sum(map(str.isascii, text))
        odd = sum(category(one) in ("Cc", "Cn") and not one.isspace() for one in text)
        is_text = (odd + text.count("\ufffd")) * 100 <= len(text)
        if count and is_text and (is_foreign or count * 2 > len(text)):
            found[encoding] = count
    return max(found, key=found.__getitem__, default=None)


def _east_asian(content: bytes) -> str | None:
    """Returns the East Asian encoding in which nearly all characters are common, or None."""
    best, best_share = None, _EVERYDAY_SHARE_MIN
    for encoding, everyday, leads in _EAST_ASIAN:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(content)
        except UnicodeDecodeError:
            continue
        share = _everyday_share(text, everyday, leads)
        if share > best_share:
            best, best_share = encoding, share
    return best


def _everyday_share(text: str, encoding: str, leads: range) -> float:
    runs = [run[0] for run in islice(_FOREIGN.finditer(text), _RUNS_MAX)]
    found = [_is_everyday(one, encoding, leads, len(run) == 1) for run in runs for one in run]
    return sum(found) / len(found) if found else 0.0


def _is_everyday(character: str, encoding: str, leads: range, is_alone: bool) -> bool:
    spelled = character.encode(encoding, "ignore")
    is_wide = east_asian_width(character) in ("W", "F") or character in "“”‘’…—·"
    # a letter of a Western word and the ASCII letter after it may look like one character: "it’s"
    is_swallowed = is_alone and spelled[-1:] < b"\x80"
    return is_wide and len(spelled) == 2 and spelled[0] in leads and not is_swallowed


def markdown_table(rows: Iterable[Sequence[str]], cells_max: float = math.inf) -> str:
    """Renders rows as a Markdown table with the first row as header. Skips empty rows and trailing empty columns.

    Raises Unreadable for too many cells. At most doubles a row, so that one wide row does not multiply the table."""
    kept, cells = list[list[str]](), 0
    for row in rows:
        cells += len(row) + 1
        if cells > cells_max:
            raise Unreadable("cells", str(cells_max))
        if trimmed := _trimmed(row):
            kept.append(trimmed)
    if not kept:
        return ""
    width = max(map(len, kept))
    kept[0] += [""] * (width - len(kept[0]))
    lines = [f"| {' | '.join(row + [''] * min(width - len(row), len(row)))} |" for row in kept]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def _trimmed(row: Sequence[str]) -> list[str]:
    cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells
