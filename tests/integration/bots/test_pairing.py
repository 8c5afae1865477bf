"""Who is let in, who is told what, and what admins may do about it, over a real database."""

import re
from dataclasses import replace

import pytest

from bots.inbound.access import NOT_ALLOWED, OPEN_CODES_MAX, AccessPolicy
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
MALLORY = Person(person_id="U9", name="mallory")
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


async def test_a_wrong_code_and_a_code_from_a_channel_do_nothing(receiver: ActionReceiver) -> None:
    assert (await receiver.receive(message(author=BOB))).notice == NOT_ALLOWED
    answer = await receiver.receive(word("pair", "AAAA-AAAA"))
    assert answer.notice == "There is no such code, or it has expired. Check it, or ask the person to write again."


@pytest.mark.parametrize("name", ["pair", "unpair", "who", "audit", "mcp"])
async def test_words_of_admins_are_for_admins(stage: ReceiverStage, name: str) -> None:
    receiver = reception_with(stage, AccessPolicy(workspaces=("T1",), admins=("U1",)))
    code = await code_for(reception_with(stage, ADMIN_HERE), author=MALLORY)
    answer = await receiver.receive(word(name, code, person=BOB))
    assert answer.notice == "Only admins of this bot can do that."


async def test_an_admin_of_another_workspace_pairs_nobody_here(stage: ReceiverStage) -> None:
    policy = replace(ADMIN_HERE, admins=("U1", "T2/U9"))
    receiver = reception_with(stage, policy)
    code = await code_for(receiver)
    foreign = replace(word("pair", code, person=MALLORY), address=replace(HERE, workspace_id="T2"))
    assert (await receiver.receive(foreign)).notice.startswith("There is no such code")
    assert (await receiver.receive(direct(key="d2"))).run_id is None


async def test_names_are_no_markup_in_what_admins_read(receiver: ActionReceiver) -> None:
    eve = Person(person_id="U6", name="*Eve* [free](https://evil.example)\u202e")
    shown = r"\*Eve\* \[free\](https://evil.example) (U6)"
    paired = await receiver.receive(word("pair", await code_for(receiver, eve)))
    assert paired.notice.startswith(f"{shown} may write")
    assert shown in (await receiver.receive(word("who", key="w2"))).notice
    await receiver.receive(replace(direct("hi", key="d9", author=eve)))
    told = (await receiver.receive(word("audit", key="w3"))).notice
    assert shown in told
    assert eve.name not in told


async def test_a_flood_of_strangers_keeps_nobody_out(receiver: ActionReceiver) -> None:
    for number in range(OPEN_CODES_MAX + 1):
        await code_for(receiver, Person(person_id=f"W{number}", name="x"), key=f"s{number}")
    code = await code_for(receiver)
    assert (await receiver.receive(word("pair", code))).notice.startswith("bob")


async def test_who_lists_the_lists_and_the_paired(receiver: ActionReceiver) -> None:
    await receiver.receive(word("pair", await code_for(receiver)))
    told = (await receiver.receive(word("who", key="w2"))).notice
    for line in ("- Channels: C1", "- Admins: U1", "- Guests: no", "bob (U2)"):
        assert line in told


async def test_admins_read_what_was_done_here_and_nothing_that_was_said(
    stage: ReceiverStage, receiver: ActionReceiver
) -> None:
    receiver = reception_with(stage, replace(ADMIN_HERE, users=("U1", "U2")))
    await receiver.receive(message("my secret plan", key="k1", author=BOB))
    elsewhere = replace(message("x", key="k2"), address=replace(HERE, workspace_id="T2"))
    await receiver.receive(elsewhere)
    await receiver.receive(replace(word("forget", key="w1"), argument="yes"))
    told = (await receiver.receive(word("audit", key="w2"))).notice
    forgotten, asked = told.splitlines()
    assert forgotten.endswith("alice (U1) had a conversation forgotten")
    assert asked.endswith("bob (U2) asked for a run")
    assert (await receiver.receive(word("audit", "1", key="w3"))).notice == forgotten


async def test_in_discord_lists_are_not_read_out_to_everybody(receiver: ActionReceiver) -> None:
    names: tuple[str, ...] = ("who", "audit")
    for name in names:
        asked = replace(word(name, key=name), address=replace(HERE, platform="discord"))
        assert "/agent" in (await receiver.receive(asked)).notice


async def test_knowledge_and_plans_are_recorded_where_they_are_changed(
    stage: ReceiverStage, receiver: ActionReceiver
) -> None:
    await receiver.receive(word("knowledge", "list", key="w1"))
    await receiver.receive(word("knowledge", "remove a.pdf", key="w2"))
    (entry,) = await SqlAuditLog(stage.world.database).newest(limit=5)
    assert (entry.action, entry.subject) == ("knowledge_changed", "remove a.pdf")
