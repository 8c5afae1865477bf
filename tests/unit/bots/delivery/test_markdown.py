"""Long Markdown in parts: within the limit, whole fences and tables, nothing lost."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bots.delivery import markdown as under_test
from bots.delivery.markdown import (
    choose_parser,
    fitting_prefix_length,
    markdown_to_words,
    normalize_model_markdown,
    split_markdown,
)
from core.domain.outside_text import utf16_length

words = st.text(alphabet="abc xyz.\n-*_é漢😀", max_size=400)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        split_markdown("text", 1)


def test_a_fence_starts_in_the_part_that_still_has_room():
    code = "\n".join("0123456789" for _ in range(10))
    parts = split_markdown(f"Here it is:\n\n```\n{code}\n```\n\nDone.", 80)
    assert parts[0].startswith("Here it is:\n\n```\n0123456789\n")
    assert parts[-1].endswith("```\n\nDone.")


def test_a_longer_fence_holds_a_shorter_one():
    text = "````md\n```\ninside\n```\n" + "more\n" * 20 + "````"
    for part in split_markdown(text, 60):
        assert part.startswith("````md\n")
        assert part.endswith("\n````")


def test_a_fence_that_was_never_closed_is_closed_in_every_part():
    for part in split_markdown("```\n" + "code line\n" * 20, 60):
        assert part.startswith("```\n")
        assert part.endswith("\n```")


def test_a_blank_line_inside_a_fence_is_kept():
    code = "a\n\n\nb\n" * 12
    parts = split_markdown(f"```\n{code}```", 50)
    inside = [part.removeprefix("```\n").removesuffix("\n```") for part in parts]
    assert "\n".join(inside) + "\n" == code


def test_a_table_that_is_too_long_repeats_its_header():
    rows = [f"| {number} | value |" for number in range(8)]
    parts = split_markdown("\n".join(["| n | v |", "|---|---|", *rows]), 60)
    assert len(parts) > 1
    assert all(part.startswith("| n | v |\n|---|---|\n") for part in parts)
    assert [line for part in parts for line in part.split("\n")[2:]] == rows


@pytest.mark.parametrize("line", ["{}|x", "-{}|x", "|{}x|"])
def test_a_line_that_is_no_rule_of_a_table_is_known_at_once(line: str):
    text = "a|b\n" + line.format(" " * 200_000)
    assert squeezed("".join(split_markdown(text, 2000))) == squeezed(text)


@given(words, st.integers(2, 60))
def test_plain_text_loses_nothing_and_keeps_the_limit(text: str, limit: int):
    parts = split_markdown(text, limit)
    assert all(0 < utf16_length(part) <= limit for part in parts)
    assert squeezed("".join(parts)) == squeezed(text)


@given(
    st.lists(st.text(alphabet="abc |`#", max_size=90).map(lambda line: f"x{line}"), min_size=1),
    st.sampled_from(["```", "~~~", "````"]),
    st.integers(40, 120),
)
def test_code_loses_nothing_whatever_its_lines(lines: list[str], marks: str, limit: int):
    parts = split_markdown("\n".join(["Before.", f"{marks}py", *lines, marks, "After."]), limit)
    assert all(len(part) <= limit for part in parts)
    inside = [line for part in parts for line in part.split("\n") if not line.startswith(marks)]
    assert "".join(inside) == "".join(["Before.", *lines, "After."])
    for part in parts:
        assert sum(line.startswith(marks) for line in part.split("\n")) % 2 == 0


@given(
    st.lists(
        st.one_of(
            words,
            words.map(lambda text: f"```sh\n{text}\n```"),
            st.integers(1, 30).map(lambda rows: "|a|b|\n|-|-|\n" + "|1|2|\n" * rows),
        ),
        max_size=8,
    ),
    st.integers(2, 200),
)
def test_any_mix_keeps_the_limit(blocks: list[str], limit: int):
    assert all(utf16_length(part) <= limit for part in split_markdown("\n\n".join(blocks), limit))


EMOJI = st.sampled_from(["😀", "👩‍🔬", "👍🏽", "e\u0301", "x", " ", "\n", "❤️"])


@given(st.lists(EMOJI, max_size=200).map("".join), st.integers(2, 80))
def test_a_list_of_emoji_keeps_every_character_and_the_limit_in_utf_16_units(text: str, limit: int):
    parts = split_markdown(text, limit)
    assert all(utf16_length(part) <= limit for part in parts)
    assert squeezed("".join(parts)) == squeezed(text)


def test_a_cut_keeps_an_emoji_with_its_modifiers_whole():
    assert "👩‍🔬"[: fitting_prefix_length("👩‍🔬", 4)] == "👩‍"  # too little room: nothing else can be done
    text = "ab👩‍🔬👍🏽"
    assert [text[: fitting_prefix_length(text, room)] for room in (2, 6, 7, 10, 11)] == [
        *("ab", "ab", "ab👩‍🔬", "ab👩‍🔬", "ab👩‍🔬👍🏽")
    ]


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"
CODE = [f"line {number}" for number in range(6)]


def fenced(lines: list[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("", 10, []),
        (" \n\t\n", 10, []),
        ("  one\n\n\ntwo  \n", 50, ["  one\n\n\ntwo  \n"]),
        ("first one\n\nsecond one\n\nthird", 22, ["first one\n\nsecond one", "third"]),
        ("This is one. This is two. This is three.", 30, ["This is one. This is two.", "This is three."]),
        ("x" * 25, 10, ["x" * 10, "x" * 10, "x" * 5]),
        (fenced(CODE), 36, [fenced(CODE[:3]), fenced(CODE[3:])]),
        (fenced(["x" * 70]), 46, [fenced(["x" * 32]), fenced(["x" * 32]), fenced(["x" * 6])]),
        (f"{'text ' * 8}\n\n{TABLE}", 45, ["text " * 8, TABLE]),
        ("> one two three four five six seven", 20, ["> one two three four", "> five six seven"]),
        ("go there: [the long label](http://a/b) now", 28, ["go there:", "[the long label](http://a/b)", "now"]),
        ("a word and **two bold words** end here", 24, ["a word and", "**two bold words** end", "here"]),
        ("- first item. It is\n- second item", 21, ["- first item. It is", "- second item"]),
        ("一二三四五六七八九十。一二三四五六七八九十。", 21, ["一二三四五六七八九十。", "一二三四五六七八九十。"]),
    ],
)  # fmt: skip
def test_where_a_text_is_cut(text: str, limit: int, parts: list[str]):
    assert split_markdown(text, limit) == parts


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("**See: https://a.example/x**", "**See: <https://a.example/x>**"),
        ("**[x](https://a.example/x)**", "**[x](https://a.example/x)**"),
        ("**<https://a.example/x**>", "**<https://a.example/x>**"),
        ("<https://a.example|the page>", "[the page](https://a.example)"),
        ("<https://a.example|>", "[https://a.example](https://a.example)"),
        ("https://a.example/@here/x", "https://a.example/%40here/x"),
        ("mail me@here.example", "mail me@here.example"),
        (
            "call __init__ and __a_b__, not __two words__",
            "call \\_\\_init\\_\\_ and \\_\\_a_b\\_\\_, not __two words__",
        ),
        ("one<br>two<br/>three&nbsp;four", "one\ntwo\nthree four"),
        ("| a | b |\n|---|---|\n| 1<br>2 | 3&nbsp;4 |", "| a | b |\n|---|---|\n| 1 / 2 | 3 4 |"),
        ("`<br> __init__`", "`<br> __init__`"),
        ("```\n<https://a|b> __init__\n```", "```\n<https://a|b> __init__\n```"),
    ],
)
def test_what_models_write_is_made_fit_for_chat(written: str, shown: str):
    assert normalize_model_markdown(written) == shown


@pytest.mark.parametrize(
    ("markdown", "words"),
    [("**a** [b](http://c)\nd\n\n```\nx\n```", "a b\nd\nx"), ("# [a]\n\n[a]: http://c", "a"), ("[a]", "[a]")],
)
def test_the_words_of_a_text(markdown: str, words: str):
    assert markdown_to_words(markdown) == words


@given(st.text(alphabet="[]()!:`\\ ab\n<>*~|-/", max_size=60))
@example("[a](b) ![c][d]\n\n[d]: http://x")
def test_text_without_links_is_read_by_a_quicker_parser_in_the_same_way(markdown: str) -> None:
    quick = choose_parser(markdown).parse(markdown)
    usual = under_test._MARKDOWN.parse(markdown)
    assert [one.as_dict() for one in quick] == [one.as_dict() for one in usual]


def test_brackets_are_no_links_to_the_quicker_parser() -> None:
    assert not {"link", "image"} & {*choose_parser("[a]").get_active_rules()["inline"]}
