"""PostgreSQL's driver, called from within a transaction, which is synchronous code in a greenlet."""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

ResultT = TypeVar("ResultT")


class AsyncpgConnection(Protocol):
    """What we use of `asyncpg.Connection`. It keeps the prepared form of each statement."""

    async def execute(self, query: str, *values: object) -> str:
        """Answers what the server says of it: `INSERT 0 1`, `COMMIT`."""
        ...

    async def executemany(self, command: str, args: Sequence[Sequence[object]]) -> None:
        """All of them in one round trip."""
        ...

    async def fetch(self, query: str, *values: object) -> Sequence[Sequence[Any]]: ...

    def get_server_version(self) -> tuple[int | str, ...]:
        """Its first part is the major version."""
        ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


def asyncpg_connection(connection: Connection) -> AsyncpgConnection:
    """The connection as its driver has it, for a connection to PostgreSQL."""
    return cast(AsyncpgConnection, connection.connection.driver_connection)


def await_in_greenlet(answer: Awaitable[ResultT]) -> ResultT:
    """The transaction stands still meanwhile, and its greenlet lets the event loop go on."""
    return await_only(answer)


def affected_row_count(status: str) -> int:
    """How many rows a statement met, by what the server says of it."""
    return int(status.rpartition(" ")[2])


_DATA_EXCEPTION = "22"


def describe_driver_error(error: Exception) -> str:
    """One line without statements or values, which may hold what people wrote."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str) and state.startswith(_DATA_EXCEPTION):
        # PostgreSQL and its driver quote the value
        return f"the database cannot take a value (SQLSTATE {state})"
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
