"""What a picture costs a model, by its size: read from the first bytes of the file, without decoding it."""

import base64
import binascii
import math
from collections.abc import Iterator

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
"""JPEG segments (ITU T.81, table B.1) whose numbers lie among those of the frame headers."""


def image_tokens(size: tuple[int, int] | None, detail: str = "auto") -> int:
    """OpenAI's rule: 85 in low detail; else fit into 2048, short side to 768, 170 a 512-tile and 85 once."""
    if detail == "low":
        return LOW_TOKENS
    if size is None and detail != "high":
        return UNKNOWN_TOKENS
    width, height = size or UNKNOWN_SIZE
    scale = min(SHORT_SIDE_PIXELS / min(width, height), LONG_SIDE_PIXELS / max(width, height))
    tiles = math.ceil(width * scale / TILE_PIXELS) * math.ceil(height * scale / TILE_PIXELS)
    return TILE_TOKENS * tiles + LOW_TOKENS


def size_of_url(url: str) -> tuple[int, int] | None:
    """Width and height of a picture in a data URL; None for any other address and for what cannot be read."""
    head, comma, body = url[: HEAD_CHARACTERS + 100].partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    whole = body[: len(body) // 4 * 4]
    try:
        return size_of(base64.b64decode(whole, validate=True))
    except binascii.Error:
        return None


def size_of(start: bytes) -> tuple[int, int] | None:
    """Width and height by the first bytes of a PNG, GIF, JPEG or WebP file."""
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
