"""Who is let in, who is told what, and what admins may do about it, over a real database."""

import re
from dataclasses import replace

import pytest

from bots.inbound.access import NOT_ALLOWED, AccessPolicy
from bots.inbound.actions import CommandCalled, RunButtonPressed, UserAction
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.receiver import ActionReceiver
from core.domain.actions import ActorContext
from core.domain.threads import Person
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.workspaces import SqlPairings
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world

DIRECT = replace(HERE, channel_id="D1")
IN_PRIVATE = ActorContext(is_direct=True)
CODE = re.compile(r"`([A-Z2-9]{4}-[A-Z2-9]{4})`")
ADMIN_HERE = AccessPolicy(channels=("C1",), users=("U1",), admins=("U1",))


def reception_with(stage: ReceiverStage, policy: AccessPolicy) -> ActionReceiver:
    database = stage.world.database
    pairings = SqlPairings(database)
    admin = AdminDeps(policy=policy, pairings=pairings, log=SqlAuditLog(database))
    old = stage.receiver
    return replace(old, policy=policy, pairings=pairings, commands=replace(old.commands, admin=admin))


@pytest.fixture
def receiver(stage: ReceiverStage) -> ActionReceiver:
    return reception_with(stage, ADMIN_HERE)


def direct(words: str = "hello", *, key: str = "d1", author: Person = BOB) -> UserAction:
    return replace(message(words, key=key, author=author), address=DIRECT, actor=IN_PRIVATE)


def word(name: str, argument: str = "", *, key: str = "w1", person: Person = ALICE) -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key=key, name=name, argument=argument, person=person)


async def code_for(receiver: ActionReceiver, author: Person = BOB, key: str = "d1") -> str:
    told = (await receiver.receive(direct(key=key, author=author))).notice
    found = CODE.search(told)
    assert found, told
    return found[1]


async def test_somebody_who_lost_the_role_may_not_press(stage: ReceiverStage) -> None:
    receiver = reception_with(stage, AccessPolicy(roles=("R1",)))
    has_role = ActorContext(groups=frozenset({"R1"}))
    run_id = (await receiver.receive(replace(message(author=BOB), actor=has_role))).run_id
    assert run_id is not None
    pressed = RunButtonPressed(
        address=HERE, dedupe_key="k", run_id=run_id, action="stop", person=BOB, actor=ActorContext(expects_answer=True)
    )
    assert (await receiver.receive(pressed)).notice == NOT_ALLOWED
    assert not (await stage.world.read_run(run_id)).stop_requested


async def test_a_stranger_gets_a_code_and_is_let_in_by_it(receiver: ActionReceiver) -> None:
    code = await code_for(receiver)
    assert (await receiver.receive(direct(key="d2"))).notice == ""
    answer = await receiver.receive(word("pair", code.lower()))
    assert answer.notice == "bob (U2) may write to me in direct messages now."
    assert (await receiver.receive(direct("now", key="d3"))).run_id is not None
    elsewhere = await receiver.receive(message("here", key="k1", author=BOB))
    assert elsewhere.run_id is None


async def test_who_was_unpaired_is_refused_from_then_on(receiver: ActionReceiver) -> None:
    code = await code_for(receiver)
    await receiver.receive(word("pair", code))
    first = await receiver.receive(direct(key="d2"))
    assert (await receiver.receive(word("unpair", "@bob", key="w2"))).notice.startswith("bob")
    pressed = RunButtonPressed(
        address=DIRECT,
        dedupe_key="k",
        run_id=first.run_id or "",
        action="stop",
        person=BOB,
        actor=replace(IN_PRIVATE, expects_answer=True),
    )
    assert (await receiver.receive(pressed)).notice == NOT_ALLOWED
    assert CODE.search((await receiver.receive(direct(key="d3"))).notice)
