"""Who is let in, and the sentence that others are told."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from bots.inbound.access import (
    NO_EXTERNAL_MEMBERS,
    NO_GUESTS,
    NOT_ALLOWED,
    UNKNOWN_PERSON,
    AccessCheck,
    AccessPolicy,
    find_refusal_sentence,
)
from bots.inbound.actions import CommandCalled, RunButtonPressed, UserAction
from core.domain.actions import ActorContext, AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.errors import SurfaceUnclear
from core.domain.threads import Address, Person
from tests.support.narrow import require

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
BOB = Person(person_id="U2", name="bob")
NOBODY = Person(person_id="", name="Somebody")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
MEMBER = ActorContext()
GUEST = ActorContext(is_guest=True)
ABROAD = ActorContext(home_id="T9")
UNKNOWN = ActorContext(is_known=False)
PLACE = {"address": HERE, "dedupe_key": "k", "person": BOB}
MESSAGE = IncomingMessage(**PLACE, message_ref="1", text="hello", sent_at=NOW, is_addressed=True)
DELETION = MessageDeleted(**PLACE, message_ref="1", sent_at=NOW)


def of_groups(*groups: str) -> ActorContext:
    return ActorContext(groups=frozenset(groups))


def of_app(app_id: str) -> ActorContext:
    return ActorContext(app_ids=frozenset({app_id}))


@pytest.mark.parametrize(
    ("policy", "actor", "sentence"),
    [
        (AccessPolicy(), MEMBER, NOT_ALLOWED),
        (AccessPolicy(workspaces=("*",)), MEMBER, None),
        (AccessPolicy(workspaces=("T1",)), MEMBER, None),
        (AccessPolicy(workspaces=("T2",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(workspaces=("E1",)), ActorContext(organisation_id="E1"), None),
        (AccessPolicy(workspaces=("T1",), channels=("C2",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(workspaces=("T1",), channels=("C1",), users=("U2",)), MEMBER, None),
        (AccessPolicy(users=("U1",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(workspaces=("T1",)), GUEST, NO_GUESTS),
        (AccessPolicy(workspaces=("T1",), guests=True), GUEST, None),
        (AccessPolicy(users=("U2",)), GUEST, None),
        (AccessPolicy(users=("*",)), GUEST, NO_GUESTS),
        (AccessPolicy(workspaces=("*",)), ABROAD, NO_EXTERNAL_MEMBERS),
        (AccessPolicy(workspaces=("*",), strangers=True), ABROAD, None),
        (AccessPolicy(workspaces=("T1", "T9")), ABROAD, None),
        (AccessPolicy(workspaces=("T1",), strangers=True), replace(ABROAD, is_guest=True), NO_GUESTS),
        (AccessPolicy(workspaces=("T1",)), UNKNOWN, UNKNOWN_PERSON),
        (AccessPolicy(workspaces=("T1",), guests=True), UNKNOWN, UNKNOWN_PERSON),
        (AccessPolicy(workspaces=("T1",), guests=True, strangers=True), UNKNOWN, None),
        (AccessPolicy(roles=("R1",)), ActorContext(groups=None), UNKNOWN_PERSON),
        (AccessPolicy(users=("U3",)), ActorContext(groups=None), NOT_ALLOWED),
        (AccessPolicy(users=("U2",)), UNKNOWN, None),
        (AccessPolicy(roles=("R1",)), of_groups("R1", "R2"), None),
        (AccessPolicy(roles=("R1",)), of_groups("R2"), NOT_ALLOWED),
        (AccessPolicy(roles=("R1",), users=("U2",)), MEMBER, None),
        (AccessPolicy(roles=("R1",), users=("U3",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(workspaces=("T2",), roles=("R1",)), of_groups("R1"), NOT_ALLOWED),
        (AccessPolicy(users=("T1/U2",)), MEMBER, None),
        (AccessPolicy(users=("T2/U2",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(admins=("U2",)), MEMBER, None),
        (AccessPolicy(admins=("U2",)), ABROAD, NOT_ALLOWED),
        (AccessPolicy(admins=("T1/U2",)), ABROAD, None),
        (AccessPolicy(admins=("T2/U2",)), MEMBER, NOT_ALLOWED),
        (AccessPolicy(admins=("U2",)), ActorContext(has_left=True), NOT_ALLOWED),
        (AccessPolicy(workspaces=("T1",)), of_app("A1"), NOT_ALLOWED),
        (AccessPolicy(workspaces=("T1",), apps=("A1",)), of_app("A1"), None),
        (AccessPolicy(workspaces=("T1",), apps=("A1",)), of_app("A2"), NOT_ALLOWED),
        (AccessPolicy(workspaces=("T1",), admins=("U2",)), of_app("A1"), NOT_ALLOWED),
    ],
)
def test_who_is_let_in(policy: AccessPolicy, actor: ActorContext, sentence: str | None) -> None:
    assert find_refusal_sentence(replace(MESSAGE, actor=actor), policy) == sentence


@pytest.mark.parametrize(("channel_id", "sentence"), [("C1/5", None), ("C2/5", NOT_ALLOWED)])
def test_a_listed_channel_includes_its_private_threads(channel_id: str, sentence: str | None) -> None:
    policy = AccessPolicy(workspaces=("T1",), channels=("C1",))
    for action in (MESSAGE, replace(DELETION, person=NOBODY)):
        inside = replace(action, address=replace(HERE, channel_id=channel_id))
        assert find_refusal_sentence(inside, policy) == sentence


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (AccessPolicy(workspaces=("T1",), roles=("R1",)), None),
        (AccessPolicy(workspaces=("T1",), channels=("C2",)), NOT_ALLOWED),
        (AccessPolicy(roles=("R1",)), None),
        (AccessPolicy(workspaces=("T2",)), NOT_ALLOWED),
    ],
)
def test_who_deletes_is_not_always_known_and_then_the_place_counts(policy: AccessPolicy, sentence: str | None) -> None:
    for action in (DELETION, StopRequested(**PLACE, message_ref="1")):
        assert find_refusal_sentence(replace(action, person=NOBODY), policy) == sentence
    assert find_refusal_sentence(replace(MESSAGE, person=NOBODY), AccessPolicy(roles=("R1",))) == NOT_ALLOWED


@dataclass
class Known:
    """The keys that were claimed, and whether the person is paired or may get a code."""

    is_paired_here: bool = False
    may_ask: bool = True
    keys: set[str] = field(default_factory=set[str])

    async def claim_key(self, key: str) -> bool:
        is_new = key not in self.keys
        self.keys.add(key)
        return is_new

    async def is_paired(self, *_person: str) -> bool:
        return self.is_paired_here

    async def request_code(self, _request: object, *, open_max: int) -> bool:
        return self.may_ask


DIRECT = ActorContext(is_direct=True)
COMMAND = CommandCalled(**PLACE, name="status", argument="")
BUTTON = RunButtonPressed(**PLACE, run_id="r", action="stop", actor=ActorContext(expects_answer=True))


@pytest.mark.parametrize(
    ("action", "known", "notices"),
    [
        (MESSAGE, Known(), [NOT_ALLOWED, ""]),
        (COMMAND, Known(), [NOT_ALLOWED, ""]),
        (BUTTON, Known(), [NOT_ALLOWED, NOT_ALLOWED]),
        (AskAnswered(**PLACE, ask_id="a", text="x", sent_at=NOW), Known(), [NOT_ALLOWED, ""]),
        (replace(MESSAGE, is_addressed=False), Known(), ["", ""]),
        (AskAnswered(**PLACE, ask_id="a", text="x", sent_at=NOW, ask_ref="2"), Known(), ["", ""]),
        (MessageEdited(**PLACE, message_ref="1", text="x", sent_at=NOW), Known(), ["", ""]),
        (DELETION, Known(), ["", ""]),
        (StopRequested(**PLACE, message_ref="1"), Known(), ["", ""]),
        (replace(MESSAGE, actor=of_app("A1")), Known(), ["", ""]),
        (replace(MESSAGE, actor=DIRECT), Known(is_paired_here=True), [None, None]),
        (MESSAGE, Known(is_paired_here=True), [NOT_ALLOWED, ""]),
        (
            replace(MESSAGE, actor=replace(DIRECT, has_left=True)),
            Known(is_paired_here=True, may_ask=False),
            [NOT_ALLOWED, ""],
        ),
        (replace(MESSAGE, actor=DIRECT), Known(may_ask=False), [NOT_ALLOWED, ""]),
        (replace(MESSAGE, actor=DIRECT), Known(), ["I do not know you yet"] * 2),
        (replace(COMMAND, actor=DIRECT), Known(), [NOT_ALLOWED, ""]),
    ],
)
async def test_a_refusal_is_told_once_a_day_and_for_each_click(
    action: UserAction, known: Known, notices: list[str | None]
) -> None:
    check = AccessCheck(policy=AccessPolicy(users=("U1",), admins=("U1",)), inbox=known, pairings=known)
    for notice in notices:
        refusal = await check.find_refusal(action)
        assert (refusal is None) is (notice is None)
        if refusal is not None:
            assert refusal.is_ignored
            assert refusal.notice.startswith(notice or "")
            assert bool(refusal.notice) is bool(notice)


async def test_a_message_of_somebody_who_cannot_be_looked_up_waits_and_a_click_does_not() -> None:
    check = AccessCheck(policy=AccessPolicy(workspaces=("T1",)), inbox=Known(), pairings=Known())
    with pytest.raises(SurfaceUnclear):
        await check.admits(replace(MESSAGE, actor=UNKNOWN))
    withheld = replace(MESSAGE, actor=replace(UNKNOWN, is_withheld=True))
    assert [require(await check.find_refusal(withheld)).notice for _ in range(2)] == [UNKNOWN_PERSON, ""]
    for _ in range(2):
        clicked = replace(BUTTON, actor=replace(UNKNOWN, expects_answer=True))
        refusal = require(await check.find_refusal(clicked))
        assert refusal.notice == UNKNOWN_PERSON
