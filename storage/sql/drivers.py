"""Calling asyncpg from synchronous code inside a transaction, and describing errors of both drivers."""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

ResultT = TypeVar("ResultT")


class AsyncpgConnection(Protocol):
    """The part of `asyncpg.Connection` that is used here. It caches prepared statements."""

    async def execute(self, query: str, *values: object) -> str:
        """Returns the server's command tag, for example `INSERT 0 1` or `COMMIT`."""
        ...

    async def executemany(self, command: str, args: Sequence[Sequence[object]]) -> None:
        """Sends all rows in one round trip."""
        ...

    async def fetch(self, query: str, *values: object) -> Sequence[Sequence[Any]]: ...

    def get_server_version(self) -> tuple[int | str, ...]:
        """The server's version as a tuple, whose first item is the major version."""
        ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


def asyncpg_connection(connection: Connection) -> AsyncpgConnection:
    """Returns the asyncpg connection underneath a SQLAlchemy connection to PostgreSQL."""
    return cast(AsyncpgConnection, connection.connection.driver_connection)


def await_in_greenlet(answer: Awaitable[ResultT]) -> ResultT:
    """Suspends the greenlet of the transaction until the result is there; the event loop keeps running."""
    return await_only(answer)


def affected_row_count(status: str) -> int:
    """Returns the row count in a command tag."""
    return int(status.rpartition(" ")[2])


_DATA_EXCEPTION = "22"


def describe_driver_error(error: Exception) -> str:
    """Returns one line without the statement or its values, which may contain what users wrote."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str) and state.startswith(_DATA_EXCEPTION):
        # PostgreSQL and asyncpg quote the value
        return f"the database cannot take a value (SQLSTATE {state})"
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
