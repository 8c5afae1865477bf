"""The words that are answered at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bots.inbound.commands.dispatch import format_size, format_usage
from core.domain.threads import Usage
from core.failpoints import FailpointHit, arm
from tests.fakes.played_model import text
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.integration.bots.reception_desk import HERE, Desk, command, message
from tests.integration.bots.reception_desk import desk as desk
from tests.integration.core.conftest import world as world


async def test_new_starts_afresh_and_forget_deletes(desk: Desk) -> None:
    desk.world.model.turns = [text("one"), text("two")]
    await desk.play((await desk.reception.receive(message(key="m1"))).run_id)
    before = await desk.world.engine.conversations.find(HERE)
    await desk.reception.receive(command("new", "k1"))
    await desk.play((await desk.reception.receive(message(key="m2"))).run_id)
    after = await desk.world.engine.conversations.find(HERE)
    assert before is not None
    assert after is not None
    assert before.thread.thread_id != after.thread.thread_id
    assert len(desk.world.model.requests[1].messages) == 2
    await desk.reception.receive(command("forget", "k2"))
    assert await desk.world.engine.conversations.find(HERE) is None
    assert await desk.world.engine.conversations.snapshot(after.thread.thread_id) is None


async def test_status_files_and_usage_answer_at_once(desk: Desk) -> None:
    desk.world.model.turns = [text("one")]
    outcome = await desk.reception.receive(message())
    assert (await desk.reception.receive(command("status", "k1"))).notice == (
        "Waiting in line for alice."
    )
    await desk.play(outcome.run_id)
    assert "completed" in (await desk.reception.receive(command("status", "k2"))).notice
    assert (
        "10 tokens in, 5 out, $0.0010"
        in (await desk.reception.receive(command("usage", "k3"))).notice
    )
    assert (await desk.reception.receive(command("files", "k4"))).notice == (
        "There are no files yet."
    )


def test_what_of_a_cost_is_an_estimate_is_said() -> None:
    usage = Usage(input_tokens=1_000, cached_tokens=10, output_tokens=5, cost_usd=0.03)
    assert format_usage(usage) == "1,000 tokens in (10 cached), 5 out, $0.0300"
    assert format_usage(replace(usage, estimated_usd=0.02)).endswith(
        "$0.0300 ($0.0200 of it estimated)"
    )


async def test_a_repeated_command_is_answered_once(desk: Desk) -> None:
    assert (await desk.reception.receive(command("help"))).notice
    assert (await desk.reception.receive(command("help"))).is_ignored


@pytest.mark.parametrize("name", ["status", "files", "usage", "help", "new", "forget"])
async def test_a_command_that_a_crash_cut_off_is_answered_when_it_comes_again(
    desk: Desk, name: str
) -> None:
    desk.world.model.turns = [text("one")]
    await desk.play((await desk.reception.receive(message())).run_id)
    arm("storage.claim_key.before:raise")
    try:
        with pytest.raises(FailpointHit):
            await desk.reception.receive(command(name))
    finally:
        arm("")

    assert (await desk.reception.receive(command(name))).notice
    assert (await desk.reception.receive(command(name))).is_ignored


async def test_a_command_that_comes_twice_at_once_is_answered_once(desk: Desk) -> None:
    desk.world.model.turns = [text("one")]
    await desk.play((await desk.reception.receive(message())).run_id)
    outcomes = await asyncio.gather(*(desk.reception.receive(command("forget")) for _ in range(3)))

    assert [one.notice[:9] for one in outcomes if not one.is_ignored] == ["Forgotten"]


async def test_a_word_that_is_done_forgets_nothing_of_what_came_after_it(desk: Desk) -> None:
    desk.world.model.turns = [text("one"), text("two")]
    await desk.play((await desk.reception.receive(message(key="m1"))).run_id)
    await desk.reception.receive(command("forget"))
    await desk.play((await desk.reception.receive(message(key="m2"))).run_id)

    assert (await desk.reception.receive(command("forget"))).is_ignored
    assert await desk.world.engine.conversations.find(HERE) is not None


@pytest.mark.slow
async def test_what_is_to_be_forgotten_stays_findable_until_its_files_are_gone(desk: Desk) -> None:
    desk.world.model.turns = [text("one")]
    await desk.play((await desk.reception.receive(message())).run_id)
    before = await desk.world.engine.conversations.find(HERE)
    assert before is not None
    sandboxes = desk.reception.commands.sandboxes
    assert sandboxes is not None
    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    await sandbox.files.write("secret.txt", one_piece(b"x"))
    arm("storage.forget.before:raise")
    try:
        with pytest.raises(FailpointHit):
            await desk.reception.receive(command("forget"))
    finally:
        arm("")

    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    assert await sandbox.files.list(".") == ()
    await desk.reception.receive(command("forget"))
    assert await desk.world.engine.conversations.find(HERE) is None


class OvertakenSandboxes(MemorySandboxes):
    """A worker that froze while it was making a sandbox wakes, and makes it, right after the first was destroyed."""

    has_woken = False

    async def destroy(self, thread_id: str) -> None:
        await super().destroy(thread_id)
        if not self.has_woken:
            self.has_woken = True
            await self.open(thread_id, fence=1)


async def test_what_a_worker_makes_while_a_conversation_is_forgotten_goes_too(desk: Desk) -> None:
    desk.world.model.turns = [text("one")]
    await desk.play((await desk.reception.receive(message())).run_id)
    sandboxes = OvertakenSandboxes()
    reception = replace(
        desk.reception, commands=replace(desk.reception.commands, sandboxes=sandboxes)
    )

    await reception.receive(command("forget"))

    assert sandboxes.has_woken
    assert sandboxes.machines == {}


async def one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (2_340_000, "2.3 MB"),
        (3 * 10**9, "3.0 GB"),
    ],
)
def test_a_size_reads_well(size_bytes: int, words: str) -> None:
    assert format_size(size_bytes) == words
