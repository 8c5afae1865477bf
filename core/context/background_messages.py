"""Adds chat messages that were not addressed to the agent to its conversation, as background."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, cast

from core.context.tokens import with_token_count
from core.context.untrusted_text import wrap_untrusted
from core.domain.call_targets import find_addresses
from core.domain.errors import RunError, SurfaceError
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.sources import SOURCES_KEY, dump_sources, join_sources, offer_addresses, sources_read_now
from core.domain.threads import Address, ChatMessage, ChatPage, IncomingFile, ThreadInput
from core.ports import ChatHistory

BACKGROUND_MESSAGES_MAX = 50
BACKGROUND_CHARACTERS_MAX = 20_000
TEXT_CHARACTERS_MAX = 2_000
FILES_SHOWN_MAX = 10
"""The maximum number of files that are listed for one message."""
BACKGROUND_KEY = "is_heard"
BACKGROUND_REFS_KEY = "heard_refs"
BACKGROUND_FILES_KEY = "heard_files"
UNREAD_KEY = "is_unread"
"""The metadata key of a message that its run did not read before the run ended."""
FLOW_KEY = "flow"
"""The metadata key of a user message that was written by a planning flow and not by a person."""
_HEARD = "Said in the thread, oldest first. It was not said to you."
_LINKED = "The messages that links in the request lead to. They were not said to you."
_FILES = "read_chat fetches a file by its id."
_PARTIAL = "The chat platform let me read only a part of the earlier talk."
_UNREAD = "The earlier talk in this thread could not be read just now."


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """What the agent was not sent but should know: messages of the thread, and messages that links lead to."""

    page: ChatPage
    linked: Mapping[str, ChatMessage | None] = field(default_factory=dict[str, ChatMessage | None])
    is_first: bool = False
    note: str = ""
    read_refs: Sequence[str] = ()
    """The messages that count as read once these are added, whether they are shown or not."""

    @property
    def files(self) -> dict[str, IncomingFile]:
        """The files of these messages, oldest first, by the ids that the model uses for them."""
        linked = (one for one in self.linked.values() if one)
        root = (self.page.root,) if self.page.root else ()
        return files_by_model_id((*root, *self.page.messages, *linked))


def files_by_model_id(messages: Sequence[ChatMessage]) -> dict[str, IncomingFile]:
    """Returns the files of the messages by the ids that the model uses for them."""
    return {
        f"{one.message_ref}/{number}": file
        for one in messages
        for number, file in enumerate(one.files[:FILES_SHOWN_MAX], 1)
    }


def build_background_message(
    background: Background, *, thread_id: str, run_id: str, fetched: Sequence[str] = ()
) -> Message | None:
    """Returns one message that lists chat messages with their authors, or None if there is nothing to list. Each line
    is a JSON object, so that no text can pretend to come from another author.

    If the list is too long, only the newest messages and the thread's first one are kept. `fetched` are lines about
    files that are in the sandbox."""
    root, page = background.page.root, background.page
    lines, refs, room = list[str](), list[str](), BACKGROUND_CHARACTERS_MAX
    newest = sorted(page.messages, key=lambda message: message.sent_at)[-BACKGROUND_MESSAGES_MAX:]
    for message in reversed(newest):
        line = message_line(message)
        room -= len(line)
        if room < 0:
            break
        lines.insert(0, line)
        refs.insert(0, message.message_ref)
    omitted = page.omitted + len(page.messages) - len(refs)
    if root is not None and root.message_ref not in refs:
        lines, refs = [message_line(root), *lines], [root.message_ref, *refs]
    parts: list[str] = []
    if lines:
        notes = [_HEARD]
        if omitted > 0:
            place = "after the first one " if root is not None else ""
            notes.append(f"{omitted:,} older messages {place}are not shown; read_chat shows them.")
        notes += [_FILES] if background.files else []
        parts += [f"[{' '.join(notes)}]", wrap_untrusted("\n".join(lines), source="the chat thread")]
    if background.note:
        parts.append(f"[{background.note}]")
    if background.linked:
        unreadable = {"note": "It cannot be read from this conversation."}
        linked = "\n".join(
            json.dumps({"link": link, **(json.loads(message_line(one)) if one else unreadable)}, ensure_ascii=False)
            for link, one in background.linked.items()
        )
        parts += [f"[{_LINKED}]", wrap_untrusted(linked, source="other chat messages")]
    if not parts:
        return None
    files: JsonObject = {
        key: {name: value for name, value in asdict(file).items() if value is not None}
        for key, file in background.files.items()
    }
    # addresses that users wrote in the chat may be opened, like those that a search returned
    written = [message for message in (*((root,) if root else ()), *page.messages) if not message.is_app]
    offered = (address for message in written for address in find_addresses(message.text[:TEXT_CHARACTERS_MAX]))
    return with_token_count(
        Message(
            type="user",
            content={"role": "user", "content": "\n".join([*parts, *fetched])},
            is_llm_message=True,
            thread_id=thread_id,
            run_id=run_id,
            metadata={
                BACKGROUND_KEY: True,
                SOURCES_KEY: dump_sources(join_sources([sources_read_now(("chat", "")), offer_addresses(offered)])),
                BACKGROUND_REFS_KEY: [ref for ref in refs if ref],
                **({BACKGROUND_FILES_KEY: files} if files else {}),
            },
        )
    )


def message_line(one: ChatMessage) -> str:
    """Returns a chat message as one line of JSON."""
    text = one.text.strip()
    cut = text[:TEXT_CHARACTERS_MAX] + (" […]" if len(text) > TEXT_CHARACTERS_MAX else "")
    said: JsonObject = {
        "from": one.author.name,
        "id": one.author.person_id,
        "at": f"{one.sent_at:%Y-%m-%d %H:%M}",
        "message": one.message_ref,
        "text": cut,
    }
    if one.is_app:
        said["is_app"] = True
    if one.files:
        said["files"] = [
            {"id": key, "name": file.name, "type": file.mime_type} for key, file in files_by_model_id([one]).items()
        ]
    return json.dumps(said, ensure_ascii=False)


def find_known_files(history: Sequence[Message]) -> dict[str, IncomingFile]:
    """Returns the files of chat messages that the history lists, by their ids."""
    told = (one.metadata.get(BACKGROUND_FILES_KEY) for one in history)
    return {
        key: IncomingFile(**cast(Any, file)) for files in told if isinstance(files, dict) for key, file in files.items()
    }


_REFERS = re.compile(
    r"\b(?:above|attach\w*|files?|tables?|csv|xlsx?|spreadsheets?|sheets?|documents?|docs?|pdfs?|reports?|images?|pictures?|"
    r"photos?|screenshots?|charts?|diagrams?|logs?|data|this|these|that|those|it|oben|anhang|angehängt\w*|dateie?n?|"
    r"tabellen?|bild(?:er)?|dokumente?|berichte?|dies\w*|ci-dessus|fichiers?|tableaux?|pièces?|cette?|ces|arriba|adjunt\w*|"
    r"archivos?|tablas?|imagen(?:es)?|est[aeo]s?|acima|anex\w*|arquivos?|tabelas?|imagens?|iss[oa]|ess[ae]s?)\b|"
    r"[上表図图]|添付|ファイル|画像|これ|附件|文件|这",
    re.IGNORECASE,
)


def refers_to_files(text: str, files: Mapping[str, IncomingFile]) -> bool:
    """Returns whether the text of a request suggests that it is about files in the messages before it."""
    words = text[:TEXT_CHARACTERS_MAX].casefold()
    names = (file.name.casefold() for file in files.values())
    return bool(_REFERS.search(words)) or any(
        name in words or (len(stem := name.partition(".")[0]) > 3 and stem in words) for name in names
    )


def find_known_refs(history: Sequence[Message]) -> frozenset[str]:
    """Returns the platform ids of the chat messages that the history already contains."""
    told = (one.metadata.get(BACKGROUND_REFS_KEY) for one in history)
    refs = chain.from_iterable(one for one in told if isinstance(one, list))
    own = (one.metadata.get("message_ref") for one in history)
    return frozenset(str(ref) for ref in chain(refs, own) if ref)


def last_read_at(history: Sequence[Message]) -> datetime | None:
    """Returns when the newest user message that a run has read was sent, or None if there is none. What other users
    sent after that time was not read, however late the run took up the message."""
    read = (one for one in reversed(history) if not one.metadata.get(UNREAD_KEY))
    newest = next(filter(is_from_person, read), None)
    if newest is None:
        return None
    sent_at = newest.metadata.get("sent_at")
    return datetime.fromisoformat(sent_at) if isinstance(sent_at, str) else newest.created_at


def is_from_person(message: Message) -> bool:
    """Returns whether a person wrote the message to the agent. Background and flow messages do not count."""
    is_marked = message.metadata.get(BACKGROUND_KEY) or message.metadata.get(FLOW_KEY)
    return message.type == "user" and not is_marked


log = logging.getLogger(__name__)
READ_SECONDS = 5.0
ReadUnread = Callable[[datetime], Awaitable[Sequence[ChatMessage]]]
"""Returns the messages of the thread that were sent before a time, arrived as events, were not for the agent, and were
not read."""


class BackgroundMessageReader:
    """Reads new background messages of the thread for one run. Remembers the time of the last read and the ids of the
    messages that the conversation already contains."""

    def __init__(self, histories: Mapping[str, ChatHistory], read_unread: ReadUnread) -> None:
        """`histories` maps platform names to chat histories. Other platforms have no background messages."""
        self._histories = histories
        self._read_unread = read_unread
        self._after: datetime | None = None
        self._refs: frozenset[str] = frozenset()
        self._is_failure_told = False

    def remember(self, history: Sequence[Message], *, reads_all: bool = False) -> None:
        """Records which chat messages the stored conversation contains, so that `listen` does not return them again.
        With `reads_all`, reads the thread from its beginning, because no earlier run has read all of it."""
        self._after = None if reads_all else last_read_at(history)
        self._refs = find_known_refs(history)

    async def read(self, address: Address, inputs: Sequence[ThreadInput]) -> Background | None:
        """Returns the thread's other messages since the last read, and the messages that links in the inputs lead to.
        If the platform fails or does not respond within READ_SECONDS, returns the messages that arrived as events, with
        a note about the failure."""
        history = self._histories.get(address.platform)
        if history is None or not inputs:
            return None
        before = max(one.sent_at for one in inputs)
        page, note, read_refs = await self._read(history, address, before)
        known = self._refs | {one.message_ref for one in inputs if one.message_ref}
        is_first, self._after = self._after is None, before
        new = tuple(one for one in page.messages if one.message_ref not in known)
        root = page.root if page.root and page.root.message_ref not in known else None
        self._refs = known | {one.message_ref for one in new if one.message_ref}
        linked: dict[str, ChatMessage | None] = {}
        for one in inputs:
            if "https://" not in one.text and "http://" not in one.text:
                continue
            try:
                async with asyncio.timeout(READ_SECONDS):
                    linked |= await history.read_linked(address, one.text, person_id=one.author.person_id)
            except (SurfaceError, RunError, TimeoutError) as error:
                log.warning("linked messages were not read: %s", type(error).__name__)
        return Background(
            page=replace(page, messages=new, root=root),
            linked=linked,
            is_first=is_first,
            note=note,
            read_refs=read_refs,
        )

    async def _read(
        self, history: ChatHistory, address: Address, before: datetime
    ) -> tuple[ChatPage, str, tuple[str, ...]]:
        """Returns the messages, a note about what is missing, and the messages that count as read with them."""
        after, note = self._after, _PARTIAL
        try:
            async with asyncio.timeout(READ_SECONDS):
                page = await history.read(address, before=before, limit=BACKGROUND_MESSAGES_MAX, after=after)
        except (SurfaceError, RunError, TimeoutError) as error:
            log.warning("the talk in the thread was not read: %s", type(error).__name__)
            page, note = ChatPage(is_partial=True), _UNREAD
        is_whole = not page.is_partial
        shows_all = is_whole and after is None and not page.omitted
        unread = () if shows_all else await self._read_unread(before)
        # if the platform has returned everything, only messages sent after that read can be missing
        missing = [one for one in unread if not is_whole or (after and one.sent_at <= after)]
        known = {one.message_ref for one in page.messages} | {page.root.message_ref if page.root else ""}
        more = [one for one in missing if one.message_ref not in known]
        messages = tuple(sorted((*page.messages, *more), key=lambda one: one.sent_at))
        omitted = max(0, page.omitted - len(more)) if page.is_partial else page.omitted
        page = replace(page, messages=messages, omitted=omitted)
        refs = tuple(one.message_ref for one in unread)
        if is_whole:
            return page, "", refs
        is_told, self._is_failure_told = self._is_failure_told, True
        return page, "" if is_told else note, refs
