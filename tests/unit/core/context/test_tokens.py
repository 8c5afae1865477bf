"""What messages cost."""

import base64
import json
import random
import string
from pathlib import Path

import pytest

from core.context.tokens import (
    count_message,
    count_text,
    data_url_image_size,
    image_size,
    image_tokens,
    message_tokens,
    with_token_count,
)
from core.domain.messages import Message

KNOWN = json.loads(Path(__file__).with_name("known_tokens.json").read_text(encoding="utf-8"))
"""Rows of a name, a token count and a text: the larger count of o200k_base and cl100k_base for twenty copies of it."""


@pytest.mark.parametrize(("tokens", "text"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_a_count_is_near_the_largest_of_the_tokenizers(tokens: int, text: str) -> None:
    assert 0.9 * tokens <= count_text(text * 20) <= 1.4 * tokens


def test_nothing_costs_nothing_and_anything_something() -> None:
    assert count_text("") == 0
    assert count_text("a") == 1
    assert count_text("\ud800") >= 1


def test_text_without_words_is_not_taken_for_cheap() -> None:
    chooser = random.Random(1)
    noise = base64.b64encode(chooser.randbytes(6000)).decode()
    assert count_text(noise) > len(noise) / 2
    assert count_text("".join(chooser.choice(string.digits) for _ in range(3000))) >= 950
    assert count_text("好" * 1000) >= 1000


def test_blanks_without_end_are_not_free() -> None:
    assert count_text(" " * 16_000) >= 1000
    assert count_text("o" * 16_000) >= 1000
    indented = "            return replace(view)\n"
    assert count_text(indented) == count_text(indented.replace("  ", " "))


def test_more_text_costs_more() -> None:
    assert count_text("some words " * 10) < count_text("some words " * 11)


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        (None, "low", 85),
        ((4000, 4000), "low", 85),
        (None, "auto", 1024),
        (None, "high", 765),
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((512, 512), "auto", 765),
        ((1920, 1080), "auto", 1105),
    ],
)
def test_pictures_are_counted_by_tiles(size: tuple[int, int] | None, detail: str, tokens: int) -> None:
    assert image_tokens(size, detail) == tokens


def test_a_picture_of_any_shape_has_a_bounded_price() -> None:
    assert image_tokens((1, 100_000)) < 2000


def test_the_size_is_read_from_the_file() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (1920).to_bytes(4, "big") + (1080).to_bytes(4, "big")
    assert image_size(png) == (1920, 1080)
    frame = b"\xff\xc0\x00\x11\x08" + (1080).to_bytes(2, "big") + (1920).to_bytes(2, "big") + b"\0" * 9
    assert image_size(b"\xff\xd8\xff\xe0\x00\x04ab" + frame) == (1920, 1080)
    assert image_size(b"GIF89a" + b"\x02\x00\x03\x00") == (2, 3)
    assert image_size(b"\x89PNG\r\n\x1a\n") is None
    assert image_size(b"<svg/>") is None
    assert data_url_image_size("data:image/png;base64," + base64.b64encode(png).decode()) == (1920, 1080)
    assert data_url_image_size("data:image/png;base64,###") is None
    assert data_url_image_size("data:image/png;base64,éé==") is None
    assert data_url_image_size("https://example.org/a.png") is None


def test_the_detail_inside_the_image_url_counts() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    assert count_message({"role": "user", "content": [image]}) == 4 + 85


def test_calls_and_names_are_counted() -> None:
    function = {"name": "execute_command", "arguments": '{"command": "' + "ls " * 500 + '"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    with_call = count_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert with_call > count_text("ls " * 500)


def test_a_message_is_counted_once() -> None:
    message = Message(type="user", content={"role": "user", "content": "hi"}, is_llm_message=True, thread_id="t")
    once = with_token_count(message)
    assert once.token_count == message_tokens(message) > 0
    assert with_token_count(once) is once
