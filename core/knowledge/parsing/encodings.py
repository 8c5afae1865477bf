"""Decodes texts whose encoding is not known."""

import codecs
import re
from contextlib import suppress
from unicodedata import category

from core.knowledge.document import Unreadable

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ASCII = bytes((*range(0x20, 0x7F), *b"\0\t\n\r\f"))
_SAMPLE_BYTES = 8192
_LEGACY_SAMPLE_BYTES = 100_000
_WESTERN, _DOS = "cp1252", "cp850"
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that have no meaning in cp1252. In cp850, which DOS used, they are ü, ì, Å, É and Ø."""
_LATIN = frozenset(("cp1250", "cp1254", "cp1257", "iso8859-2", "iso8859-15", "iso8859-16"))
_CONFIDENCE_MIN = 0.02
_LATIN_CONFIDENCE_MIN = 0.04
_HIGH_BYTE = re.compile(rb"[\x80-\xff]")
_FOREIGN_LETTER = re.compile(r"[^\W\d_a-zA-Z]")
_FOREIGN_LETTER_IN_ASCII_WORD = re.compile(r"(?<=[a-zA-Z])[^\W\d_a-zA-Z]|[^\W\d_a-zA-Z](?=[a-zA-Z])")


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
        if (wide := _detect_utf16(content)) is None:
            raise Unreadable("unsupported")
        return wide, b""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(content)
    damaged = text.count("\ufffd") - content.count("\ufffd".encode())
    if damaged * 10 <= len(content) - len(text):  # at most a few among many characters
        return "utf-8", b""
    with suppress(UnicodeError, LookupError):
        name = codecs.lookup(declared).name
        content.decode(name)
        return (_WESTERN if name == "iso8859-1" else name), b""
    return _detect_legacy(content), b""


def _detect_utf16(content: bytes) -> str | None:
    """Detects UTF-16 without a byte order mark. Read in the right byte order, nearly everything is text, and some of it
    is ASCII. Returns None if neither order fits."""
    sample, found = content[: min(len(content), _SAMPLE_BYTES) & ~1], dict[str, int]()
    # not ASCII text with zeros between its words, because pairs of ASCII letters read as East Asian characters
    is_foreign = len(sample.translate(None, _ASCII)) * 5 > len(sample)
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, "replace")
        count = sum(map(str.isascii, text))
        odd = sum(category(one) in ("Cc", "Cn") and not one.isspace() for one in text)
        is_text = (odd + text.count("\ufffd")) * 100 <= len(text)
        if count and is_text and (is_foreign or count * 2 > len(text)):
            found[encoding] = count
    return max(found, key=found.__getitem__, default=None)


def _detect_legacy(content: bytes) -> str:
    """Returns an encoding older than Unicode: the Western European one, unless another encoding is likely."""
    import chardet  # takes 2 MB, which a process saves until it reads a text that is not Unicode

    first = _HIGH_BYTE.search(content)
    start = content.rfind(b"\n", 0, first.start()) + 1 if first else 0
    sample = content[start : start + _LEGACY_SAMPLE_BYTES]
    guess = chardet.detect(
        sample, encoding_era=chardet.EncodingEra.MODERN_WEB, prefer_superset=True, compat_names=False
    )
    encoding = guess["encoding"] or _WESTERN
    western = _DOS if _UNDEFINED.search(sample) else _WESTERN
    if guess["confidence"] < (_LATIN_CONFIDENCE_MIN if encoding in _LATIN else _CONFIDENCE_MIN):
        return western
    if encoding in _LATIN:
        return encoding
    # only accented letters occur inside words of ASCII letters, not letters of other scripts
    text = sample.decode(encoding, "ignore")
    inside = len(_FOREIGN_LETTER_IN_ASCII_WORD.findall(text))
    return western if inside * 2 > len(_FOREIGN_LETTER.findall(text)) else encoding
