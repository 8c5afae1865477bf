"""A receiver over a real database, for the tests of what comes in."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, update

from bots.bootstrap.inbound import describe_run
from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands import forget
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.commands.budget import BudgetDeps
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.forget import ForgetDeps
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.commands.schedules import ScheduleDeps
from bots.inbound.receiver import ActionReceiver
from core.domain.actions import AskAnswered, IncomingMessage
from core.domain.budget import NO_BUDGET
from core.domain.errors import SurfaceRefused
from core.domain.ids import new_id
from core.domain.schedules import DEFAULT_LIMITS, Schedule, parse_when
from core.domain.threads import Address, Ask, IncomingFile, Person, ThreadSnapshot
from core.failpoints import Failpoint
from core.ports import OutgoingFile, SandboxProvider
from core.run.execute import execute
from sandbox.unsafe_process import UnsafeProcessProvider
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.database import Database
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.run_transitions import SqlAsks
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.stores.talk import SqlFeedback, SqlFollowModes
from storage.sql.stores.workspaces import SqlPairings
from storage.sql.tables import deliveries
from tests.integration.core.conftest import ALICE, World
from tests.support.narrow import require

BOB = Person(person_id="U2", name="bob")
HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
EVERYBODY = AccessPolicy(workspaces=("*",))
ADMINS = AccessPolicy(workspaces=("*",), admins=(ALICE.person_id,))
"""Everybody may write, and alice is an admin."""


@dataclass
class ReceiverStage:
    """A receiver over a real database, and what it woke."""

    receiver: ActionReceiver
    world: World
    woken: list[str] = field(default_factory=list[str])

    def with_policy(self, policy: AccessPolicy) -> "ReceiverStage":
        """Replaces the rules of access, also for the commands of admins."""
        self.receiver = replace(self.receiver, policy=policy)
        return self.with_commands(admin=replace(self.receiver.commands.admin, policy=policy))

    def with_commands(self, **changes: Any) -> "ReceiverStage":
        """Replaces dependencies of the commands."""
        self.receiver = replace(self.receiver, commands=replace(self.receiver.commands, **changes))
        return self

    async def play(self, run_id: str | None) -> str:
        assert run_id is not None
        await execute(run_id, self.world.deps)
        await self.world.database.write(Failpoint("test.show"), show_questions)
        return run_id

    async def run(self, words: str = "please", **more: Any) -> str:
        """Somebody's message, and the whole run that it begins."""
        return await self.play((await self.receiver.receive(message(words, **more))).run_id)

    async def command(self, name: str, argument: str = "", **changes: Any) -> Outcome:
        """A command of alice, each time another one."""
        called = command(name, new_id(), argument=argument)
        return await self.receiver.receive(replace(called, **changes))

    async def told(self, name: str, argument: str = "", **changes: Any) -> str:
        """What the command is answered with."""
        return (await self.command(name, argument, **changes)).notice

    async def click(self, ask_id: str, value: str, person: Person = ALICE, address: Address = HERE) -> Outcome:
        """An answer to a question by its button."""
        key = f"click {person.name} {value}"
        answer = AskAnswered(
            address=address, dedupe_key=key, ask_id=ask_id, text=value, person=person, sent_at=datetime.now(UTC)
        )
        return await self.receiver.receive(answer)

    async def snapshot(self) -> ThreadSnapshot:
        return require(await self.world.deps.stores.conversations.find(HERE))

    async def open_ask(self) -> Ask:
        """The question that waits for an answer."""
        return require((await self.snapshot()).open_ask)


def show_questions(connection: Connection) -> None:
    """Marks the questions of the runs as posted a minute ago, so that people have had time to read them."""
    posted_at = f"{time.time() - 60:.6f}"
    unposted = (deliveries.c.slot == "ask") & deliveries.c.message_ref.is_(None)
    connection.execute(update(deliveries).where(unposted).values(message_ref=posted_at))


async def no_upload(address: Address, file: OutgoingFile) -> object:
    raise SurfaceRefused("nowhere to post", code="no_chat")


def command_deps(
    world: World, sandboxes: SandboxProvider | None = None, wake_delivery: Callable[[str], None] = lambda _run_id: None
) -> CommandDeps:
    stores = world.deps.stores
    return CommandDeps(
        conversations=stores.conversations,
        asks=SqlAsks(world.database),
        sandboxes=sandboxes,
        erasure=ForgetDeps(
            conversations=stores.conversations,
            sandboxes=sandboxes,
            stops=world.stops,
            signals=world.signals,
            deliveries=SqlDeliveries(world.database),
            knowledge_base=stores.knowledge_base,
            histories={},
            schedules=SqlSchedules(world.database),
            upload=no_upload,
            wake_delivery=wake_delivery,
        ),
        knowledge=KnowledgeDeps(
            knowledge_base=stores.knowledge_base,
            conversations=stores.conversations,
            sources={},
            file_bytes_max=1000,
            ledger=stores.ledger,
            charge=lambda _model, usage: usage,
            budget=NO_BUDGET,
        ),
        roster=world.deps.agents.roster,
        plans=stores.plans,
        follow_modes=SqlFollowModes(world.database),
        schedules=ScheduleDeps(store=SqlSchedules(world.database), limits=DEFAULT_LIMITS),
        describe_run=partial(describe_run, stores.conversations),
        budget=BudgetDeps(ledger=stores.ledger, budget=NO_BUDGET),
        admin=AdminDeps(
            policy=AccessPolicy(), pairings=SqlPairings(world.database), audit_log=SqlAuditLog(world.database)
        ),
    )


@pytest.fixture
async def stage(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReceiverStage]:
    monkeypatch.setattr(forget, "CLOSE_POLLS_MAX", 2)  # no run is shown here
    world.address = HERE
    sandboxes = UnsafeProcessProvider(tmp_path / "sandboxes")
    woken: list[str] = []
    receiver = ActionReceiver(
        inbox=world.inbox,
        stops=world.stops,
        queue=MemoryRunQueue(),
        signals=world.signals,
        policy=EVERYBODY,
        pairings=SqlPairings(world.database),
        feedback=SqlFeedback(world.database),
        commands=command_deps(world, sandboxes, woken.append),
        wake_delivery=woken.append,
        reopen_delivery=SqlDeliveries(world.database).reopen_delivery,
        follow_modes={"": "default"},
    )
    yield ReceiverStage(receiver, world, woken)
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
        person=author,
        text=words,
        sent_at=datetime.now(UTC),
        is_addressed=is_addressed,
        files=files,
        agent_id=agent_id,
    )


def command(name: str, key: str = "c1", *, argument: str = "") -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key=key, name=name, argument=argument, person=ALICE)


async def runs_of(stage: ReceiverStage, address: Address = HERE) -> list:
    snapshot = require(await stage.world.deps.stores.conversations.find(address))
    return list(await stage.world.deps.stores.conversations.runs(snapshot.thread.thread_id))


async def save_schedule(database: Database, schedule_id: str, address: Address = HERE) -> str:
    """A task of alice that is due in two hours."""
    now = datetime.now(UTC)
    timing = parse_when("PT2H", now=now, time_zone="UTC")
    schedule = Schedule(
        schedule_id=schedule_id, address=address, owner=ALICE, task="Say it", timing=timing, armed_at=now
    )
    assert await SqlSchedules(database).save(schedule, DEFAULT_LIMITS, by=ALICE, change="created")
    return schedule_id
