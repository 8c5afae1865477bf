"""How documents are cut."""

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.context.tokens import count_text
from core.knowledge.chunk import Chunk, split_into_chunks
from core.knowledge.document import Document, Page

WORDS = "The quick brown fox jumps over the lazy dog while nobody looks. "


def cut(*pages: Page, tokens_max: int = 500, overlap_tokens: int = 50) -> list[Chunk]:
    document = Document(title="", kind="txt", pages=pages)
    return list(split_into_chunks(document, tokens_max=tokens_max, overlap_tokens=overlap_tokens))


def test_a_short_document_is_one_chunk() -> None:
    assert cut(Page(None, "Head", "one\n\ntwo")) == [
        Chunk(number=0, page=None, place="Head", text="one\n\ntwo", tokens=count_text("one") * 2)
    ]


def test_a_chunk_never_spans_two_pages() -> None:
    made = cut(Page(1, "", "first"), Page(2, "", "second"), Page(4, "Slide", "fourth"))

    assert [(one.number, one.page, one.place, one.text) for one in made] == [
        (0, 1, "", "first"),
        (1, 2, "", "second"),
        (2, 4, "Slide", "fourth"),
    ]


def test_short_sections_without_pages_share_a_chunk() -> None:
    made = cut(Page(None, "A", "# A\none"), Page(None, "B", "# B\ntwo"))

    assert [(one.place, one.text) for one in made] == [("A", "# A\none\n\n# B\ntwo")]


def test_a_chunk_never_spans_two_sheets_whose_tables_do_not_name_them() -> None:
    made = cut(Page(None, "2023", "| North | 100 |"), Page(None, "2024", "| North | 900 |"))

    assert [(one.place, one.text) for one in made] == [("2023", "| North | 100 |"), ("2024", "| North | 900 |")]


def test_prose_overlaps_by_whole_sentences_and_says_by_how_much() -> None:
    made = cut(Page(3, "", WORDS * 100))

    assert len(made) > 2
    for before, after in pairwise(made):
        repeated = after.text[: after.overlap]
        assert repeated.startswith("The quick")
        assert before.text.rstrip().endswith(repeated)
    assert "".join(one.own_text.replace("\n", " ") for one in made).count("fox") == 100


def test_a_table_that_fits_is_not_divided() -> None:
    table = "| a | b |\n| --- | --- |\n" + "\n".join(f"| {n} | x |" for n in range(30))
    made = cut(Page(None, "", WORDS * 20 + "\n\n" + table + "\n\n" + WORDS * 20))

    assert [table in one.text for one in made].count(True) == 1


def test_a_large_table_is_divided_between_rows_under_its_header() -> None:
    rows = [f"| {n} | value {n} |" for n in range(300)]
    made = cut(Page(None, "", "\n".join(["| id | name |", "| --- | --- |", *rows])))

    assert len(made) > 3
    assert all(one.text.startswith("| id | name |\n| --- | --- |\n") for one in made)
    assert [line for one in made for line in one.text.split("\n")[2:]] == rows


def test_chinese_is_divided_at_its_own_full_stops() -> None:
    made = cut(Page(None, "", "这是一个句子，说的是数据。" * 100))

    assert len(made) > 1
    assert all(one.text.endswith("。") for one in made)


def test_a_wall_of_characters_is_cut_all_the_same() -> None:
    made = cut(Page(None, "", "x" * 50_000))

    assert "".join(one.own_text for one in made) == "x" * 50_000
    assert all(one.tokens <= 500 for one in made)


TEXTS = st.text(alphabet=st.sampled_from("ab .\n|字。-# \u3000é🙂"), max_size=400)


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 3)), TEXTS), max_size=5), st.integers(10, 60))
def test_nothing_is_lost_and_no_chunk_is_larger_than_allowed(
    texts: list[tuple[int | None, str]], tokens_max: int
) -> None:
    pages = [Page(number, "", text) for number, text in texts]
    made = cut(*pages, tokens_max=tokens_max, overlap_tokens=5)

    kept = "".join(one.text for one in made)
    for letter in "ab字é🙂":
        assert kept.count(letter) >= sum(text.count(letter) for _, text in texts)
    assert [one.number for one in made] == list(range(len(made)))
    assert all(one.text.strip() for one in made)
    assert all(one.tokens <= tokens_max for one in made)
    # joints cost a little, and what is counted in parts is rounded up in each
    assert all(count_text(one.text) <= tokens_max * 1.5 + 10 for one in made)


def test_a_million_tokens_are_cut_without_delay() -> None:
    text = (WORDS * 20 + "\n\n") * 3_500
    began = time.process_time()
    made = cut(Page(None, "", text))
    assert sum(one.tokens for one in made) > 700_000
    assert time.process_time() - began < 5


def test_a_long_heading_is_not_repeated_whole_in_every_chunk() -> None:
    heading = "Ignore\u200b the\nquestion " * 1000
    made = cut(Page(None, heading, WORDS * 200))

    assert len(made) > 2
    assert {one.place for one in made} == {f"{'Ignore the question ' * 5}"[:79] + "…"}


def test_blanks_without_end_are_cut_like_other_text() -> None:
    made = cut(Page(None, "", f"a{' ' * 1_000_000}b"))

    assert max(len(one.text) for one in made) < 20_000
