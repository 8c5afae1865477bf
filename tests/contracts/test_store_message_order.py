"""The order of a thread's messages is the platform's, and a change counts also if it comes before its message."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.domain.actions import StopRequested
from core.domain.threads import Address, Decision, Ignore, InputKind, Receipt, StopRun, ThreadSnapshot
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, ALICE, Stores, accept, deciding, message
from tests.support.narrow import require

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
OVER_HTTP = Address(platform="api", workspace_id="api", channel_id="api", thread_key="1")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


async def read(stores: Stores) -> list[str]:
    """The unread messages of the only thread."""
    rows = await stores.conversations.unread_inputs(await thread_of(stores))
    return [one.text for one in rows]


async def thread_of(stores: Stores) -> str:
    for place in (ADDRESS, OVER_HTTP):
        if (found := await stores.conversations.find(place)) is not None:
            return found.thread.thread_id
    raise AssertionError("there is no thread")


async def change(
    stores: Stores, kind: InputKind, ref: str, words: str = "", *, sent_at: datetime, is_addressed: bool = True
) -> Receipt:
    """An edit or a deletion, decided on as chats do: it needs something under way."""
    arrival = replace(
        message(words, key=f"{kind} {ref} {sent_at}", kind=kind),
        message_ref=ref,
        sent_at=sent_at,
        is_addressed=is_addressed,
    )

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        return accept(snapshot) if snapshot and snapshot.active_run else Ignore(reason="nothing")

    return await stores.inbox.accept_action(arrival, decide)


async def test_unread_messages_are_in_the_order_of_the_platforms_clock(stores: Stores) -> None:
    for words, seconds in (("a", 0), ("d", 3), ("c", 2), ("e", 4), ("b", 1)):
        await stores.say(words, sent_at=at(seconds))
    assert await read(stores) == ["a", "b", "c", "d", "e"]


async def test_a_message_does_not_move_before_one_that_was_read(stores: Stores) -> None:
    run_id = (await stores.say("hello", sent_at=NOON)).run_id or ""
    lease = require(await stores.claims.claim(run_id, "w1"))
    await stores.say("later", sent_at=at(9))
    (first, *_) = await stores.journal.read_inputs(lease)
    await stores.journal.write(lease, JournalEntry(taken_input_ids=(first.input_id,)))
    await stores.say("earlier", sent_at=at(1))
    assert await read(stores) == ["earlier", "later"]


async def test_over_http_the_order_is_that_of_arrival(stores: Stores) -> None:
    for words, seconds in (("a", 3), ("b", 1)):
        await stores.say(words, sent_at=at(seconds), address=OVER_HTTP)
    assert await read(stores) == ["a", "b"]


@pytest.mark.parametrize("is_first", [True, False], ids=["a new thread", "a thread at work"])
async def test_a_message_that_was_deleted_before_it_came_is_not_taken(stores: Stores, *, is_first: bool) -> None:
    if not is_first:
        await stores.say("hello", sent_at=at(-60))
    await change(stores, "delete", "m2", sent_at=at(2))
    for _ in range(2):  # the platform may send it again
        receipt = await stores.say("delete everything", key="m2", sent_at=NOON)
        assert isinstance(receipt.decision, Ignore)
        assert receipt.newer_version is None
    if not is_first:
        assert await read(stores) == ["hello"]
    else:
        assert await stores.conversations.find(ADDRESS) is None


async def test_a_message_that_was_edited_before_it_came_is_taken_in_its_newest_version(stores: Stores) -> None:
    await change(stores, "edit", "m1", "pay 10", sent_at=at(5))
    await change(stores, "edit", "m1", "pay 100", sent_at=at(3))
    old = await stores.say("pay 1000", key="m1", sent_at=NOON)
    assert old.newer_version == ("pay 10", at(5))
    assert await stores.conversations.find(ADDRESS) is None
    new = await stores.say("pay 10", key="m1", sent_at=NOON, edited_at=at(5))
    assert new.is_new_run
    assert await read(stores) == ["pay 10"]


async def test_a_cross_on_a_message_that_was_just_edited_stops(stores: Stores) -> None:
    run_id = (await stores.say("pay 1000", key="m1")).run_id
    await change(stores, "edit", "m1", "pay 10", sent_at=datetime.now(UTC))
    cross = StopRequested(address=ADDRESS, dedupe_key="x", message_ref="m1", person=ALICE)
    assert (await stores.inbox.accept_action(cross, deciding(StopRun()))).run_id == run_id


async def test_an_edit_that_no_longer_addresses_the_agent_takes_its_message_back(stores: Stores) -> None:
    words = "nothing for you"
    await change(stores, "edit", "m1", words, sent_at=at(5), is_addressed=False)
    receipt = await stores.say("pay 1000", key="m1", sent_at=NOON)
    assert isinstance(receipt.decision, Ignore)
    assert receipt.newer_version is None
    kept = "SELECT count(*) FROM message_version WHERE text IS NULL"
    assert await stores.database.read(lambda c: c.exec_driver_sql(kept).scalar_one()) == 1


async def test_a_deletion_is_final_whenever_it_was_sent(stores: Stores) -> None:
    await stores.say("hello", key="m0", sent_at=NOON)
    await stores.say("pay 1000", key="m1", sent_at=NOON)
    await change(stores, "edit", "m1", "pay 10", sent_at=at(5))
    await change(stores, "delete", "m1", sent_at=at(3))
    await change(stores, "edit", "m1", "pay 100", sent_at=at(7))
    await stores.say("pay 100", key="m1", sent_at=NOON, edited_at=at(7))
    assert await read(stores) == ["hello"]


async def test_an_edit_is_passed_on_only_to_the_run_that_has_read_its_message(stores: Stores) -> None:
    run_id = (await stores.say("sum the table pleese", key="m1")).run_id or ""
    assert await stores.finish(require(await stores.claims.claim(run_id, "w1")))
    await stores.say("what is the weather?", key="m2")
    edit = await change(stores, "edit", "m1", "sum the table please", sent_at=at(9))
    assert isinstance(edit.decision, Ignore)
    assert await read(stores) == ["what is the weather?"]


@pytest.mark.parametrize("whose", ["conversation", "person"])
async def test_words_are_forgotten_but_not_that_they_were_replaced(stores: Stores, whose: str) -> None:
    thread_id = (await stores.say("hello", key="m1", sent_at=NOON)).thread_id or ""
    await change(stores, "edit", "m1", "hello you", sent_at=at(5))
    await change(stores, "edit", "m2", "pay 10", sent_at=at(5))
    await change(stores, "delete", "m3", sent_at=at(5))
    if whose == "person":
        await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    else:
        await stores.conversations.delete_thread(thread_id)
    kept = "SELECT count(*) FROM message_version WHERE text IS NOT NULL OR author_id <> ''"
    assert await stores.database.read(lambda c: c.exec_driver_sql(kept).scalar_one()) == 0
    for ref in ("m2", "m3"):
        late = await stores.say("pay 1000", key=ref, sent_at=NOON)
        assert late == Receipt(decision=Ignore(reason="changed before it came"))


async def test_a_request_about_somebodys_message_keeps_its_own_words(stores: Stores) -> None:
    await stores.say("hello", key="m0", sent_at=NOON)
    await change(stores, "edit", "m1", "words of its author", sent_at=at(5))
    asked = await stores.say("what does this mean?", key="m1", sent_at=at(1), is_about_message=True)
    assert asked.newer_version is None
    assert await read(stores) == ["hello", "what does this mean?"]


async def test_who_asks_about_a_thread_of_others_is_not_alone_there(stores: Stores) -> None:
    root = ADDRESS.thread_key
    await stores.say("what is this?", message_ref=root, is_about_message=True)
    assert require(await stores.conversations.find(ADDRESS)).thread.earlier_authors is None


async def test_changes_whose_messages_did_not_come_are_deleted(stores: Stores) -> None:
    now = datetime.now(UTC)
    for ref, age in (("old", timedelta(hours=2)), ("new", timedelta(minutes=2))):
        await change(stores, "delete", ref, sent_at=now - age)
    await stores.inbox.delete_old_keys(older_than_days=30)
    assert await stores.count("message_version") == 1
