"""Fast token estimates for messages, tools and images, which are usually slightly higher than the true counts."""

import base64
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message

LOW_TOKENS = 85
TILE_TOKENS = 170
TILE_PIXELS = 512
LONG_SIDE_PIXELS = 2048
SHORT_SIDE_PIXELS = 768
UNKNOWN_TOKENS = 1024
UNKNOWN_SIZE = (1024, 1024)
HEAD_CHARACTERS = 64 * 1024
_PIXELS_MAX = 100_000
_NO_SIZE = frozenset((0xC4, 0xC8, 0xCC))
"""JPEG markers in the range of the frame headers that are not frame headers (ITU T.81, table B.1)."""


def image_tokens(size: tuple[int, int] | None, detail: str = "auto") -> int:
    """Returns the token count of an image by OpenAI's rule.

    In low detail, an image costs 85 tokens. Otherwise it is scaled so that its short side has 768 pixels and its long
    side at most 2048 pixels, and costs 85 tokens plus 170 for each tile of 512 by 512 pixels. `size` is the width and
    height in pixels, or None if unknown."""
    if detail == "low":
        return LOW_TOKENS
    if size is None and detail != "high":
        return UNKNOWN_TOKENS
    width, height = size or UNKNOWN_SIZE
    scale = min(SHORT_SIDE_PIXELS / min(width, height), LONG_SIDE_PIXELS / max(width, height))
    tiles = math.ceil(width * scale / TILE_PIXELS) * math.ceil(height * scale / TILE_PIXELS)
    return TILE_TOKENS * tiles + LOW_TOKENS


def data_url_image_size(url: str) -> tuple[int, int] | None:
    """Returns the width and height of an image in a data URL, or None for other URLs and unknown formats."""
    head, comma, body = url[: HEAD_CHARACTERS + 100].partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    whole = body[: len(body) // 4 * 4]
    try:
        return image_size(base64.b64decode(whole, validate=True))
    except ValueError:
        return None


def image_size(start: bytes) -> tuple[int, int] | None:
    """Returns the width and height of a PNG, GIF, JPEG or extended WebP image, or None if they cannot be read.

    `start` is the start of the file."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        size = int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
    elif start.startswith(b"GIF8"):
        size = int.from_bytes(start[6:8], "little"), int.from_bytes(start[8:10], "little")
    elif start.startswith(b"\xff\xd8"):
        size = next(_jpeg_sizes(start), (0, 0))
    elif start[:4] == b"RIFF" and start[8:16] == b"WEBPVP8X":
        wide, high = int.from_bytes(start[24:27], "little"), int.from_bytes(start[27:30], "little")
        size = (wide + 1, high + 1)
    else:
        return None
    return size if all(0 < side <= _PIXELS_MAX for side in size) else None


def _jpeg_sizes(start: bytes) -> Iterator[tuple[int, int]]:
    at = 2
    while at + 9 <= len(start) and start[at] == 0xFF:
        kind = start[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in _NO_SIZE:
            height, width = (int.from_bytes(start[i : i + 2], "big") for i in (at + 5, at + 7))
            yield width, height
        at += 2 + max(2, int.from_bytes(start[at + 2 : at + 4], "big"))


MESSAGE_TOKENS = 4
"""The number of tokens that every message has in addition to its text, for its role and delimiters."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_ASCII_WEIGHTS: Mapping[bytes, int] = {
    b"a": 200,
    b"k": 2100,
    b"A": 340,
    b"0": 415,
    b".": 300,
    b"n": 450,
    b" a": 560,
    b" o": 560,
    b".a": 1025,
    b"Aa": 995,
    b"a0": 2140,
    b" 0": 1750,
    b" .": 655,
    b".0": 1520,
    b"o ": 1285,
}
"""Thousandths of a token for each character of a class, and for each adjacent pair of classes.

The weights are fitted to the larger count of o200k_base and cl100k_base for prose in about 80 languages, code, data and
logs (docs/developers/adr/0006). Tokenizers know the words of English best. Other languages in Latin letters are
recognised by letters that are rare in English, and by words that end in a vowel.
"""
_BLOCKS = (
    (0xF0, b"F", 2655),  # emoji
    (0xEE, b"P", 1405),
    (0xEA, b"K", 1150),  # Korean
    (0xE4, b"Z", 1250),  # Chinese
    (0xE3, b"J", 1115),  # Japanese
    (0xE2, b"P", 1405),  # punctuation and symbols
    (0xE1, b"V", 860),  # Vietnamese, Georgian, Khmer
    (0xE0, b"I", 1335),  # the scripts of India, Thai
    (0xD8, b"B", 1115),  # Arabic
    (0xD6, b"H", 1345),  # Hebrew
    (0xD4, b"R", 2610),  # Armenian
    (0xD2, b"D", 3680),  # Cyrillic of Kazakh, for example
    (0xD0, b"C", 700),  # Cyrillic
    (0xCE, b"G", 1150),  # Greek
    (0xC4, b"L", 2040),  # Latin letters of Polish or Turkish, for example
    (0xC3, b"E", 1100),  # Latin letters of French or German, for example
    (0x80, b"S", 1015),
)
"""The smallest first byte of the UTF-8 sequences of each class of characters outside of ASCII, the class, and its
weight."""
_ALL_WEIGHTS: Mapping[bytes, int] = {
    **_ASCII_WEIGHTS,
    **{name: weight for _, name, weight in _BLOCKS},
    b" I": 1555,  # the words of India are shorter than those of Thai, which has few spaces
    b"VV": 2625,  # two in a row are Georgian or Khmer, and one alone is Vietnamese
}
_CHARACTER_MIN = 63
"""Thousandths of a token that any character counts on average, so that blanks and vowels without end are not free."""
SHORT_CHARACTERS_MAX = 100


