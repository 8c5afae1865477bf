"""Each kind of check accepts what it asks for, and says what is wrong with everything else."""

import io

import pytest
from PIL import Image
from pydantic import ValidationError

from simulator.threadbench.checks import Check, FinalState, HandedFile, Post, ToolUse, find_problems
from simulator.threadbench.files import build_file, read_text

TABLE = b"region,total\nNorth,2950.75\nSouth,10\n"


def problems(check: dict[str, object], state: FinalState) -> tuple[str, ...]:
    return find_problems([Check.model_validate(check)], state)


def said(*texts: str, after_act: int = 1) -> FinalState:
    return FinalState(posts=tuple(Post(text=one, after_act=after_act) for one in texts))


def handed(name: str, content: bytes) -> FinalState:
    file = HandedFile(name=name, content=content)
    return FinalState(posts=(Post(text="", after_act=1, files=(file,)),))


def called(name: str, *, succeeded: bool = True, **arguments: str) -> FinalState:
    return FinalState(calls=(ToolUse(name=name, arguments=dict(arguments), succeeded=succeeded),))


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ({"reply": {"contains": ["20000"]}}, said("It has **20,000** rows"), said("2000")),
        ({"reply": {"contains": "a"}}, said("x", "A"), FinalState()),
        ({"reply": {"lacks": ["secret"]}}, said("fine"), said("the SECRET")),
        ({"reply": {"any_of": ["one", "two"]}}, said("two"), said("three")),
        ({"reply": {"matches": r"p\. \d"}}, said("p. 4"), said("p. x")),
        ({"reply": {"characters_max": 3}}, said("abc"), said("abcd")),
        ({"reply": {"to_act": 1}}, said("x"), said("x", after_act=2)),
        ({"silent": {"to_act": 2}}, said("x", after_act=1), said("x", after_act=2)),
        ({"posted": {"name": "*.csv", "rows": 2}}, handed("T.CSV", TABLE), handed("a.txt", TABLE)),
        ({"posted": {"name": "*", "rows": 2}}, handed("t.csv", TABLE), handed("t.csv", b"a\n1\n")),
        (
            {"posted": {"name": "*", "cells": {"North/total": 2950.75}}},
            handed("t.csv", TABLE),
            handed("t.csv", TABLE.replace(b"2950.75", b"2950.5")),
        ),
        (
            {"posted": {"name": "*", "columns": ["total"]}},
            handed("t.csv", TABLE),
            handed("t.csv", b"region,sum\n"),
        ),
        (
            {"posted": {"name": "*", "json_values": {"a.0.b": 1}}},
            handed("x.json", b'{"a": [{"b": 1}]}'),
            handed("x.json", b'{"a": []}'),
        ),
        (
            {"posted": {"name": "*", "width_min": 300}},
            handed("x.png", build_file({"png": [300, 10]})),
            handed("x.png", b"\x89PNG no picture"),
        ),
        (
            {"file": {"path": "a", "contains": ["x"]}},
            FinalState(files={"a": b"x"}),
            FinalState(files={"b": b"x"}),
        ),
        ({"file": {"path": "a", "is_missing": True}}, FinalState(), FinalState(files={"a": b""})),
        ({"called": {"tool": "web_*", "at_least": 1}}, called("web_search"), called("ask")),
        ({"called": {"tool": "*", "arguments": "evil", "at_most": 0}}, called("a", x="b"), called("a", x="evil")),
        (
            {"called": {"tool": "pin", "succeeded": True, "at_most": 0}},
            called("pin", succeeded=False),
            called("pin"),
        ),
        ({"asked": {}}, called("ask"), called("ask", succeeded=False)),
        ({"asked": {"expected": False}}, FinalState(), called("ask")),
        ({"asked": {"to_act": 1}}, said("Which one?"), said("This one.")),
        (
            {"ended": {"status": "stopped"}},
            FinalState(run_statuses=("completed", "stopped")),
            FinalState(),
        ),
    ],
)  # fmt: skip
def test_a_check_holds_for_the_one_and_not_for_the_other(
    check: dict[str, object], good: FinalState, bad: FinalState
) -> None:
    assert problems(check, good) == ()
    assert len(problems(check, bad)) >= 1


def test_a_message_outside_the_thread_fails_every_task() -> None:
    state = FinalState(posts=(Post(text="x", after_act=1),), elsewhere=("psst",))
    assert problems({"reply": {}}, state) == ("the agent says elsewhere: 'psst'",)


@pytest.mark.parametrize("check", [{}, {"reply": {}, "asked": {}}])
def test_a_check_has_exactly_one_kind(check: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="exactly one kind"):
        Check.model_validate(check)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.pdf", {"pdf": [["Rules", "A key (lost) costs 45"], ["Noise"]]}, "A key (lost) costs 45"),
        ("a.docx", {"docx": ["One", "Zwei für drei"]}, "Zwei für drei"),
        ("a.xlsx", {"xlsx": {"S": [["team", "usd"], ["Design", 4600]]}}, "Design,4600"),
        ("a.txt", {"repeat": ["line", 3]}, "line\nline\nline\n"),
        ("a.txt", {"base64": "aGVsbG8="}, "hello"),
    ],
)
def test_a_file_holds_what_its_task_says(name: str, content: object, text: str) -> None:
    assert text in read_text(name, build_file(content))


def test_slides_and_pictures_are_real_ones() -> None:
    assert build_file({"pptx": [["Title", "Text"]]}).startswith(b"PK")
    with Image.open(io.BytesIO(build_file({"png": [64, 32]}))) as picture:
        assert picture.size == (64, 32)


@pytest.mark.parametrize("content", [7, {"exe": "x"}, {"pdf": [], "png": []}])
def test_other_files_are_refused(content: object) -> None:
    with pytest.raises(ValueError, match="a file is a text"):
        build_file(content)


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx"])
def test_a_damaged_file_has_no_text(name: str) -> None:
    assert read_text(name, b"\x00 no such format") == ""
