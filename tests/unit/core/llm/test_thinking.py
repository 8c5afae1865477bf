import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.llm.thinking import ThinkingHabit, ThinkingReader
from core.ports import TextDelta, ThinkingDelta

PIECES = [
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|channel>thought",
    "<",
    "</",
    "think>",
    " ",
    "\n",
    "word",
    "`",
    "```",
    "<ask>",
]
ANSWERS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
LISTED = "A list. Plan:\n1. ```bash\n   ls -la\n   ```\n2. Tell them.\n</think>\n\nHere is the list."
QUESTION = "Okay, the user wants 2+2.\n"


def told(*pieces: str, habit: ThinkingHabit = "unknown") -> tuple[str, str]:
    """What was thought, and what was said."""
    thoughts = ThinkingReader(habit)
    deltas = [delta for piece in pieces for delta in thoughts.read(piece)]
    deltas += thoughts.flush()
    thought = said = ""
    for delta in deltas:
        if isinstance(delta, ThinkingDelta):
            thought += delta.text
        elif delta.replaces_earlier:
            thought, said = thought + said, delta.text
        else:
            said += delta.text
    return thought, said


@pytest.mark.parametrize(
    ("answer", "thought", "said"),
    [
        ("<think>Hm, 2 < 3.</think>\n\nYes.", "Hm, 2 < 3.", "Yes."),
        ("\n<think></think>Yes.", "", "Yes."),
        ("<think>never done", "never done", ""),
        ("<think>half </thi", "half </thi", ""),
        ("Yes, <think> is a tag.", " is a tag.", "Yes, <think> is a tag."),
        ("<thing>", "", "<thing>"),
        ("<thi", "", "<thi"),
        ("  indented", "", "  indented"),
        ("<think>a</think> b <think>c</think>", "ac", "b "),
        ("Look: <think>hm</think>\nfound.", "hm", "Look: \nfound."),
        ("", "", ""),
        (f"{QUESTION}</think>\n\nThe answer is 4.", QUESTION, "The answer is 4."),
        (f"{QUESTION}</thinking>The answer is 4.", QUESTION, "The answer is 4."),
        (f"{QUESTION}[/THINK]The answer is 4.", QUESTION, "The answer is 4."),
        (f"[THINK]{QUESTION}[/THINK]The answer is 4.", QUESTION, "The answer is 4."),
        (f"<thinking>{QUESTION}</thinking>\n4.", QUESTION, "4."),
        (f"{QUESTION}</THINK>4.", QUESTION, "4."),
        (f"{QUESTION}</think>", QUESTION, ""),
        ("</think>\n\n4.", "", "4."),
        (f"{QUESTION}</think>Or not.\n</think>It is 4.", QUESTION, "Or not.\n</think>It is 4."),
        (f"{QUESTION}</think>It is 4.</think>\n", QUESTION, "It is 4."),
        (f"{QUESTION}  </think>\n\n4.", f"{QUESTION}  ", "4."),
        ("1. It ends with </think> in the text.\n2. So.", "", "1. It ends with </think> in the text.\n2. So."),
        ("模型用</think>结束推理", "", "模型用</think>结束推理"),
        ('It writes "</think>" there.', "", 'It writes "</think>" there.'),
        ("A </think> </think> b", "", "A </think> </think> b"),
        ("Close it with `</think>`, please.", "", "Close it with `</think>`, please."),
        ("```\n<think>\nx\n</think>\n```\nSo.", "", "```\n<think>\nx\n</think>\n```\nSo."),
        (LISTED, LISTED.partition("</think>")[0], "Here is the list."),
        ("1) a\n   - ~~~\n</think>\n~~~\n", "", "1) a\n   - ~~~\n</think>\n~~~\n"),
        ("- ```\n- ```\n</think>\n```\n", "", "- ```\n- ```\n</think>\n```\n"),
        ("Hm `a`.</think>Use `</think>`.", "Hm `a`.", "Use `</think>`."),
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.", "Hm.", "Yes."),
        ("<|START_RESPONSE|>Yes.", "", "Yes."),
        ("<|begin_of_thought|>Hm.<|end_of_thought|>\n\n<|begin_of_solution|>\nYes.", "Hm.", "Yes."),
        ("<|channel>thought\nHm.<channel|>Yes.", "\nHm.", "Yes."),
        ("<|channel>thought\n<channel|>Yes.", "\n", "Yes."),
        ("Hm.<|END_THINKING|>Yes.", "Hm.", "Yes."),
        ("Cohere writes `<|END_THINKING|>` <|x|> there.", "", "Cohere writes `<|END_THINKING|>` <|x|> there."),
        ("analysisThey say hi.assistantfinalHi there.", "They say hi.", "Hi there."),
        ("analysisA.assistantanalysisB.assistantfinalC. The assistant is done.", "A.B.", "C. The assistant is done."),
        ("analysisHm.assistantcommentaryI look.assistantfinalSo.", "Hm.", "I look.So."),
        (
            'analysisHm.assistantcommentary to=functions.x json{"a": 1}',
            "Hm.",
            '<|channel|>commentary to=functions.x json{"a": 1}',
        ),
        ("analysisReport.pdf is attached.", "Report.pdf is attached.", "analysisReport.pdf is attached."),
        ("analysis of it", "", "analysis of it"),
        ("analysis", "", "analysis"),
        ("The list is [1, 2] and a[think].", ".", "The list is [1, 2] and a[think]."),
    ],
)
def test_thoughts_are_no_part_of_the_answer(answer: str, thought: str, said: str) -> None:
    assert told(answer) == (thought, said)
    assert told(*answer) == (thought, said)


