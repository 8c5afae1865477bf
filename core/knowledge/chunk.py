"""Splits a document into chunks of bounded size, each with its page number and its heading or sheet."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise

from core.context.tokens import count_text
from core.context.untrusted_text import clean_line
from core.knowledge.document import Document, Page

CHUNK_TOKENS = 500
OVERLAP_TOKENS = 50
PLACE_CHARACTERS_MAX = 80

_BLOCKS = re.compile(r"\n[ \t]*\n\s*")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；…])|\n")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+ *$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk. `number` counts from 0 in the document.

    The first `overlap` characters repeat the end of the previous chunk."""

    number: int
    page: int | None
    place: str
    text: str
    tokens: int
    overlap: int = 0

    @property
    def own_text(self) -> str:
        """The chunk's text without the overlap."""
        return self.text[self.overlap :].lstrip("\n")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is not divided further, and the separator between it and the previous piece."""

    text: str
    tokens: int
    joint: str


@dataclass(slots=True)
class _Open:
    """The chunk that is being filled."""

    page: Page
    pieces: list[_Piece] = field(default_factory=list[_Piece])
    tokens: int = 0
    overlap: str = ""


def split_into_chunks(
    document: Document, *, tokens_max: int = CHUNK_TOKENS, overlap_tokens: int = OVERLAP_TOKENS
) -> Iterator[Chunk]:
    """Yields chunks. A chunk never spans two numbered pages or sheets; tables and paragraphs that fit are not divided.

    A table that does not fit is divided between rows, and each part repeats its header. Prose that continues on the
    same page overlaps by `overlap_tokens`."""
    number, open_chunk = 0, None
    for page in document.pages:
        # a section may share a chunk with the one before if its text begins with its heading, unlike the text of a
        # sheet
        heading, _, _ = page.text.lstrip("# ").partition("\n")
        may_share = page.number is None and (not page.place or page.place in heading)
        if open_chunk is not None and not may_share:
            yield _closed(open_chunk, number)
            number, open_chunk = number + 1, None
        for piece in _pieces(page.text, tokens_max, overlap_tokens):
            if open_chunk is not None and open_chunk.tokens + piece.tokens > tokens_max:
                yield _closed(open_chunk, number)
                # the end of the last chunk overlaps if prose continues on the page and there is room
                fresh = _Open(page)
                room = min(overlap_tokens, tokens_max - piece.tokens)
                is_prose = not _is_table(piece.text) and not _is_table(open_chunk.pieces[-1].text)
                if room > 0 and is_prose and open_chunk.page is page:
                    fresh.overlap = _tail(open_chunk.pieces[-1].text, room)
                    fresh.tokens = count_text(fresh.overlap)
                open_chunk = fresh
                number += 1
            open_chunk = open_chunk or _Open(page)
            open_chunk.pieces.append(piece)
            open_chunk.tokens += piece.tokens
    if open_chunk is not None:
        yield _closed(open_chunk, number)


def _closed(one: _Open, number: int) -> Chunk:
    first, *rest = one.pieces
    text = first.text + "".join(piece.joint + piece.text for piece in rest)
    return Chunk(
        number=number,
        page=one.page.number,
        place=clean_line(one.page.place, PLACE_CHARACTERS_MAX),
        text=f"{one.overlap}\n{text}" if one.overlap else text,
        tokens=one.tokens,
        overlap=len(one.overlap),
    )


def _tail(text: str, tokens_max: int) -> str:
    """Returns whole sentences from the end, or the last characters if a sentence is too long."""
    kept, tokens = list[str](), 0
    for sentence in reversed(_sentences(text)):
        tokens += count_text(sentence)
        if tokens > tokens_max:
            break
        kept.append(sentence)
    if kept:
        return "".join(reversed(kept)).strip()
    end = text[-tokens_max * 4 :]
    while count_text(end) > tokens_max:
        end = end[len(end) // 4 + 1 :]
    return end.strip()


def _pieces(text: str, tokens_max: int, overlap_tokens: int) -> Iterator[_Piece]:
    """Yields the text in pieces. Leaves room for the overlap if a piece is divided."""
    start = 0
    # one block at a time, so that a text of megabytes does not block the event loop
    for end, following in chain((found.span() for found in _BLOCKS.finditer(text)), [(len(text), 0)]):
        block, start = text[start:end].strip("\n"), following
        if not block.strip():
            continue
        tokens = count_text(block)
        if tokens <= tokens_max:
            yield _Piece(block, tokens, "\n\n")
        elif _is_table(block):
            yield from _rows(block.split("\n"), tokens_max)
        else:
            yield from _packed(_sentences(block), tokens_max - overlap_tokens, "")


def _is_table(block: str) -> bool:
    return block.lstrip().startswith("|")


def _sentences(text: str) -> list[str]:
    """Splits text into sentences that keep their separators, so that joining them restores the text."""
    ends = [found.end() for found in _SENTENCE.finditer(text)]
    cuts = pairwise((0, *ends, len(text)))
    return [text[start:end] for start, end in cuts if start < end]


def _rows(lines: list[str], tokens_max: int) -> Iterator[_Piece]:
    """Yields groups of a table's rows, each under the table's header."""
    has_header = len(lines) > 2 and bool(_RULE.match(lines[1].strip()))
    header = "\n".join(lines[:2]) + "\n" if has_header else ""
    header_tokens = count_text(header)
    if header_tokens > tokens_max // 2:
        header, header_tokens = "", 0
    body = lines[2:] if header else lines
    for group in _packed(body, tokens_max - header_tokens, "\n"):
        yield _Piece(header + group.text, header_tokens + group.tokens, "\n\n")


def _packed(parts: Iterable[str], tokens_max: int, joint: str) -> Iterator[_Piece]:
    """Yields pieces that each join as many parts as fit. A part over the limit is cut."""
    held, tokens, is_first = list[str](), 0, True
    for part, cost in _cut(parts, tokens_max):
        if held and tokens + cost > tokens_max:
            yield _Piece(joint.join(held).strip("\n"), tokens, "\n\n" if is_first else "\n")
            held, tokens, is_first = [], 0, False
        held.append(part)
        tokens += cost
    if held:
        yield _Piece(joint.join(held).strip("\n"), tokens, "\n\n" if is_first else "\n")


def _cut(parts: Iterable[str], tokens_max: int) -> Iterator[tuple[str, int]]:
    for part in parts:
        cost = count_text(part)
        if cost <= tokens_max or len(part) == 1:
            yield part, cost
            continue
        size = max(1, len(part) * tokens_max // cost)
        yield from _cut((part[at : at + size] for at in range(0, len(part), size)), tokens_max)
