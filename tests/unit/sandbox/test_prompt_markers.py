"""The prompt's marks in the stream of a terminal, however it is cut and whatever else looks like them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.terminal import PromptMarker, PromptMarkerParser, overlap_bytes

MARK = b"\033]697;x;130;7;4321\a"
OTHERS = b"\033]0;title\a\033]697;x;nonsense\a"
STREAM = b"before" + MARK + OTHERS + b"after" + MARK


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_marks_are_found_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    marks, text, found = PromptMarkerParser("x"), b"", []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(STREAM)]):
        for part in marks.feed(STREAM[begin:end]):
            if isinstance(part, PromptMarker):
                found.append((text, part.exit_code, part.number, part.pid))
            else:
                text += part
    whole = b"before" + OTHERS + b"after"
    assert found == [(b"before", 130, b"7", b"4321"), (whole, 130, b"7", b"4321")]
    assert text + marks.flush() == whole


@pytest.mark.parametrize(
    "body", [b"9" * 5000, b"1;2", b"1;2;", b";2;3", b"-1;2;3", b"1;2;3;4", b"", b"1;2;\033]697;x;"]
)
def test_what_looks_like_a_mark_and_is_none_is_output(body: bytes) -> None:
    hostile = b"\033]697;x;" + body + b"\a"
    marks = PromptMarkerParser("x")
    parts = list(marks.feed(hostile))
    assert not any(isinstance(part, PromptMarker) for part in parts)
    assert b"".join(part for part in parts if isinstance(part, bytes)) + marks.flush() == hostile


def test_only_what_may_be_the_beginning_of_a_mark_is_held_back() -> None:
    assert overlap_bytes(b"text\033]69", b"\033]697;x;") == 4
    assert overlap_bytes(b"text", b"\033]697;x;") == 0
