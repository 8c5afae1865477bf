"""Indexing documents, and finding passages in them."""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from core.context.tokens import count_text
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import KnowledgeEntry, Scope
from core.knowledge.retrieval import retrieve_passages
from storage.sql.database import open_database
from storage.sql.stores.knowledge import SqlKnowledge
from tests.bench.figure import Figure, note

FILES = 20
TOKENS = 700_000
SCOPE = Scope("agent", "bench")
QUESTIONS = 40
PASSAGE_TOKENS = 4_000
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwz", "aeiou"


def texts() -> list[str]:
    """Half of them English, half Chinese in their look, words as frequent as in a language: few often, many rarely."""
    chance = random.Random(5)
    words = [
        "".join(chance.choice(_CONSONANTS) + chance.choice(_VOWELS) for _ in range(chance.randint(1, 4)))
        for _ in range(12_000)
    ]
    signs = [chr(0x4E00 + chance.randrange(6_000)) for _ in range(3_000)]
    made: list[str] = []
    for number in range(FILES):
        is_chinese, parts, tokens = bool(number % 2), list[str](), 0
        while tokens < TOKENS // FILES:
            paragraph = _chinese(chance, signs) if is_chinese else _english(chance, words)
            parts.append(paragraph)
            tokens += count_text(paragraph)
        made.append("\n\n".join(parts))
    return made


def _english(chance: random.Random, words: list[str]) -> str:
    picked = [words[int(len(words) * chance.random() ** 3)] for _ in range(90)]
    return ". ".join(" ".join(picked[at : at + 15]).capitalize() for at in range(0, 90, 15)) + "."


def _chinese(chance: random.Random, signs: list[str]) -> str:
    picked = "".join(signs[int(len(signs) * chance.random() ** 3)] for _ in range(120))
    return "，".join(picked[at : at + 20] for at in range(0, 120, 20)) + "。"


@asynccontextmanager
async def indexed() -> AsyncGenerator[tuple[SqlKnowledge, list[KnowledgeEntry], list[str], float]]:
    """A database of its own with all the texts in it, and the seconds that putting them in took."""
    contents = texts()
    with tempfile.TemporaryDirectory() as folder:
        database = await open_database(f"sqlite:///{Path(folder) / 'bench.db'}")
        try:
            store = SqlKnowledge(database)
            knowledge_base = KnowledgeBase(store=store)
            began = time.perf_counter()
            adding = (knowledge_base.add(SCOPE, f"{at}.txt", _file(one)) for at, one in enumerate(contents))
            entries = await asyncio.gather(*adding)
            yield store, entries, contents, time.perf_counter() - began
        finally:
            await database.close()


async def _file(content: str) -> AsyncIterator[bytes]:
    yield content.encode()


async def index_s() -> float:
    """From files to an index on the disk: parsed in child processes, cut, indexed."""
    async with indexed() as (_, entries, _, seconds):
        tokens, count = sum(one.tokens for one in entries), sum(one.chunk_count for one in entries)
        note(f"index_s: {tokens} tokens in {count} chunks")
        return seconds


async def retrieval_ms() -> float:
    """CPU of all threads for a question, keywords given, the passages fused and cut to their budget; the median."""
    async with indexed() as (store, entries, contents, _):
        chance, costs = random.Random(6), list[float]()
        for _ in range(QUESTIONS):
            content = chance.choice(contents)
            at = chance.randrange(len(content) - 60)
            began = time.process_time()
            await retrieve_passages(entries, [content[at : at + 60]], store=store, tokens_max=PASSAGE_TOKENS)
            costs.append((time.process_time() - began) * 1000)
        costs.sort()
        note(f"retrieval_ms: from {costs[0]:.1f} to {costs[-1]:.1f}")
        return costs[len(costs) // 2]


INDEX = Figure(name="index_s", unit="s", bound=4, measure=index_s)
RETRIEVAL = Figure(name="retrieval_ms", unit="ms", bound=10, measure=retrieval_ms)
