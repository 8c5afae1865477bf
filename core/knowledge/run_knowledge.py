"""One run's desk of knowledge: what it may look things up in, and how."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from core.domain.errors import ModelError
from core.domain.messages import Message
from core.domain.threads import Usage
from core.knowledge.block import direct_block, knowledge_block
from core.knowledge.chunk import chunks
from core.knowledge.dialogue import dialogue_document, request_in
from core.knowledge.doc_qa import Answer, answer_from
from core.knowledge.document import Document, ParseLimits
from core.knowledge.keywords import search_texts
from core.knowledge.parsing.parse import parse, spooled
from core.knowledge.ports import (
    HEAD_BYTES,
    Ask,
    EntryDraft,
    KnowledgeEntry,
    KnowledgeStore,
    Scope,
)
from core.knowledge.retrieve import Passage, beginning, retrieve
from core.knowledge.semantics import Semantics
from core.knowledge.terms import is_chinese

PROMPT_TOKENS = 4_000
SEARCH_TOKENS = 6_000
_PARSED_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What all desks of a process share. `places` bounds how many documents are parsed at once."""

    store: KnowledgeStore
    semantics: Semantics | None = None
    limits: ParseLimits = field(default_factory=ParseLimits)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARSED_AT_ONCE))

    def charged_to(self, spent: Callable[[str, Usage], object]) -> "Library":
        """The same, whose vectors somebody pays for."""
        return replace(self, semantics=self.semantics and self.semantics.charged_to(spent))

    async def add(self, scope: Scope, name: str, pieces: AsyncIterator[bytes]) -> KnowledgeEntry:
        """Reads the file and keeps it; the same content again costs no second reading, and only fetches the vectors
        that it lacks. Raises DocumentError."""
        async with spooled(pieces, self.limits) as file:
            for entry in await self.store.entries([scope]):
                if entry.content_hash == file.content_hash:
                    await self._embed(entry)
                    return entry
            async with self.places:
                document = await parse(file.file, name=name, limits=self.limits)
        return await self.keep(
            scope, name, document, content_hash=file.content_hash, size_bytes=file.size_bytes
        )

    async def keep(
        self,
        scope: Scope,
        name: str,
        document: Document,
        *,
        content_hash: str,
        size_bytes: int,
        is_embedded: bool = True,
    ) -> KnowledgeEntry:
        """Cuts and indexes a document that is read already. `is_embedded` False: it is searched by its words alone."""
        draft = EntryDraft(
            name=name,
            kind=document.kind,
            title=document.title,
            content_hash=content_hash,
            size_bytes=size_bytes,
            head=await asyncio.to_thread(_head, document),
        )
        entry = await self.store.add(scope, draft, chunks(document))
        if is_embedded:
            await self._embed(entry)
        return entry

    async def remove(self, scope: Scope, name: str) -> KnowledgeEntry | None:
        """Removes the entry that people mean by the name: written so, else but for its case. None: there is no such."""
        entries = await self.store.entries([scope])
        meant = [entry for entry in entries if entry.name == name] or [
            entry for entry in entries if entry.name.casefold() == name.strip().casefold()
        ]
        if not meant or not await self.store.remove(scope, meant[0].entry_id):
            return None
        return meant[0]

    async def _embed(self, entry: KnowledgeEntry) -> None:
        """Best effort: an entry without vectors is found by its words."""
        if self.semantics is None or await self.semantics.knows(entry.entry_id):
            return
        held = await self.store.chunks(entry.entry_id)
        await self.semantics.keep(entry.entry_id, [chunk.text for chunk in held])


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeDesk:
    """The library as one run sees it. `agent_id` None: the run's agent has no knowledge of its own."""

    library: Library
    thread_id: str
    agent_id: str | None = None
    ask: Ask | None = None

    async def agents(self) -> tuple[KnowledgeEntry, ...]:
        """Newest first."""
        if self.agent_id is None:
            return ()
        return await self.library.store.entries([Scope("agent", self.agent_id)])

    async def threads(self) -> tuple[KnowledgeEntry, ...]:
        """Newest first."""
        return await self.library.store.entries([Scope("thread", self.thread_id)])

    async def has_entries(self) -> bool:
        """Whether there is anything to look for."""
        return bool(await self.threads() or await self.agents())

    async def for_prompt(self, question: str = "", *, tokens_max: int = PROMPT_TOKENS) -> str:
        """The block for the system prompt: the agent's entries at most half of it, the thread's all that remains.

        What fits goes in directly, newest first; of what does not, the passages that the question's own words find
        (no model is asked), or without a question the newest entries' beginnings. Empty without entries.
        """
        agents = await self._share(await self.agents(), question, tokens_max // 2)
        room = tokens_max - sum(passage.chunk.tokens for passage in agents)
        threads = await self._share(await self.threads(), question, room)
        return knowledge_block((*agents, *threads), chinese=is_chinese(question))

    async def direct(self, *, tokens_max: int = PROMPT_TOKENS, chinese: bool = False) -> str:
        """The direct form alone: the first 100 KB of each entry's text, newest first, in the same shares."""
        texts, used = await self._heads(await self.agents(), tokens_max // 2)
        more, _ = await self._heads(await self.threads(), tokens_max - used)
        return direct_block([*texts, *more], chinese=chinese)

    async def search(self, question: str, *, tokens_max: int = SEARCH_TOKENS) -> str:
        """The passages of all entries for the question, keywords by the model; empty without entries."""
        entries = (*await self.threads(), *await self.agents())
        if not entries:
            return ""
        passages = await self._retrieved(
            entries, await search_texts(question, self.ask), tokens_max
        )
        return knowledge_block(passages, chinese=is_chinese(question))

    async def answer(self, name: str, pieces: AsyncIterator[bytes], question: str) -> Answer:
        """Reads a document without making it part of the thread's knowledge, and answers from it.

        Raises DocumentError and ModelError; needs a model to ask.
        """
        if self.ask is None:
            raise ModelError("There is no model to read documents with.")
        entry = await self.library.add(Scope("reading", self.thread_id), name, pieces)
        return await answer_from(
            entry,
            question,
            store=self.library.store,
            ask=self.ask,
            semantics=self.library.semantics,
        )

    async def recall(
        self, messages: Sequence[Message], question: str, *, tokens_max: int = SEARCH_TOKENS
    ) -> str:
        """The passages of a long conversation that the question needs; found by its words alone."""
        document = await asyncio.to_thread(dialogue_document, messages)
        if not document.pages:
            return ""
        content = "\f".join(page.text for page in document.pages).encode("utf-8", "replace")
        entry = await self.library.keep(
            Scope("reading", self.thread_id),
            "dialogue",
            document,
            content_hash=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            is_embedded=False,
        )
        wanted = await request_in(question, self.ask)
        passages = await retrieve(
            [entry],
            await search_texts(wanted, self.ask),
            store=self.library.store,
            tokens_max=tokens_max,
        )
        return knowledge_block(passages, chinese=is_chinese(wanted))

    async def _share(
        self, entries: Sequence[KnowledgeEntry], question: str, tokens_max: int
    ) -> tuple[Passage, ...]:
        return await self._retrieved(entries, [question], tokens_max) if entries else ()

    async def _retrieved(
        self, entries: Sequence[KnowledgeEntry], texts: Sequence[str], tokens_max: int
    ) -> tuple[Passage, ...]:
        return await retrieve(
            entries,
            texts,
            store=self.library.store,
            tokens_max=tokens_max,
            semantics=self.library.semantics,
        )

    async def _heads(
        self, entries: Sequence[KnowledgeEntry], tokens_max: int
    ) -> tuple[list[tuple[str, str]], int]:
        """The texts, and the tokens that they use."""
        texts, room = list[tuple[str, str]](), tokens_max
        for entry in entries:
            if room <= 0:
                break
            text = beginning(await self.library.store.head(entry.entry_id), room)
            if text:
                texts.append((entry.name, text))
            room -= min(room, max(1, entry.tokens))
        return texts, tokens_max - room


def _head(document: Document) -> str:
    """Enough of the text to fill the head, whatever a character takes."""
    text = "\n\n".join(page.text for page in islice(document.pages, HEAD_BYTES))
    return text[:HEAD_BYTES]