def _classes() -> bytes:
    """Returns a table that maps each byte to its character class.

    ASCII has the classes lower-case letter (a), vowel other than e (o), letter that is rare in English (k), upper-case
    letter (A), digit (0), space, other white space (n), and other character (.). The class of any other character
    depends on its Unicode block, which the first byte of its UTF-8 sequence tells."""

    def of(byte: int) -> str:
        character = chr(byte)
        if byte >= 0x80:
            return next(name.decode() for first, name, _ in _BLOCKS if byte >= first)
        if character.islower():
            return "k" if character in "jk" else "o" if character in "aiou" else "a"
        if character.isalpha():
            return "A"
        if character.isdigit():
            return "0"
        return " " if character == " " else "n" if character.isspace() else "."

    return "".join(map(of, range(256))).encode()


_CLASSES = _classes()


def count_text(text: str) -> int:
    """Returns the estimated token count of a text, usually slightly too high. Takes about 20 ns per character."""
    return _count(text) if len(text) > SHORT_CHARACTERS_MAX else _count_short(text)


def _count(text: str) -> int:
    classes = text.encode("utf-8", "surrogatepass").translate(_CLASSES, _CONTINUATION_BYTES)
    count = classes.count
    weights = _ASCII_WEIGHTS if text.isascii() else _ALL_WEIGHTS
    thousandths = sum([weight * count(what) for what, weight in weights.items()])
    return -(-max(thousandths, _CHARACTER_MIN * len(text)) // 1000)


# short texts are cached because tool names and schema keys occur in every model call
_count_short = lru_cache(maxsize=4096)(_count)


def first_tokens(text: str, tokens_max: int, *, from_end: bool = False) -> str:
    """Returns the longest beginning of a text, or its longest end, with at most this many tokens."""
    cut = bisect_right(
        range(len(text) + 1),
        tokens_max,
        key=lambda length: count_text(text[len(text) - length :] if from_end else text[:length]),
    )
    return text[len(text) - cut + 1 :] if from_end else text[: cut - 1]


def count_message(content: JsonObject) -> int:
    """Returns the estimated token count of a message as sent to a model, with its images, calls and reasoning."""
    tokens = MESSAGE_TOKENS + _count_parts(content.get("content"))
    calls = content.get("tool_calls")
    if isinstance(calls, list):
        tokens += sum(_count_call(call) for call in calls)
    return tokens + sum(_count_value(content.get(key)) for key in ("name", "tool_call_id", REASONING_KEY))


def count_tools(schemas: Sequence[JsonObject]) -> int:
    """Returns the estimated token count of a request's tool schemas."""
    return sum(MESSAGE_TOKENS + _count_value(schema) for schema in schemas)


def with_token_count(message: Message) -> Message:
    """Returns the message with its token count, which stays 0 for messages that are never sent to a model."""
    if message.token_count or not message.is_llm_message:
        return message
    return replace(message, token_count=count_message(message.content))


def message_tokens(message: Message) -> int:
    """Returns the message's stored token count, or a new estimate if the message has none."""
    return message.token_count or count_message(message.content)


def _count_parts(content: JsonValue) -> int:
    if isinstance(content, str):
        return count_text(content)
    if not isinstance(content, list):
        return 0
    return sum(_count_part(part) for part in content)


def _count_part(part: JsonValue) -> int:
    if not isinstance(part, dict):
        return _count_value(part)
    image = part.get("image_url")
    if image is None:
        return _count_value(part.get("text"))
    shown: JsonObject = image if isinstance(image, dict) else {"url": image}
    url, detail = shown.get("url"), shown.get("detail") or part.get("detail")
    size = data_url_image_size(url) if isinstance(url, str) else None
    return image_tokens(size, str(detail or "auto"))


def _count_call(call: JsonValue) -> int:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return _count_value(call)
    parts = (call.get("id"), function.get("name"), function.get("arguments"))
    return MESSAGE_TOKENS + sum(_count_value(part) for part in parts)


def _count_value(value: JsonValue) -> int:
    """Returns the estimated token count of a JSON value written as text."""
    if isinstance(value, str):
        return count_text(value)
    if isinstance(value, dict):
        return sum(count_text(key) + 2 + _count_value(one) for key, one in value.items())
    if isinstance(value, list):
        return sum(1 + _count_value(one) for one in value)
    return 0 if value is None else count_text(str(value))
