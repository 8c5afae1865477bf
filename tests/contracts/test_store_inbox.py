"""The contract of `core.stores.Inbox`, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.domain.actions import MEMBER, ActorContext, StopRequested, StoredAction
from core.domain.errors import LeaseLost
from core.domain.events import Cursor
from core.domain.threads import (
    APP_PREFIX,
    APP_REQUESTS_SECONDS,
    Accept,
    Address,
    ChatMessage,
    Decision,
    FollowMode,
    Ignore,
    IncomingFile,
    InputKind,
    JoinedThread,
    Overhear,
    Person,
    Receipt,
    StopRun,
    ThreadParticipants,
    ThreadSnapshot,
)
from core.stores import JournalEntry
from storage.sql.stores.talk import SqlFollowModes
from tests.contracts.stores import ADDRESS, ALICE, BOB, FAILED, Stores, accept, added, deciding, message
from tests.support.narrow import require


async def test_of_many_deliveries_at_once_exactly_one_wins(stores: Stores) -> None:
    receipts = await asyncio.gather(*(stores.say("hello", key="m1") for _ in range(12)))
    assert sum(not receipt.is_duplicate for receipt in receipts) == 1
    assert len({(receipt.thread_id, receipt.run_id) for receipt in receipts}) == 1
    assert await stores.count("thread") == 1
    assert await stores.count("run") == 1
    assert await stores.count("thread_input") == 1


async def test_different_first_messages_at_once_share_one_thread_and_run(stores: Stores) -> None:
    receipts = await asyncio.gather(*(stores.say("hello", key=f"m{n}") for n in range(12)))
    assert len({receipt.thread_id for receipt in receipts}) == 1
    assert len({receipt.run_id for receipt in receipts}) == 1
    assert sum(receipt.is_new_run for receipt in receipts) == 1
    assert await stores.count("thread_input") == 12


async def test_what_is_ignored_claims_no_key(stores: Stores) -> None:
    ignored = await stores.say("hm", key="m1", decide=deciding(Ignore(reason="not addressed")))
    accepted = await stores.say("hm", key="m1")
    assert ignored == Receipt(decision=Ignore(reason="not addressed"))
    assert accepted.is_new_run


async def test_what_an_unknown_person_says_goes_on_with_the_requester_before(stores: Stores) -> None:
    await stores.finish(await stores.started())
    receipt = await stores.say("more", person=Person(person_id="", name="somebody"))
    assert require(await stores.conversations.run(receipt.run_id or "")).requester == ALICE


async def test_a_message_during_a_run_joins_it(stores: Stores) -> None:
    lease = await stores.started("first")
    receipt = await stores.say("second", person=BOB)
    assert receipt.run_id == lease.run_id
    assert not receipt.is_new_run
    assert [one.text for one in await stores.journal.read_inputs(lease)] == ["first", "second"]


async def test_an_input_comes_back_as_it_came_in(stores: Stores) -> None:
    sent_at = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
    files = (IncomingFile(file_ref="F1", name="дані 📊.csv", mime_type="text/csv", size_bytes=0),)
    receipt = await stores.say("مرحبا 👋", key="m1", files=files, sent_at=sent_at, person=BOB)
    lease = require(await stores.claims.claim(receipt.run_id or "", "w1"))
    (stored,) = await stores.journal.read_inputs(lease)
    assert stored.text == "مرحبا 👋"
    assert stored.files == files
    assert stored.author == BOB
    assert stored.sent_at == sent_at
    assert stored.sent_at.tzinfo is UTC
    assert stored.message_ref == "m1"


async def test_characters_that_no_database_holds_are_replaced(stores: Stores) -> None:
    lease = await stores.started("a\0b \ud83d c")
    assert [one.text for one in await stores.journal.read_inputs(lease)] == ["a\ufffdb \ufffd c"]


async def test_a_stop_marks_the_active_run_and_stores_no_input(stores: Stores) -> None:
    assert (await stores.say("stop", decide=deciding(StopRun()))).run_id is None
    lease = await stores.started()
    receipt = await stores.say("stop", key="s1", decide=deciding(StopRun()))
    again = await stores.say("stop", key="s1", decide=deciding(StopRun()))
    assert receipt.run_id == lease.run_id
    assert again.is_duplicate
    assert require(await stores.conversations.run(lease.run_id)).stop_requested
    assert await stores.count("thread_input") == 1
    await stores.finish(lease)
    assert (await stores.say("stop", decide=deciding(StopRun()))).run_id is None


async def test_an_exception_in_the_decision_leaves_nothing_behind(stores: Stores) -> None:
    def decide(snapshot: ThreadSnapshot | None) -> Accept:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stores.say("hello", key="m1", decide=decide)
    assert (await stores.say("hello", key="m1")).is_new_run


async def test_an_edit_changes_an_input_that_no_run_has_taken(stores: Stores) -> None:
    lease = await stores.started("helo")
    (before,) = await stores.journal.read_inputs(lease)
    edited = message("hello", key="e1", kind="edit")
    await stores.inbox.accept_action(_of(edited, before.message_ref), accept)
    (after,) = await stores.journal.read_inputs(lease)
    assert (after.kind, after.text) == ("message", "hello")
    with pytest.raises(LeaseLost):  # the worker has read the old text
        await stores.journal.write(lease, replace(added(lease, 1, "helo"), taken_input_ids=(before.input_id,)))
    assert await stores.journal.read_inputs(lease) == (after,)
    assert await stores.conversations.llm_messages(lease.thread_id) == ()


async def test_an_edit_of_a_taken_input_becomes_an_input_of_its_own(stores: Stores) -> None:
    lease = await stores.started("helo")
    (before,) = await stores.journal.read_inputs(lease)
    await stores.journal.write(lease, JournalEntry(taken_input_ids=(before.input_id,)))
    for key, words in (("e1", "hello"), ("e2", "hello there")):
        edit = message(words, key=key, kind="edit")
        await stores.inbox.accept_action(_of(edit, before.message_ref), accept)
    (after,) = await stores.journal.read_inputs(lease)
    assert (after.kind, after.text) == ("edit", "hello there")


async def test_what_a_failed_run_has_not_read_begins_a_run_that_knows_for_whom_it_was_meant(stores: Stores) -> None:
    lease = await stores.started()
    (request,) = await stores.journal.read_inputs(lease)
    await stores.journal.write(lease, JournalEntry(taken_input_ids=(request.input_id,)))
    await stores.say("lunch?", key="m2", decide=deciding(Accept(attention="unsure")))
    await stores.finish(lease, FAILED, takes=False)
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert require(snapshot.active_run).attention == "unsure"


async def test_the_change_of_an_answer_that_was_written_elsewhere_finds_it(stores: Stores) -> None:
    """In a direct message on Slack, an answer may stand outside the thread of its question."""
    direct = replace(ADDRESS, channel_id="D1")
    lease = require(await stores.claims.claim((await stores.say("hello", address=direct)).run_id or "", "w1"))
    await stores.say("report.txt", key="m2", message_ref="102.1", address=direct)
    edited = _of(message("notes.txt", key="e1", kind="edit"), "102.1")
    edit = replace(edited, address=replace(direct, thread_key="102.1"))
    for change in (replace(edit, address=replace(edit.address, channel_id="D9"), dedupe_key="e0"), edit):
        receipt = await stores.inbox.accept_action(change, accept)
    assert receipt.run_id == lease.run_id
    assert [one.text for one in await stores.journal.read_inputs(lease)] == ["hello", "notes.txt"]


async def test_an_edit_of_a_message_that_was_never_taken_in_does_nothing(stores: Stores) -> None:
    nowhere = await stores.inbox.accept_action(message("x", key="e1", kind="edit"), accept)
    assert nowhere == Receipt(decision=Accept())
    run_id = (await stores.say("hello", message_ref="")).run_id or ""
    for key, ref in (("e2", "e2"), ("e3", "")):
        receipt = await stores.inbox.accept_action(_of(message("x", key=key, kind="edit"), ref), accept)
        assert receipt.run_id == run_id
    lease = require(await stores.claims.claim(run_id, "w1"))
    assert [one.text for one in await stores.journal.read_inputs(lease)] == ["hello"]


async def test_deleting_the_only_input_stops_a_run_that_never_started(stores: Stores) -> None:
    receipt = await stores.say("oops", key="m1")
    assert await stores.conversations.events_so_far(receipt.run_id or "", after=Cursor(0, 0)) == ((), False)
    deletion = message("", key="d1", kind="delete")
    await stores.inbox.accept_action(_of(deletion, "m1"), accept)
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.active_run is None
    assert snapshot.thread.state == "idle"
    assert require(snapshot.last_run).status == "stopped"
    assert await stores.claims.claim(receipt.run_id or "", "w1") is None
    (last,) = await stores.conversations.events(receipt.run_id or "")
    assert (last.event.kind, last.cursor) == ("run_finished", Cursor(0, 1))
    assert await stores.conversations.events_so_far(receipt.run_id or "", after=Cursor(0, 0)) == ((last,), True)


async def test_deleting_a_taken_input_does_nothing_and_is_claimed(stores: Stores) -> None:
    lease = await stores.started()
    (before,) = await stores.journal.read_inputs(lease)
    await stores.journal.write(lease, JournalEntry(taken_input_ids=(before.input_id,)))
    deletion = _of(message("", key="d1", kind="delete"), before.message_ref)
    assert not (await stores.inbox.accept_action(deletion, accept)).is_duplicate
    assert (await stores.inbox.accept_action(deletion, accept)).is_duplicate
    assert await stores.journal.read_inputs(lease) == ()


async def test_a_bare_key_is_claimed_once(stores: Stores) -> None:
    assert not await stores.inbox.is_key_claimed("command-1")
    claims = await asyncio.gather(*(stores.inbox.claim_key("command-1") for _ in range(8)))
    assert sorted(claims) == [False] * 7 + [True]
    assert await stores.inbox.is_key_claimed("command-1")
    assert not await stores.inbox.is_key_claimed("command-2")


async def test_a_cursor_never_goes_back(stores: Stores) -> None:
    for cursor in ("99", "100", "98", "1000", "999"):
        await stores.inbox.advance_cursors("discord", {"C1": cursor, "C2": "5"})
    await stores.inbox.advance_cursors("slack", {"C1": "7"})

    assert await stores.inbox.cursors("discord") == {"C1": "1000", "C2": "5"}


async def test_cursors_forwarded_at_once_end_at_the_highest(stores: Stores) -> None:
    await asyncio.gather(*(stores.inbox.advance_cursors("discord", {"C1": str(n)}) for n in (5, 300, 20, 299, 7, 100)))

    assert await stores.inbox.cursors("discord") == {"C1": "300"}


def _of(action: StoredAction, message_ref: str) -> StoredAction:
    return replace(action, message_ref=message_ref)


async def test_the_threads_of_a_workspace_that_the_agent_is_in(stores: Stores) -> None:
    quiet, busy = replace(ADDRESS, thread_key="101.1"), replace(ADDRESS, thread_key="102.1")
    elsewhere = replace(ADDRESS, workspace_id="T2")
    for address, reference in ((busy, "102.1"), (quiet, "101.1"), (elsewhere, "103.1"), (busy, "104.1"), (busy, "")):
        await stores.say("hello", address=address, message_ref=reference)
    left = replace(ADDRESS, thread_key="105.1")
    said = await stores.say("hello", address=left, message_ref="105.1")
    assert await stores.stops.request_stop(said.run_id or "")
    assert await stores.conversations.unbind(left)
    joined = await stores.inbox.joined_threads("slack", "T1", limit=5)
    assert joined == (
        JoinedThread(channel_id="C1", thread_key="102.1", first_ref="102.1", last_ref="104.1"),
        JoinedThread(channel_id="C1", thread_key="101.1", first_ref="101.1", last_ref="101.1"),
    )
    assert await stores.inbox.joined_threads("slack", "T1", limit=1) == joined[:1]
    assert await stores.inbox.joined_threads("slack", "T3", limit=5) == ()


async def test_messages_that_were_not_for_the_agent_can_be_read(stores: Stores) -> None:
    await stores.say("hello", key="m1")
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    file = IncomingFile(file_ref="ref", name="a.csv", mime_type="text/csv", size_bytes=3)
    for minute in range(3):
        said = replace(
            message(f"lunch {minute}", key=f"h{minute}"),
            message_ref=f"h{minute}",
            sent_at=noon + timedelta(minutes=minute),
            files=(file,),
        )
        await stores.inbox.accept_action(said, deciding(Overhear(reason="to others")))
    snapshot = require(await stores.conversations.find(ADDRESS))
    end = noon + timedelta(minutes=2)
    heard = await stores.conversations.unread_talk(snapshot.thread.thread_id, end)
    assert [(one.text, one.message_ref) for one in heard] == [("lunch 0", "h0"), ("lunch 1", "h1")]
    assert heard[0] == ChatMessage(author=ALICE, text="lunch 0", sent_at=noon, message_ref="h0", files=(file,))
    lease = await stores.started("so?")
    await stores.journal.write(lease, JournalEntry(heard_refs=("h0", "elsewhere")))
    for change, left in ((None, "lunch 1"), ("edit", "dinner"), ("delete", None)):
        if change:
            await stores.inbox.accept_action(_of(message("dinner", key=change, kind=change), "h1"), accept)
        talk = await stores.conversations.unread_talk(snapshot.thread.thread_id, end + timedelta(minutes=1))
        assert [one.text for one in talk] == [text for text in (left, "lunch 2") if text]


async def test_a_decision_knows_who_has_written_and_whether_people_talk(stores: Stores) -> None:
    lease = await stores.started("list the invoices")
    await stores.finish(lease)
    seen: list[ThreadParticipants] = []

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        seen.append(require(snapshot).talk)
        return Overhear(reason="to others")

    later = datetime.now(UTC) + timedelta(minutes=1)
    for number, author in enumerate((BOB, ALICE)):
        await stores.say("lunch?", message_ref=f"h{number}", person=author, sent_at=later, decide=decide)
        await stores.conversations.note_earlier_authors(lease.thread_id, {"U9": "dana"})
    assert [(one.is_known, one.heard_at) for one in seen] == [(False, None), (True, later)]
    names = [sorted(person.name for person in one.participants) for one in seen]
    assert names == [["alice"], ["alice", "bob", "dana"]]
    assert [one.is_alone(ALICE) for one in seen] == [False, False]


async def test_a_person_without_access_counts_among_those_who_write(stores: Stores) -> None:
    await stores.conversations.note_author(ADDRESS, BOB)  # the agent has no thread there
    assert await stores.conversations.find(ADDRESS) is None
    await stores.say("hello", message_ref=ADDRESS.thread_key)
    for _ in range(2):
        await stores.conversations.note_author(ADDRESS, BOB)
    assert require(await stores.conversations.find(ADDRESS)).thread.earlier_authors == {BOB.person_id: BOB.name}


async def test_one_person_is_alone_in_a_thread_that_begins_with_the_request(stores: Stores) -> None:
    seen: list[ThreadParticipants] = []

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        seen.extend([snapshot.talk] if snapshot else [])
        return Accept()

    for ref in (ADDRESS.thread_key, "101.1"):
        await stores.say("hello", message_ref=ref, decide=decide)
    assert [one.is_alone(ALICE) for one in seen] == [True]
    assert not seen[0].is_alone(BOB)


async def test_a_thread_is_followed_as_people_chose_for_it_or_for_its_channel(stores: Stores) -> None:
    modes, seen = SqlFollowModes(stores.database), list[FollowMode | None]()

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        seen.append(require(snapshot).follow_mode)
        return Accept(follows_again=True)

    await stores.say("hello")
    await modes.set_mode(ADDRESS, "quiet", is_whole_channel=True)
    await stores.say("and", decide=decide)
    await modes.set_mode(ADDRESS, "mention", is_whole_channel=False)
    for _ in range(2):
        await stores.say("so", decide=decide)
    assert seen == ["quiet", "mention", "default"]
    assert await modes.find_channel_mode(ADDRESS) == "quiet"


async def test_an_app_has_two_requests_in_ten_minutes_in_a_channel(stores: Stores) -> None:
    app, now = Person(person_id=f"{APP_PREFIX}A1", name="Alerts"), datetime.now(UTC)
    actor = ActorContext(app_ids=frozenset({"A1"}))

    async def asked(key: str, **changes: object) -> bool:
        arrival = replace(
            message("hello", key=key),
            **{"address": replace(ADDRESS, thread_key=key), "person": app, "actor": actor, "sent_at": now, **changes},
        )
        receipt = await stores.inbox.accept_action(arrival, deciding(Accept()))
        return isinstance(receipt.decision, Accept) and not receipt.is_duplicate

    assert [await asked(key) for key in ("1.1", "1.2", "1.3")] == [True, True, False]
    # other apps, people and channels are counted by themselves, and the time passes
    assert await asked("2.1", person=replace(app, person_id=f"{APP_PREFIX}A2"))
    assert await asked("2.2", person=ALICE)
    assert await asked("2.3", address=replace(ADDRESS, channel_id="C2"))
    assert await asked("2.4", actor=MEMBER)  # it came over the HTTP API
    later = now + timedelta(seconds=APP_REQUESTS_SECONDS)
    assert await asked("1.3", sent_at=later)


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
