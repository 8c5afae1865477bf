"""Text out of bytes of unknown encoding."""

import codecs
import unicodedata

from core.knowledge.formats.unreadable import Unreadable

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_EAST_ASIAN = (
    # encoding, the set that tells its everyday characters, and the lead bytes that these have there
    ("gb18030", "gb2312", range(0xA1, 0xD8)),
    ("big5", "big5", range(0xA1, 0xC7)),
    ("shift_jis", "shift_jis", range(0x81, 0x98)),
    ("euc_kr", "euc_kr", range(0xA1, 0xC9)),
)
_EVERYDAY_SHARE_MIN = 0.85
_SAMPLE_CHARACTERS = 4_000


def decoded(content: bytes, declared: str = "") -> str:
    """`declared` is what the file itself says. Raises Unreadable for what is no text."""
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
    """UTF-16 without a mark: in most of its pairs the same half is zero."""
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
    """The encoding under which nearly all characters are everyday ones, or None."""
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
