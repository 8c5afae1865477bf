import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.llm.openai_answer import ThinkTagReader
from core.ports import TextDelta, ThinkingDelta

ANSWERS = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think>", " ", "\n", "word", "<ask>"]),
    max_size=10,
).map("".join)


def told(*pieces: str) -> tuple[str, str]:
    """What was thought, and what was said."""
    thoughts = ThinkTagReader()
    deltas = [delta for piece in pieces for delta in thoughts.read(piece)]
    deltas += thoughts.flush()
    thought = "".join(one.text for one in deltas if isinstance(one, ThinkingDelta))
    return thought, "".join(one.text for one in deltas if isinstance(one, TextDelta))


@pytest.mark.parametrize(
    ("answer", "thought", "said"),
    [
        ("<think>Hm, 2 < 3.</think>\n\nYes.", "Hm, 2 < 3.", "Yes."),
        ("\n<think></think>Yes.", "", "Yes."),
        ("<think>never done", "never done", ""),
        ("<think>half </thi", "half </thi", ""),
        ("Yes, <think> is a tag.", "", "Yes, <think> is a tag."),
        ("<thing>", "", "<thing>"),
        ("<thi", "", "<thi"),
        ("  indented", "", "  indented"),
        ("<think>a</think> b <think>c</think>", "a", "b <think>c</think>"),
        ("", "", ""),
    ],
)
def test_thoughts_before_the_answer_are_no_part_of_it(answer: str, thought: str, said: str) -> None:
    assert told(answer) == (thought, said)
    assert told(*answer) == (thought, said)


@given(answer=ANSWERS, picks=st.lists(st.integers(0, 1000), max_size=6))
def test_cutting_an_answer_anywhere_changes_nothing(answer: str, picks: list[int]) -> None:
    cuts = sorted({pick % (len(answer) + 1) for pick in picks})
    pieces = [answer[a:b] for a, b in zip((0, *cuts), (*cuts, len(answer)), strict=True)]
    assert told(*pieces) == told(answer)
