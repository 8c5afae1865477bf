"""Marking text that came from strangers, files or pages as data, in a way that the text itself cannot forge."""

import hashlib
import re

_SOURCE_CHARACTERS_MAX = 120
_MARK_CHARACTERS = 10


def fenced(text: str, *, source: str) -> str:
    """The text between marks that do not occur in it. The same text gets the same marks, which keeps caches true."""
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
