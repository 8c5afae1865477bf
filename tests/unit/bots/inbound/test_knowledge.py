"""What files cost, and whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.commands.knowledge import add_knowledge
from core.domain.budget import Budget, Limit, Spending, Spent
from core.domain.errors import BudgetExceeded
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
