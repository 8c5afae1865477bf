"""What a database is to the stores: whole transactions, and its faults in our words."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from core.failpoints import Failpoint
from storage.sql.prepared import CompiledStatement

ResultT = TypeVar("ResultT")
Work = Callable[[Connection], ResultT]


class Database(Protocol):
    """Runs transactions. `work` is synchronous, may run in another thread, and may be run again after a race.

    Either all of it is stored or nothing. Raises StorageUnavailable when the database fails; the work's own
    exceptions pass through, after a rollback.
    """

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False
    ) -> ResultT:
        """A transaction that may write; on SQLite they take turns. A long one may take as long as it needs."""
        ...

    async def read(self, work: Work[ResultT]) -> ResultT:
        """A transaction that sees one state of the database and writes nothing."""
        ...

    async def write_statement(
        self, point: Failpoint, statement: CompiledStatement, row: Mapping[str, object]
    ) -> int:
        """A transaction of one statement: a single journey, where the database is one over a wire. Answers how many
        rows it met. It may be run twice where the connection breaks, and must not mind."""
        ...

    async def read_statement(
        self, statement: CompiledStatement, row: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """The rows of one statement, by the names of their columns."""
        ...

    async def close(self) -> None: ...