@pytest.mark.parametrize("answer", [f"{QUESTION}</think>\n\nThe answer is 4.", "Hm.\n</think>\nYes. </think> is it."])
def test_an_end_mark_is_text_if_the_server_sends_the_thinking_in_a_field(answer: str) -> None:
    assert told(*answer, habit="field") == ("", answer)


@given(answer=ANSWERS, picks=st.lists(st.integers(0, 1000), max_size=6))
def test_cutting_an_answer_anywhere_changes_nothing(answer: str, picks: list[int]) -> None:
    cuts = sorted({pick % (len(answer) + 1) for pick in picks})
    pieces = [answer[a:b] for a, b in zip((0, *cuts), (*cuts, len(answer)), strict=True)]
    (thought, said), (whole_thought, whole_said) = told(*pieces), told(answer)
    assert said == whole_said
    assert sorted(thought) == sorted(whole_thought)


def test_an_answer_that_came_whole_is_never_shown_with_its_thinking() -> None:
    deltas = ThinkingReader().read(f"{QUESTION}</think>4.")
    said = [one for one in deltas if isinstance(one, TextDelta) and one.text]
    assert said == [TextDelta(text="4.")]


def test_a_long_thought_in_the_middle_is_not_held_back_for_ever() -> None:
    thoughts = ThinkingReader()
    thoughts.read("So: <think>")
    assert any(thoughts.read("x" * 1_000) for _ in range(100))


@pytest.mark.parametrize("piece", ["<", "</think>", "`", "[/THINK] x", "<think>", "\n```\n", "analysisA", "assistant"])
def test_many_marks_are_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    thoughts = ThinkingReader()
    for one in (*[piece] * 20_000, piece * 50_000):
        thoughts.read(one)
    thoughts.flush()
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"{QUESTION}</think>\n\n4.", "4."),
        (f"<think>{QUESTION}</think>\n\n4.", "4."),
        (f"{QUESTION}</think>So `</think>`.", "So `</think>`."),
        ("The answer is 4.", "The answer is 4."),
        (" ```\n</think", " ```\n</think"),
    ],
)
def test_text_before_an_expected_end_is_never_shown(answer: str, said: str) -> None:
    thoughts = ThinkingReader("late")
    deltas = [delta for piece in answer for delta in thoughts.read(piece)] + thoughts.flush()
    shown = [one for one in deltas if isinstance(one, TextDelta)]
    assert "".join(one.text for one in shown) == said
    assert not any(one.replaces_earlier for one in shown)
    assert thoughts.has_end_only is ("</think>" in answer)


@pytest.mark.parametrize(
    ("habit", "answer", "said"),
    [
        ("late", "The user is wrong, I should", ""),
        ("late", "They ask.\n</think>\n\nIt is", "It is"),
        ("unknown", "analysisThe user is wrong, I should", ""),
        ("unknown", "Write <think> at the start and", "Write <think> at the start and"),
        ("plain", "The answer is", "The answer is"),
    ],
)
def test_thinking_that_was_cut_off_is_no_answer(habit: ThinkingHabit, answer: str, said: str) -> None:
    thoughts = ThinkingReader(habit)
    deltas = thoughts.read(answer) + thoughts.flush(is_cut_off=True)
    assert "".join(one.text for one in deltas if isinstance(one, TextDelta)) == said


def test_a_long_answer_without_the_expected_end_is_not_lost() -> None:
    long = "A line of a report.\n" * 10_000
    assert told(*(long[at : at + 2_000] for at in range(0, len(long), 2_000)), habit="late")[1] == long
