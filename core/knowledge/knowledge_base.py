"""The knowledge base of a process, and the view of it that a single run has."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from core.context.message_text import full_message_text
from core.context.untrusted_text import wrap_untrusted
from core.domain.errors import ModelError
from core.domain.messages import Message
from core.domain.threads import Usage
from core.knowledge.chunk import split_into_chunks
from core.knowledge.doc_qa import DocumentAnswer, answer_from_document
from core.knowledge.document import Document, Page, ParseLimits
from core.knowledge.parsing.parser_process import parse_document, spool_to_file
from core.knowledge.ports import Ask, EntryDraft, KnowledgeEntry, KnowledgeStore, Scope, ScopeKind
from core.knowledge.query_expansion import expand_query
from core.knowledge.retrieval import Passage, render_passages, retrieve_passages
from core.knowledge.semantic_search import SemanticSearch
from core.knowledge.terms import is_chinese

LONG_REQUEST_CHARACTERS = 1_000

_REQUEST = """Below are the beginning and the end of a long message. Say in one or two sentences, in its \
language, what its author asks for. Reply with that alone.

{message}
"""


def dialogue_to_document(messages: Sequence[Message]) -> Document:
    """Converts messages to a document, one page each with speaker and message id. Skips messages hidden from models."""
    pages = (
        Page(None, f"message {message.message_id}", f"{message.content.get('role', message.type)}: {text}")
        for message in messages
        if message.is_dialogue and (text := full_message_text(message)).strip()
    )
    return Document(title="", kind="txt", pages=tuple(pages))


def searchable_messages(history: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the messages to search. The newest request and the newest answer are left out, because they repeat what
    is searched for. So are summaries, because the original messages are included."""
    newest = {message.type: message.message_id for message in history}
    left_out = {newest.get("user"), newest.get("assistant")}
    return tuple(message for message in history if message.type != "summary" and message.message_id not in left_out)


async def summarise_request(message: str, ask: Ask | None) -> str:
    """Returns a short message unchanged. For a long message, returns a model's summary of its first and last thousand
    characters, or these characters themselves if there is no model or the model does not respond."""
    if len(message) <= LONG_REQUEST_CHARACTERS:
        return message
    ends = f"{message[:LONG_REQUEST_CHARACTERS]}\n...\n{message[-LONG_REQUEST_CHARACTERS:]}"
    if ask is None:
        return ends
    try:
        return await ask(_REQUEST.format(message=wrap_untrusted(ends, source="message"))) or ends
    except ModelError:
        return ends


