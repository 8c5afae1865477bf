"""What files cost, and whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.knowledge import ADD, ENTRIES_SHOWN_MAX, add_knowledge, answer_knowledge
from bots.inbound.commands.table import audit_entry_for
from core.domain.budget import Budget, Limit, Spending, Spent
from core.domain.errors import BudgetExceeded, ToolError
from core.domain.threads import Address, IncomingFile, Person
from core.knowledge.ports import Scope

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
ALICE = Person(person_id="U1", name="alice")
FILE = IncomingFile(file_ref="F1", name="prices.pdf")


@pytest.mark.parametrize(
    ("has_semantics", "is_spent", "scope", "booked"),
    [
        (True, False, Scope("thread", "t"), ["t"]),
        (True, False, Scope("agent", "a"), [None]),
        (True, True, Scope("thread", "t"), None),
        (False, True, Scope("thread", "t"), []),
    ],
)
async def test_only_vectors_cost_anything(has_semantics: bool, is_spent: bool, scope: Scope, booked: Any) -> None:
    books = list[Any]()
    spent = Spending(person=Spent(tokens=100 if is_spent else 0))

    async def spending_by(*_arguments: object, **_named: object) -> Spending:
        return spent

    async def book_usage(_used: object, *, thread_id: str | None, at: Address, by: Person) -> None:
        assert (at, by) == (HERE, ALICE)
        books.append(thread_id)

    @contextmanager
    def knowledge_base(report: Any) -> Iterator[Any]:
        async def add(_scope: Scope, name: str, _pieces: object) -> str:
            if has_semantics:
                report("model", "usage")
            return name

        yield SimpleNamespace(add=add)

    deps = SimpleNamespace(
        knowledge_base=SimpleNamespace(
            semantics=object() if has_semantics else None,
            reporting_usage_to=lambda report: knowledge_base(report).__enter__(),
        ),
        ledger=SimpleNamespace(spending_by=spending_by, book_usage=book_usage),
        budget=Budget(person=Limit(tokens=50)),
        sources={"slack": SimpleNamespace(open=lambda _file, bytes_max: bytes_max)},
        file_bytes_max=1000,
        charge=lambda _model, usage: usage,
    )
    if booked is None:
        with pytest.raises(BudgetExceeded):
            await add_knowledge(FILE, scope, HERE, ALICE, deps)
    else:
        assert await add_knowledge(FILE, scope, HERE, ALICE, deps) == "prices.pdf"
    assert books == (booked or [])


ADDED = "- I know `a.md` now (about 2,000 tokens)."
LIST_OF_51 = "\n".join([*["- `a.md` (about 2,000 tokens)"] * ENTRIES_SHOWN_MAX, "- and 1 more"])


@pytest.mark.parametrize(
    ("argument", "files", "found", "platform", "answer"),
    [
        ("add", (), 0, "slack", f"Attach the files that I should know: {ADD}"),
        ("add", ("a.md", "b.md"), 0, "slack", f"{ADDED}\n- `b.md` was not added: No."),
        ("add", ("a.md",), None, "slack", ADDED),
        ("add", ("a.md",), 0, "api", "- `a.md`: files cannot be fetched here."),
        ("remove a.md", (), 1, "slack", "I have forgotten `a.md`."),
        ("remove a.md", (), 0, "slack", "I know no file named `a.md`."),
        ("remove a.md", (), None, "slack", "I know no file named `a.md`."),
        ("", (), 0, "slack", f"I know no files here yet. {ADD}"),
        ("", (), None, "slack", f"I know no files here yet. {ADD}"),
        ("", (), 1, "slack", "- `a.md` (about 2,000 tokens)"),
        ("", (), ENTRIES_SHOWN_MAX + 1, "slack", LIST_OF_51),
        ("", (), ENTRIES_SHOWN_MAX, "slack", LIST_OF_51.removesuffix("\n- and 1 more")),
    ],
)
async def test_files_are_added_removed_and_listed(
    argument: str, files: tuple[str, ...], found: int | None, platform: Any, answer: str
) -> None:
    known, thread = SimpleNamespace(name="a.md", tokens=2000), SimpleNamespace(thread_id="t")

    async def find(_address: Address) -> Any:
        return None if found is None else SimpleNamespace(thread=thread)

    async def create(_address: Address) -> Any:
        assert found is None
        return thread

    async def add(scope: Scope, name: str, _pieces: object) -> Any:
        assert scope == Scope("thread", "t")
        if name != "a.md":
            raise ToolError("No.")
        return known

    async def remove(_scope: Scope, _name: str) -> Any:
        return known if found else None

    async def entries(_scopes: object) -> list[Any]:
        return [known] * (found or 0)

    base = SimpleNamespace(semantics=None, add=add, remove=remove, store=SimpleNamespace(entries=entries))
    base.reporting_usage_to = lambda _report: base
    deps: Any = SimpleNamespace(
        conversations=SimpleNamespace(find=find, create=create),
        knowledge_base=base,
        sources={"slack": SimpleNamespace(open=lambda _file, bytes_max: None)},
        file_bytes_max=1,
    )
    called = CommandCalled(
        address=replace(HERE, platform=platform),
        dedupe_key="k",
        name="knowledge",
        argument=argument,
        person=ALICE,
        files=tuple(IncomingFile(file_ref=name, name=name) for name in files),
    )
    outcome = await answer_knowledge(called, deps)
    is_changed = answer.startswith((ADDED, "I have forgotten"))
    assert (outcome.notice, outcome.is_private) == (answer, not (is_changed or argument == ""))
    assert (audit_entry_for(called, outcome) is not None) == is_changed
