"""The commands of admins: for whom they are, and what they tell."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy, hash_pairing_code
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.admin import (
    ADMINS_ONLY,
    ENTRIES_SHOWN,
    ENTRIES_SHOWN_MAX,
    NO_SERVERS,
    PEOPLE_SHOWN_MAX,
    AdminDeps,
)
from bots.inbound.commands.table import answer_command, audit_entry_for
from core.domain.actions import ActorContext
from core.domain.audit import AuditEntry
from core.domain.threads import Address, IncomingFile, Person

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
ADMIN, BOB = Person(person_id="U1", name="alice"), Person(person_id="U2", name="bob")
EVE = Person(person_id="U6", name="*Eve* [free](https://evil.example)\u202e")
SHOWN_EVE = r"\*Eve\* \[free\](https://evil.example) (U6)"
ASKED = AuditEntry(action="run_requested", actor=BOB, address=HERE, happened_at=datetime(2026, 11, 30, 9, tzinfo=UTC))
POLICY = AccessPolicy(channels=("C1",), users=("U2",), roles=("R1",), admins=("U1",), guests=True)


@dataclass
class Stores:
    """Who may be paired by which code, who is, and what was recorded."""

    codes: dict[tuple[str, str], Person] = field(default_factory=dict[tuple[str, str], Person])
    people: tuple[Person, ...] = ()
    entries: tuple[AuditEntry, ...] = ()

    async def pair_person(self, code_hash: str, *, workspace_id: str, at: Address, by: Person) -> Person | None:
        return self.codes.get((code_hash, workspace_id))

    async def unpair_person(self, name: str, *, workspace_id: str, at: Address, by: Person) -> Person | None:
        return next((person for person in self.people if name in (person.name, person.person_id)), None)

    async def paired_people(self, _platform: str, _workspace_id: str) -> tuple[Person, ...]:
        return self.people

    async def newest_entries(self, *, limit: int, platform: str, workspace_id: str) -> tuple[AuditEntry, ...]:
        assert (platform, workspace_id) in (("slack", "T1"), ("discord", "T1"))
        return (self.entries * ENTRIES_SHOWN_MAX)[:limit]


def called(text: str, person: Person = ADMIN, address: Address = HERE, **others: Any) -> CommandCalled:
    name, _, argument = text.partition(" ")
    return CommandCalled(address=address, dedupe_key="c", name=name, argument=argument, person=person, **others)


async def answer(command: CommandCalled, stores: Stores, **deps: Any) -> Outcome:
    admin = AdminDeps(policy=POLICY, pairings=stores, audit_log=stores, **deps)
    return await answer_command(command, SimpleNamespace(admin=admin))


NONE = Stores()
PAIRED = Stores({(hash_pairing_code("ABCD2345"), "T1"): BOB, (hash_pairing_code("EEEE2345"), "@me"): EVE}, (BOB, EVE))
DISCORD = replace(HERE, platform="discord")
NO_CODE = "There is no such code, or it has expired. Check it, or ask the person to write again."


@pytest.mark.parametrize("text", ["pair ABCD-2345", "unpair bob", "who", "audit", "audit 3", "mcp connect notes"])
async def test_the_words_of_admins_are_for_admins(text: str) -> None:
    assert (await answer(called(text, BOB), PAIRED)).notice == ADMINS_ONLY
    abroad = called(text, actor=ActorContext(home_id="T9"))
    assert (await answer(abroad, PAIRED)).notice == ADMINS_ONLY


@pytest.mark.parametrize(
    ("command", "notice"),
    [
        (called("pair abcd-2345"), "bob (U2) may write to me in direct messages now."),
        (called("pair `ABCD 2345`"), "bob (U2) may write to me in direct messages now."),
        (called("pair AAAA-AAAA"), NO_CODE),
        (called("pair EEEE-2345", address=DISCORD), f"{SHOWN_EVE} may write to me in direct messages now."),
        (called("pair ABCD-2345", address=DISCORD), NO_CODE),
        (called("unpair @bob"), "bob (U2) may not write to me in direct messages any more."),
        (called("unpair `U6`"), f"{SHOWN_EVE} may not write to me in direct messages any more."),
        (called("unpair carol"), "No one is paired under that name or id; `who` lists everyone who is."),
        (called("mcp connect notes"), NO_SERVERS),
    ],
)
async def test_what_they_answer(command: CommandCalled, notice: str) -> None:
    assert (await answer(command, PAIRED)).notice == notice


async def test_who_lists_what_is_set_and_the_paired() -> None:
    assert (await answer(called("who"), PAIRED)).notice.splitlines() == [
        "- Channels: C1",
        "- People: U2",
        "- Roles and groups: R1",
        "- Admins: U1",
        "- Guests: yes",
        "- Members of other workspaces: no",
        f"- Paired for direct messages: bob (U2), {SHOWN_EVE}",
    ]
    assert (await answer(called("who"), NONE)).notice.endswith("direct messages: no one")
    crowd = Stores(people=(BOB,) * (PEOPLE_SHOWN_MAX + 2))
    assert (await answer(called("who"), crowd)).notice.endswith("bob (U2), and 2 more")


@pytest.mark.parametrize(
    ("text", "count"), [("audit", ENTRIES_SHOWN), ("audit 1", 1), ("audit 0", 1), ("audit 99", 30)]
)
async def test_the_newest_entries_are_shown(text: str, count: int) -> None:
    lines = (await answer(called(text), Stores(entries=(ASKED,)))).notice.splitlines()
    assert lines[:count] == ["- 2026-11-30 09:00:00 UTC bob (U2) asked for a run"] * count
    assert len(lines) == count + (count == ENTRIES_SHOWN_MAX)
    assert (await answer(called(text), NONE)).notice == "Nothing has been recorded here yet."


@pytest.mark.parametrize("name", ["who", "audit"])
@pytest.mark.parametrize(
    ("address", "actor", "is_public"),
    [
        (DISCORD, ActorContext(), True),
        (DISCORD, ActorContext(expects_answer=True), False),
        (DISCORD, ActorContext(is_direct=True), False),
        (HERE, ActorContext(), False),
    ],
)
async def test_in_discord_lists_are_not_read_out_to_everybody(
    name: str, address: Address, actor: ActorContext, is_public: bool
) -> None:
    answered = await answer(called(name, address=address, actor=actor), PAIRED)
    assert answered.notice.startswith("Everyone here would see") is is_public


PRICES = IncomingFile(file_ref="F", name="b.pdf")
CHANGED = Outcome(notice="Done.", is_private=False)


@pytest.mark.parametrize(
    ("command", "outcome", "recorded"),
    [
        (called("knowledge list"), Outcome(notice="Nothing."), None),
        (called("knowledge remove a.pdf"), CHANGED, ("knowledge_changed", "remove a.pdf")),
        (called("knowledge remove a.pdf"), replace(CHANGED, is_private=True), None),
        (called("knowledge add", files=(PRICES,)), CHANGED, ("knowledge_changed", "add b.pdf")),
        (called("plan skip 2"), CHANGED, ("plan_changed", "skip 2")),
        (called("plan add Pay Bob"), CHANGED, ("plan_changed", "add")),
        (called("status"), CHANGED, None),
    ],
)
def test_a_change_is_recorded_without_what_was_said(
    command: CommandCalled, outcome: Outcome, recorded: tuple[str, str] | None
) -> None:
    entry = audit_entry_for(command, outcome)
    assert (entry and (entry.action, entry.subject)) == recorded
