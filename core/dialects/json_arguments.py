"""Reading the arguments of a native call, with one careful attempt to mend what is not quite JSON."""

import re
from typing import cast

import jiter

from core.domain.messages import JsonObject

REPAIR_CHARACTERS_MAX = 1_000_000
EXCERPT_CHARACTERS = 120
# the end may be missing, so that a string without one is not looked for again from each quote inside it
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(")?', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_TRAILING_COMMA = re.compile(r",(\s*+)(?=[}\]])")
_CLOSERS = {"{": "}", "[": "]"}


def read_arguments(text: str) -> JsonObject:
    """The arguments as an object; empty text is an empty one.

    Mended once, if need be: raw line breaks in strings, trailing commas, a code fence around it, brackets missing at
    the very end. A string that does not end is never mended: it may be half of a file. Raises ValueError with a
    sentence for the model.
    """
    if not text or text.isspace():
        return {}
    try:
        value = loads(text)
    except ValueError as error:
        try:
            value = loads(_mended(text))
        except ValueError:
            raise ValueError(_complaint(text, error)) from error
    if isinstance(value, str):
        # some servers encode the object twice
        try:
            value = loads(value)
        except ValueError:
            value = None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("The arguments must be one JSON object. Nothing was run; call it again.")
    return cast(JsonObject, value)


def loads(text: str) -> object:
    """Strict JSON. Raises ValueError."""
    return cast(
        object,
        jiter.from_json(text.encode("utf-8", "replace"), allow_inf_nan=False, cache_mode="keys"),
    )


def _mended(text: str) -> str:
    if len(text) > REPAIR_CHARACTERS_MAX:
        raise ValueError("too long to mend")
    stripped = text.strip()
    if stripped.startswith("```"):
        stripped = stripped.partition("\n")[2].rstrip("`").rstrip()
    pieces: list[str] = []
    open_brackets: list[str] = []
    end = 0
    for match in _STRING.finditer(stripped):
        if match[1] is None:
            raise ValueError("a string does not end")
        pieces.append(_outside(stripped[end : match.start()], open_brackets))
        pieces.append(_CONTROL.sub(_escaped, match.group()))
        end = match.end()
    pieces.append(_outside(stripped[end:], open_brackets))
    closers = "".join(_CLOSERS[bracket] for bracket in reversed(open_brackets))
    # a comma before a bracket can only be seen once strings are set apart; they hold none of these pieces' commas
    return _without_trailing_commas([*pieces, closers])


def _outside(piece: str, open_brackets: list[str]) -> str:
    for character in piece:
        if character in "{[":
            open_brackets.append(character)
        elif character in "}]" and open_brackets:
            open_brackets.pop()
    return piece


def _without_trailing_commas(pieces: list[str]) -> str:
    if pieces[-1] and len(pieces) > 1:
        pieces[-2:] = [pieces[-2].rstrip().removesuffix(",") + pieces[-1]]
    return "".join(
        piece if piece.startswith('"') else _TRAILING_COMMA.sub(r"\1", piece) for piece in pieces
    )


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def _complaint(text: str, error: ValueError) -> str:
    excerpt = text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}..."
    return (
        f"The arguments are not valid JSON ({error}); they began with {excerpt!r}. Nothing was run; "
        "call it again with one JSON object, line breaks in strings written as \\n."
    )
