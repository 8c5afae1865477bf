"""The contract of `core.stores.Conversations` about what has happened in a thread, on each database."""

from dataclasses import replace

from core.context.request_tail import PICTURES_MAX
from core.domain.messages import Message, MessageType
from core.domain.threads import Lease
from core.stores import JournalEntry
from tests.contracts.stores import Stores, told


def aside(lease: Lease, kind: MessageType, words: str) -> Message:
    return replace(told(lease, words), type=kind, is_llm_message=False)


async def history(stores: Stores, lease: Lease) -> list[object]:
    return [one.content["content"] for one in await stores.conversations.history(lease.thread_id)]


async def test_a_summary_removes_nothing_from_what_has_happened(stores: Stores) -> None:
    lease = await stores.started()
    a, b, c = (told(lease, words) for words in "abc")
    summary = replace(told(lease, "summary"), type="summary", metadata={"replaces_up_to": b.message_id})
    entry = JournalEntry(messages=(a, b, c, summary, aside(lease, "status", "compacted")))
    await stores.journal.write(lease, entry)
    assert await history(stores, lease) == ["a", "b", "c", "summary"]


async def test_of_what_passes_only_the_newest_comes_along(stores: Stores) -> None:
    lease = await stores.started()
    pictures = [aside(lease, "image_context", f"picture {number}") for number in range(PICTURES_MAX + 2)]
    pages = [aside(lease, "browser_state", f"page {number}") for number in (1, 2)]
    entry = JournalEntry(messages=(pages[0], told(lease, "a"), *pictures, pages[1], told(lease, "b")))
    await stores.journal.write(lease, entry)
    newest = [one.content["content"] for one in pictures[2:]]
    assert await history(stores, lease) == ["a", *newest, "page 2", "b"]


async def test_a_message_is_read_by_its_id_within_its_thread(stores: Stores) -> None:
    lease = await stores.started()
    one = told(lease, "a")
    await stores.journal.write(lease, JournalEntry(messages=(one,)))
    found = await stores.conversations.message(lease.thread_id, one.message_id)
    assert found == replace(one, sequence=1)
    assert await stores.conversations.message("another", one.message_id) is None
    assert await stores.conversations.message(lease.thread_id, "another") is None
