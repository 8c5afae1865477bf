"""Two bots that hear the same word (each connects to Discord by itself): it is done once, and answered rightly."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.receiver import ActionReceiver
from core.domain.actions import ActorContext
from core.domain.threads import Address, Person
from storage.sql.database import Database
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.workspaces import SqlPairings
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world

POLICY = AccessPolicy(users=("U1",), admins=("U1",))


@dataclass
class Hesitant(SqlPairings):
    """Pairs, and is a while about saying so."""

    database: Database
    has_paired: asyncio.Event = field(default_factory=asyncio.Event)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        super().__init__(self.database)

    async def pair(self, code_hash: str, *, workspace_id: str, at: Address, by: Person) -> Person | None:
        person = await super().pair(code_hash, workspace_id=workspace_id, at=at, by=by)
        self.has_paired.set()
        await self.may_go_on.wait()
        return person


def receiver(stage: ReceiverStage, pairings: SqlPairings) -> ActionReceiver:
    log = SqlAuditLog(stage.world.database)
    admin = AdminDeps(policy=POLICY, pairings=pairings, log=log)
    parts = replace(stage.receiver.commands, admin=admin)
    return replace(stage.receiver, policy=POLICY, pairings=pairings, commands=parts, answering=set[str]())


@pytest.fixture
def pairing(stage: ReceiverStage) -> Hesitant:
    return Hesitant(stage.world.database)


def word(argument: str) -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key="w1", name="pair", argument=argument, person=ALICE)


async def code(asked: ActionReceiver) -> str:
    stranger = replace(message("hello", author=BOB), actor=ActorContext(is_direct=True))
    return (await asked.receive(stranger)).notice.split("`")[1]


async def test_a_word_that_two_bots_hear_is_answered_by_the_one_that_does_it(
    stage: ReceiverStage, pairing: Hesitant
) -> None:
    one, other = receiver(stage, pairing), receiver(stage, SqlPairings(stage.world.database))
    called = word(await code(other))
    first = asyncio.ensure_future(one.receive(called))
    await asyncio.wait_for(pairing.has_paired.wait(), 30)
    second = asyncio.ensure_future(other.receive(called))
    await asyncio.wait([second], timeout=0.5)
    pairing.may_go_on.set()

    assert "may write to me" in (await first).notice
    assert (await second).is_ignored


async def test_a_word_that_a_crash_cut_off_is_done_by_whoever_hears_it_next(
    stage: ReceiverStage, pairing: Hesitant
) -> None:
    one, other = receiver(stage, pairing), receiver(stage, SqlPairings(stage.world.database))
    called = replace(word(""), name="status")
    cancelled = asyncio.ensure_future(one.receive(replace(word(await code(other)), dedupe_key="w1")))
    await asyncio.wait_for(pairing.has_paired.wait(), 30)
    cancelled.cancel()
    await asyncio.wait([cancelled])

    assert (await other.receive(called)).notice.startswith("There is no conversation with me here yet. ")
