"""The contract of `core.stores.Conversations` about what a model call is made from, on each database."""

from dataclasses import replace

from core.domain.messages import Message, MessageType
from core.domain.threads import Lease
from core.stores import JournalEntry
from tests.contracts.stores import Stores, told


def aside(lease: Lease, kind: MessageType, words: str) -> Message:
    return replace(told(lease, words), type=kind, is_llm_message=False)


def summary(lease: Lease, last: Message) -> Message:
    return replace(told(lease, "summary"), type="summary", metadata={"replaces_up_to": last.message_id})


async def recent(stores: Stores, lease: Lease, *added: Message) -> list[object]:
    await stores.journal.write(lease, JournalEntry(messages=added))
    found = await stores.conversations.recent_messages(lease.thread_id)
    return [one.content["content"] for one in found]


async def test_a_summary_stands_for_what_it_replaces(stores: Stores) -> None:
    lease = await stores.started()
    a, b, c, d = (told(lease, words) for words in "abcd")
    assert await recent(stores, lease, a, b, c, summary(lease, b)) == ["c", "summary"]
    newest = replace(summary(lease, c), content={"role": "user", "content": "newest"})
    assert await recent(stores, lease, d, newest) == ["d", "newest"]
    assert len(await stores.conversations.llm_messages(lease.thread_id)) == 6


async def test_a_summary_of_nothing_known_replaces_nothing(stores: Stores) -> None:
    lease = await stores.started()
    stranger = told(lease, "never stored")
    assert await recent(stores, lease, told(lease, "a"), summary(lease, stranger)) == ["a", "summary"]


async def test_of_what_passes_only_the_newest_comes_along(stores: Stores) -> None:
    lease = await stores.started()
    assert await recent(
        stores,
        lease,
        aside(lease, "browser_state", "page 1"),
        told(lease, "a"),
        aside(lease, "image_context", "picture 1"),
        aside(lease, "browser_state", "page 2"),
        told(lease, "b"),
    ) == ["a", "picture 1", "page 2", "b"]


async def test_a_message_is_read_by_its_id_within_its_thread(stores: Stores) -> None:
    lease = await stores.started()
    one = told(lease, "a")
    await stores.journal.write(lease, JournalEntry(messages=(one,)))
    found = await stores.conversations.message(lease.thread_id, one.message_id)
    assert found == replace(one, sequence=1)
    assert await stores.conversations.message("another", one.message_id) is None
    assert await stores.conversations.message(lease.thread_id, "another") is None
