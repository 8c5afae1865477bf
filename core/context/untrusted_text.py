"""Untrusted text: cleaned of hidden characters, limited in length, and delimited as data for the model."""

import hashlib
import re
import unicodedata

from pydantic import JsonValue

# invisible to people but read by models: control characters, joiners, direction marks, the tag block
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)


def clean_text(text: str, characters_max: int) -> str:
    """Removes lone surrogates and control characters except newlines and tabs; truncates long text with a note."""
    valid = text[: characters_max + 1].encode("utf-8", "replace").decode("utf-8")
    visible = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", valid.replace("\r\n", "\n"))
    if len(text) <= characters_max:
        return visible
    return f"{visible[:characters_max]}\n[{len(text) - characters_max} characters are left out]"


def clean_line(text: str, characters_max: int) -> str:
    """Returns the text as one line for a description or a log, without invisible characters."""
    valid = text[: characters_max * 4].encode("utf-8", "replace").decode("utf-8")
    words = " ".join(
        _HIDDEN.sub("", unicodedata.normalize("NFC", valid).replace("\n", " ")).split()
    )
    return words if len(words) <= characters_max else f"{words[: characters_max - 1]}…"


def clean_json(value: JsonValue) -> JsonValue:
    """Replaces lone surrogates in every string and key of a JSON value."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case list():
            return [clean_json(one) for one in value]
        case dict():
            return {
                key.encode("utf-8", "replace").decode("utf-8"): clean_json(one)
                for key, one in value.items()
            }
        case _:
            return value


_SOURCE_CHARACTERS_MAX = 120
_MARK_CHARACTERS = 10


def wrap_untrusted(text: str, *, source: str) -> str:
    """Puts the text between markers that do not occur in it. Equal texts get equal markers, so caches stay valid."""
    mark = _mark_for(text)
    name = " ".join(re.sub(r'[<>"]', "", source).split())[:_SOURCE_CHARACTERS_MAX]
    return f'<data mark="{mark}" source="{name}">\n{text}\n</data mark="{mark}">'


def _mark_for(text: str) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    number = 0
    while True:
        digest = hashlib.sha256(b"%d:" % number + encoded).hexdigest()
        if (mark := digest[:_MARK_CHARACTERS]) not in text:
            return mark
        number += 1
