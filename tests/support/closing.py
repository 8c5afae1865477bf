"""Closes what a test has opened."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> Awaitable[object]: ...


ClosableT = TypeVar("ClosableT", bound=Closable)


@asynccontextmanager
async def close_after(opened: ClosableT) -> AsyncGenerator[ClosableT, None]:
    """Yields what is opened, and closes it after the block."""
    try:
        yield opened
    finally:
        await opened.close()