PROMPT_TOKENS = 4_000
SEARCH_TOKENS = 6_000
_PARSED_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBase:
    """The documents of all agents and threads. `parse_slots` bounds how many documents are parsed at once."""

    store: KnowledgeStore
    semantics: SemanticSearch | None = None
    limits: ParseLimits = field(default_factory=ParseLimits)
    parse_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARSED_AT_ONCE))

    def reporting_usage_to(self, spent: Callable[[str, Usage], object]) -> "KnowledgeBase":
        """Returns a copy that reports the usage of embeddings to `spent`."""
        return replace(self, semantics=self.semantics and self.semantics.reporting_usage_to(spent))

    async def add(self, scope: Scope, name: str, pieces: AsyncIterator[bytes]) -> KnowledgeEntry:
        """Parses and stores a file. If the scope already has the content, only the name is added, and missing
        embeddings are made. In either case, the file replaces an earlier one of the same name. Raises DocumentError."""
        async with spool_to_file(pieces, self.limits, name=name) as file:
            for entry in await self.store.entries([scope]):
                if entry.content_hash == file.content_hash:
                    if entry.name != name:
                        await self.store.rename(scope, entry.entry_id, name)
                    await self._embed(entry)
                    return replace(entry, name=name)
            async with self.parse_slots:
                document = await parse_document(file.file, name=name, limits=self.limits)
        return await self.store_document(
            scope, name, document, content_hash=file.content_hash, size_bytes=file.size_bytes
        )

    async def store_document(
        self,
        scope: Scope,
        name: str,
        document: Document,
        *,
        content_hash: str,
        size_bytes: int,
        is_embedded: bool = True,
    ) -> KnowledgeEntry:
        """Splits and indexes a parsed document. If `is_embedded` is False, the document is searched by words only."""
        draft = EntryDraft(
            name=name, kind=document.kind, title=document.title, content_hash=content_hash, size_bytes=size_bytes
        )
        entry = await self.store.add(scope, draft, split_into_chunks(document))
        if is_embedded:
            await self._embed(entry)
        return entry

    async def remove(self, scope: Scope, name: str) -> KnowledgeEntry | None:
        """Removes the entry with this name, matched exactly or else ignoring case. Returns None if there is none."""
        entries = await self.store.entries([scope])
        meant = [entry for entry in entries if entry.name == name] or [
            entry for entry in entries if entry.name.casefold() == name.strip().casefold()
        ]
        if not meant or not await self.store.remove(scope, meant[0].entry_id):
            return None
        return meant[0]

    async def _embed(self, entry: KnowledgeEntry) -> None:
        """Makes embeddings if they are missing. Best effort: an entry without them is still found by its words."""
        if self.semantics is None or await self.semantics.has_embeddings(entry.entry_id):
            return
        held = await self.store.chunks(entry.entry_id)
        await self.semantics.store_embeddings(entry.entry_id, [chunk.text for chunk in held])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKnowledge:
    """The knowledge base as one run sees it. `agent_id` is None outside runs of an agent. `has_own_files`: whether the
    agent's definition names files. `room_tokens` is how much of a document `ask` reads at once."""

    knowledge_base: KnowledgeBase
    thread_id: str
    agent_id: str | None = None
    has_own_files: bool = True
    ask: Ask | None = None
    room_tokens: int = 0

    async def agent_entries(self) -> tuple[KnowledgeEntry, ...]:
        """Returns the agent's entries, newest first."""
        return await self.knowledge_base.store.entries(self._agent_scopes)

    async def thread_entries(self) -> tuple[KnowledgeEntry, ...]:
        """Returns the thread's entries, newest first."""
        return await self.knowledge_base.store.entries([Scope("thread", self.thread_id)])

    async def has_entries(self) -> bool:
        """Returns whether the agent or the thread has any entries."""
        scopes = [Scope("thread", self.thread_id), *self._agent_scopes]
        return bool(await self.knowledge_base.store.entries(scopes))

    @property
    def _agent_scopes(self) -> Sequence[Scope]:
        if self.agent_id is None:
            return ()
        kinds: tuple[ScopeKind, ...] = ("agent", "upload") if self.has_own_files else ("upload",)
        return [Scope(kind, self.agent_id) for kind in kinds]

    async def render_relevant_entries(self, question: str = "", *, tokens_max: int = PROMPT_TOKENS) -> str:
        """Returns the block for the system prompt. The agent's entries get at most half of it, the thread's the rest.

        If the entries fit, they are included in full. Otherwise the block has the passages that match the words of the
        question. If there are none, it has the passages that match the model's keywords for the question, which may be
        in another language. Without a question, it has the beginnings of the entries. Empty without entries."""
        keywords = partial(expand_query, question, self.ask)
        agents = await self._retrieved(await self.agent_entries(), [question], tokens_max // 2, otherwise=keywords)
        room = tokens_max - sum(passage.chunk.tokens for passage in agents)
        threads = await self._retrieved(await self.thread_entries(), [question], room, otherwise=keywords)
        return render_passages((*agents, *threads), chinese=is_chinese(question))

    async def search(self, question: str, *, tokens_max: int = SEARCH_TOKENS) -> str:
        """Returns passages that match the question or the model's keywords for it, from all entries."""
        entries = (*await self.thread_entries(), *await self.agent_entries())
        if not entries:
            return ""
        passages = await self._retrieved(entries, await expand_query(question, self.ask), tokens_max)
        return render_passages(passages, chinese=is_chinese(question))

    async def answer_from_file(self, name: str, pieces: AsyncIterator[bytes], question: str) -> DocumentAnswer:
        """Answers a question from a document without adding the document to the thread's knowledge.

        Raises DocumentError, or ModelError, for example if no model is configured."""
        if self.ask is None:
            raise ModelError("There is no model to read documents with.")
        entry = await self.knowledge_base.add(Scope("reading", self.thread_id), name, pieces)
        return await answer_from_document(
            entry,
            question,
            store=self.knowledge_base.store,
            ask=self.ask,
            semantics=self.knowledge_base.semantics,
            room_tokens=self.room_tokens,
        )

    async def search_messages(
        self, messages: Sequence[Message], question: str, *, tokens_max: int = SEARCH_TOKENS
    ) -> str:
        """Returns the passages of a long conversation that match the question or the model's keywords for it."""
        document = await asyncio.to_thread(dialogue_to_document, messages)
        if not document.pages:
            return ""
        content = "\f".join(page.text for page in document.pages).encode("utf-8", "replace")
        entry = await self.knowledge_base.store_document(
            Scope("reading", self.thread_id),
            "dialogue",
            document,
            content_hash=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            is_embedded=False,
        )
        wanted = await summarise_request(question, self.ask)
        passages = await retrieve_passages(
            [entry], await expand_query(wanted, self.ask), store=self.knowledge_base.store, tokens_max=tokens_max
        )
        return render_passages(passages, chinese=is_chinese(wanted), is_conversation=True)

    async def _retrieved(
        self,
        entries: Sequence[KnowledgeEntry],
        texts: Sequence[str],
        tokens_max: int,
        *,
        otherwise: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> tuple[Passage, ...]:
        return await retrieve_passages(
            entries,
            texts,
            store=self.knowledge_base.store,
            tokens_max=tokens_max,
            semantics=self.knowledge_base.semantics,
            otherwise=otherwise,
        )
