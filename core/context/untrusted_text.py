"""Cleans untrusted text: removes hidden characters, limits the length, and marks the text as data for the model."""

import hashlib
import re
import unicodedata

from pydantic import JsonValue

# characters that users cannot see but models read: control characters, joiners, direction marks, the tag block
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
_MARKS = re.compile(r"[^\x00-\u02ff\w\s]{33}")
"""More combining marks in a row than any script has, which normalization takes quadratic time to sort."""


def clean_text(text: str, characters_max: int) -> str:
    """Returns the text without control characters except newlines and tabs; lone surrogates become question marks.

    A text longer than `characters_max` is truncated, with a note that says how many characters are missing."""
    valid = text[: characters_max + 1].encode("utf-8", "replace").decode("utf-8")
    visible = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", valid.replace("\r\n", "\n"))
    if len(text) <= characters_max:
        return visible
    return f"{visible[:characters_max]}\n[{len(text) - characters_max} characters are left out]"


def clean_line(text: str, characters_max: int) -> str:
    """Returns the text as one line without invisible characters, truncated to `characters_max` characters."""
    valid = text[: characters_max * 4].encode("utf-8", "replace").decode("utf-8")
    text = valid if _MARKS.search(valid) else unicodedata.normalize("NFC", valid)
    words = " ".join(_HIDDEN.sub("", text.replace("\n", " ")).split())
    return words if len(words) <= characters_max else f"{words[: characters_max - 1]}…"


_SENTENCE_END = re.compile(r"[.!?:;][)\"'`]?(?=\s)|\n|[。！？]")


def clean_description(text: str, characters_max: int) -> str:
    """Returns the text without invisible characters; lines keep their breaks and indents.

    A longer text is truncated after a sentence, with a note that says how many characters are missing."""
    valid = text[: characters_max * 4].encode("utf-8", "replace").decode("utf-8")
    normal = valid if _MARKS.search(valid) else unicodedata.normalize("NFC", valid)
    lines = (_HIDDEN.sub("", line).rstrip() for line in normal.replace("\r\n", "\n").split("\n"))
    words = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    unread = max(0, len(text) - characters_max * 4)
    if len(words) <= characters_max and not unread:
        return words
    ends = [one.end() for one in _SENTENCE_END.finditer(words, 0, characters_max)]
    end = ends[-1] if ends and ends[-1] * 2 > characters_max else characters_max
    kept = words[:end].rstrip()
    return f"{kept} [{len(words) - len(kept) + unread} more characters are left out]"


def clean_json(value: JsonValue) -> JsonValue:
    """Returns the JSON value with lone surrogates in strings and keys replaced by question marks."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case list():
            return [clean_json(one) for one in value]
        case dict():
            return {key.encode("utf-8", "replace").decode("utf-8"): clean_json(one) for key, one in value.items()}
        case _:
            return value


_SOURCE_CHARACTERS_MAX = 120
_MARK_CHARACTERS = 10


def wrap_untrusted(text: str, *, source: str) -> str:
    """Returns the text between markers that do not occur in it, so that the text cannot end the marked part.

    Equal texts get equal markers, so that prompt caches stay valid. `source` names the origin of the text."""
    mark = _mark_for(text)
    name = " ".join(re.sub(r'[<>"]', "", source).split())[:_SOURCE_CHARACTERS_MAX]
    return f'<data mark="{mark}" source="{name}">\n{text}\n</data mark="{mark}">'


def wrap_message(text: str, *, author: str) -> str:
    """Returns a user's message between markers that do not occur in it, so that its text cannot end the message and
    continue in the name of another author."""
    mark = _mark_for(text)
    name = " ".join(re.sub(r'[<>"]', "", author).split())
    return f'<message from="{name}" mark="{mark}">\n{text}\n</message mark="{mark}">'


def unwrap_message(content: str) -> str:
    """Returns the text inside `wrap_message`, or after the author's line of older messages."""
    text = content.partition("\n")[2]
    return text.rpartition("\n</message mark=")[0] or text


def _mark_for(text: str) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    number = 0
    while True:
        digest = hashlib.sha256(b"%d:" % number + encoded).hexdigest()
        if (mark := digest[:_MARK_CHARACTERS]) not in text:
            return mark
        number += 1
