"""A reception over a real database, for the tests of what comes in."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, IncomingMessage
from bots.inbound.commands.dispatch import CommandDeps
from bots.inbound.receiver import ActionReceiver
from core.domain.threads import Address, IncomingFile, Person
from core.run.execute import execute
from sandbox.unsafe_process import UnsafeProcessProvider
from storage.memory.run_queue import MemoryRunQueue
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world

ALICE = Person(person_id="U1", name="alice")
BOB = Person(person_id="U2", name="bob")
HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
EVERYBODY = AccessPolicy(workspaces=("*",))


@dataclass
class Desk:
    """A reception over a real database, and what it woke."""

    reception: ActionReceiver
    world: World
    woken: list[str] = field(default_factory=list[str])

    def with_policy(self, policy: AccessPolicy) -> "Desk":
        self.reception = ActionReceiver(
            inbox=self.reception.inbox,
            stops=self.reception.stops,
            queue=self.reception.queue,
            signals=self.reception.signals,
            policy=policy,
            commands=self.reception.commands,
            wake_delivery=self.reception.wake_delivery,
        )
        return self

    async def play(self, run_id: str | None) -> str:
        assert run_id is not None
        await execute(run_id, self.world.engine)
        return run_id


@pytest.fixture
async def desk(world: World, tmp_path: Path) -> AsyncIterator[Desk]:
    sandboxes = UnsafeProcessProvider(tmp_path / "sandboxes")
    woken: list[str] = []
    reception = ActionReceiver(
        inbox=world.inbox,
        stops=world.stops,
        queue=MemoryRunQueue(),
        signals=world.signals,
        policy=EVERYBODY,
        commands=CommandDeps(
            conversations=world.engine.conversations,
            sandboxes=sandboxes,
            signals=world.signals,
        ),
        wake_delivery=woken.append,
    )
    yield Desk(reception, world, woken)
    await sandboxes.close()


def message(
    words: str = "please",
    *,
    key: str = "slack:1",
    author: Person = ALICE,
    is_addressed: bool = True,
    files: tuple[IncomingFile, ...] = (),
    agent_id: str | None = None,
) -> IncomingMessage:
    return IncomingMessage(
        address=HERE,
        dedupe_key=key,
        message_ref=key,
        author=author,
        text=words,
        sent_at=datetime.now(UTC),
        is_addressed=is_addressed,
        files=files,
        agent_id=agent_id,
    )


def command(name: str, key: str = "c1") -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key=key, name=name, argument="", person=ALICE)


async def runs_of(desk: Desk) -> list:
    snapshot = await desk.world.engine.conversations.find(HERE)
    assert snapshot is not None
    return list(await desk.world.engine.conversations.runs(snapshot.thread.thread_id))
