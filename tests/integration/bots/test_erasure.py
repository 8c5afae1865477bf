"""What is forgotten, on whose word, and what a person can take away: `forget`, `forget me`, `export`, retention."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from bots.bootstrap.background_jobs import delete_old_conversations
from bots.inbound.commands.erasure import NOT_HERE, NOT_YOURS, forget_thread
from core.domain.errors import SurfaceError
from core.domain.threads import Address, ChatMessage, ChatPage, Person
from core.ports import OutgoingFile
from storage.sql.tables import threads
from tests.contracts.stores import ALICE, TEST
from tests.fakes.streamed_model import text
from tests.integration.bots.receiver_stage import BOB as SOMEBODY
from tests.integration.bots.receiver_stage import HERE, ReceiverStage, command, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world


async def worked(stage: ReceiverStage) -> str:
    stage.world.model.turns = [text("one")]
    await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    snapshot = await stage.world.deps.stores.conversations.find(HERE)
    assert snapshot is not None
    return snapshot.thread.thread_id


async def test_forget_lists_what_goes_and_waits_for_a_yes(stage: ReceiverStage) -> None:
    thread_id = await worked(stage)
    listed = await stage.receiver.receive(command("forget", "k1"))
    assert listed.notice.startswith("This conversation holds 2 messages, 0 documents of knowledge")
    assert "forget yes" in listed.notice
    conversations = stage.world.deps.stores.conversations
    assert await conversations.snapshot(thread_id) is not None
    for number, words in enumerate(("", "yes")):
        refused = replace(command("forget", f"b{number}", argument=words), person=SOMEBODY)
        assert (await stage.receiver.receive(refused)).notice == NOT_YOURS
    done = await stage.receiver.receive(command("forget", "k2", argument="yes"))
    assert done.notice.startswith("Forgotten")
    assert await conversations.snapshot(thread_id) is None


class _Thread:
    """The history of a thread that Bob started, or that cannot be read."""

    def __init__(self, *, is_readable: bool = True, is_long: bool = False) -> None:
        self._is_readable = is_readable
        self._is_long = is_long

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        assert limit
        assert after is None
        if not self._is_readable:
            raise SurfaceError("the thread is gone")
        sent_at = before - timedelta(days=2)
        reply = ChatMessage(author=ALICE, text="and now?", sent_at=sent_at, message_ref="9.9")
        first = replace(reply, author=SOMEBODY, message_ref=address.thread_key)
        if self._is_long:
            return ChatPage(messages=(reply,), root=first, omitted=3)
        return ChatPage(messages=(first,))

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        raise NotImplementedError

    def sent_at(self, message_ref: str) -> datetime:
        raise NotImplementedError


async def forgets(stage: ReceiverStage, thread: _Thread, person: Person) -> str:
    """Returns what `forget yes` by the person in the thread is answered."""
    commands = stage.receiver.commands
    erasure = replace(commands.erasure, histories={HERE.platform: thread})
    called = replace(command("forget", person.name, argument="yes"), person=person)
    receiver = replace(stage.receiver, commands=replace(commands, erasure=erasure))
    return (await receiver.receive(called)).notice


@pytest.mark.parametrize("is_long", [False, True])
async def test_whoever_started_the_thread_may_forget_what_others_asked_there(
    stage: ReceiverStage, *, is_long: bool
) -> None:
    thread_id = await worked(stage)
    thread = _Thread(is_long=is_long)
    carol = Person(person_id="U3", name="carol")
    assert await forgets(stage, thread, carol) == NOT_YOURS
    assert (await forgets(stage, thread, SOMEBODY)).startswith("Forgotten")
    assert await stage.world.deps.stores.conversations.snapshot(thread_id) is None


async def test_a_conversation_whose_requester_is_forgotten_is_not_anybodys(stage: ReceiverStage) -> None:
    await worked(stage)
    me = replace(command("forget", "me", argument="me yes"), person=ALICE)
    assert "Forgotten" in (await stage.receiver.receive(me)).notice
    carol = Person(person_id="U3", name="carol")
    assert await forgets(stage, _Thread(), carol) == NOT_YOURS


async def test_nobody_else_forgets_if_it_cannot_be_read_who_started_the_thread(stage: ReceiverStage) -> None:
    await worked(stage)
    assert await forgets(stage, _Thread(is_readable=False), SOMEBODY) == NOT_YOURS


async def test_a_conversation_can_be_taken_away_as_a_file(stage: ReceiverStage) -> None:
    posted: list[tuple[Address, str, bytes]] = []

    async def upload(address: Address, file: OutgoingFile) -> object:
        content = b"".join([piece async for piece in file.pieces])
        assert len(content) == file.size_bytes
        posted.append((address, file.name, content))
        return None

    commands = stage.receiver.commands
    stage.receiver = replace(
        stage.receiver, commands=replace(commands, erasure=replace(commands.erasure, upload=upload))
    )
    assert (await stage.receiver.receive(command("export", "k0"))).notice == NOT_HERE
    await worked(stage)
    assert "conversation.json" in (await stage.receiver.receive(command("export", "k1"))).notice
    ((address, name, content),) = posted
    assert (address, name) == (HERE, "conversation.json")
    (asked, answered) = json.loads(content)
    assert (asked["type"], asked["from"], answered["type"]) == ("user", "alice", "assistant")
    assert "one" in answered["text"]


async def test_old_conversations_are_deleted_and_others_stay(stage: ReceiverStage) -> None:
    old = await worked(stage)
    conversations = stage.world.deps.stores.conversations
    there = replace(HERE, thread_key="2.0")
    await stage.receiver.receive(replace(message(key="m2"), address=there))
    mcp = await conversations.create(Address(platform="api", workspace_id="", channel_id="mcp", thread_key="session"))

    async def forget(thread_id: str) -> None:
        await forget_thread(thread_id, stage.receiver.commands.erasure)

    assert await conversations.inactive_thread_ids(datetime.now(UTC) - timedelta(days=1), limit=9) == ()
    assert await conversations.inactive_thread_ids(datetime.now(UTC) + timedelta(days=1), limit=9) == (old,)
    past = datetime.now(UTC) - timedelta(days=31)
    aged = update(threads).values(last_activity_at=past)
    await stage.world.database.write(TEST, lambda c: c.execute(aged).close())
    await delete_old_conversations(conversations, forget, 30)
    assert await conversations.snapshot(old) is None
    # a conversation with a run that has not ended is no old one
    assert await conversations.find(there) is not None
    # nor is a session of `threadhand mcp`, which may be in use
    assert await conversations.snapshot(mcp.thread_id) is not None
    # which its own host deletes, if it comes back
    month_ago = datetime.now(UTC) - timedelta(days=29)
    assert mcp.thread_id not in await conversations.inactive_thread_ids(month_ago, limit=9)
    today = datetime.now(UTC)
    assert mcp.thread_id in await conversations.inactive_thread_ids(today, limit=9)


class ManyOld:
    """Old conversations of which the first ones cannot be deleted."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.left = [*broken, "good"]

    async def inactive_thread_ids(self, before: datetime, *, limit: int) -> tuple[str, ...]:
        return tuple(self.left[:limit])

    async def forget(self, thread_id: str) -> None:
        if thread_id in self.broken:
            raise PermissionError(f"the folder of {thread_id} is in use")
        self.left.remove(thread_id)


@pytest.mark.parametrize("count", [1, 60])
async def test_a_conversation_that_cannot_be_deleted_holds_up_no_other(count: int) -> None:
    store = ManyOld(*(f"bad {number}" for number in range(count)))
    await delete_old_conversations(store, store.forget, 30)
    assert store.left == [*store.broken]
