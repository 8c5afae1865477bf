"""Splits texts and queries into terms for the full-text index, by the same rules.

Scripts without spaces between words are split into pairs of characters; the last character of a run is also its own
term, so that every character begins some term. Words of other scripts are case-folded and stemmed."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\u3005"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003347f"  # Han
    "\uac00-\ud7af"  # Korean
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(rf"([{_UNSPACED}]+)|([^\W_{_UNSPACED}]+)")
_ACCENT = re.compile(
    "[\u0300-\u036f"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # vowel points of Hebrew
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"  # and vowel marks of Arabic
)
_MARKS = re.compile(r"([^\w\s])[^\w\s]{32,}")
"""Matches more combining marks in a row than any script has, because normalizing them would take quadratic time. Also
matches other long runs of signs."""
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_WORD_CHARACTERS_MAX = 64
_STEMS_KEPT = 50_000
_QUERY_TERMS_MAX = 64
_VOWELS = frozenset("aeiouy")
_DOUBLED = frozenset("bdfgmnprtv")

_ENGLISH_STOPS = (
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its me my"
    " no not of on or our please shall should so tell than that the their them then there these they this those to us"
    " was we were what when where which who whom whose why will with would you your about"
)
_CHINESE_STOPS = (
    "这个 那个 这些 那些 什么 怎么 怎样 如何 为什 哪些 哪个 哪里 多少 多久 是否 是不 不是 可以 能否 请问 告诉 一下"
    " 我们 你们 他们 关于 以及 或者 还是 因为 所以 但是 如果 有没 没有 是什 么样 的是 是多 有什 有哪"
)


@dataclass(frozen=True, slots=True)
class Term:
    """A search term. If `is_prefix`, it matches every indexed term that begins with it."""

    text: str
    is_prefix: bool = False


def index_terms(text: str) -> list[str]:
    """Returns the terms of the text in order, with repetitions."""
    terms: list[str] = []
    for run, word in _pieces(text):
        if run:
            terms.extend(run[at : at + 2] for at in range(len(run)))
        else:
            terms.append(_stem(word))
    return terms


def query_terms(*texts: str) -> tuple[Term, ...]:
    """Returns the distinct terms of the texts in order, without stop words if other terms remain."""
    terms = list[Term]()
    for run, word in (piece for text in texts for piece in _pieces(text)):
        if len(run) == 1:
            terms.append(Term(run, is_prefix=True))
        elif run:
            terms += (Term(run[at : at + 2]) for at in range(len(run) - 1))
        else:
            terms.append(Term(_stem(word)))
    distinct = dict.fromkeys(terms)
    telling = [term for term in distinct if term.text not in _stops()]
    return tuple(telling or distinct)[:_QUERY_TERMS_MAX]


def is_chinese(text: str) -> bool:
    """Returns whether the text has a Han character and no Japanese kana."""
    return bool(_HAN.search(text)) and not any("\u3040" <= one <= "\u30ff" for one in text)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yields pairs of which one item is empty: (characters of a script without spaces, a word of another script)."""
    if text.isascii():
        for word in _ASCII_WORD.findall(text.lower()):
            yield "", word
        return
    apart = unicodedata.normalize("NFKD", _MARKS.sub(r"\1", text.casefold()))
    for found in _PIECE.finditer(unicodedata.normalize("NFC", _ACCENT.sub("", apart))):
        yield found[1] or "", found[2] or ""


@lru_cache(maxsize=_STEMS_KEPT)
def _stem(word: str) -> str:
    """Returns the word without the most common English endings, as an approximate stem."""
    word = word[:_WORD_CHARACTERS_MAX]
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    for ending, instead in (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ing", ""), ("ed", "")):
        rest = word[: -len(ending)]
        if word.endswith(ending) and len(rest) >= 2 and not _VOWELS.isdisjoint(rest):
            is_doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] in _DOUBLED
            return _without_e((rest[:-1] if is_doubled and not instead else rest) + instead)
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _without_e(word)


def _without_e(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


@lru_cache(maxsize=1)
def _stops() -> frozenset[str]:
    return frozenset((*map(_stem, _ENGLISH_STOPS.split()), *_CHINESE_STOPS.split()))
