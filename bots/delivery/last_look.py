"""A last look before a platform is told something: whoever froze since it was decided may no longer be the one to tell.

It is taken as late as can be, by the client of the platform, when it is the call's turn: after every wait.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Look = Callable[[], Awaitable[None]]

_look: ContextVar[Look | None] = ContextVar("look", default=None)


@contextmanager
def looking(look: Look) -> Generator[None, None, None]:
    """For the calls made while entered. The look raises what keeps them from being made."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


async def last_look() -> None:
    """Right before a call that changes something."""
    look = _look.get()
    if look is not None:
        await look()
