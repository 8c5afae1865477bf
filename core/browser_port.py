"""A sandbox's browser as tools and people use it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from core.domain.messages import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The tab in front. All of it but the numbers was written by the page.

    `elements` are lines that begin with an element's number in brackets. `picture` is a JPEG, or empty.
    """

    url: str
    title: str
    tabs: tuple[JsonObject, ...]
    elements: tuple[str, ...]
    element_count: int
    pixels_above: int
    pixels_below: int
    html: str = ""
    picture: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an action came to. With `error` it was not done; there may be a state all the same.

    `happened`: sentences about dialogs, tabs and downloads on the way.
    """

    said: str = ""
    error: str | None = None
    happened: tuple[str, ...] = ()
    state: PageState | None = None


class Hands(Protocol):
    """A person's connection to the browser. What comes from there was made by pages and is not trusted."""

    async def send(self, message: JsonObject) -> None: ...

    def receive(self) -> AsyncIterator[tuple[JsonObject, bytes]]:
        """Messages, some with a JPEG, until the browser ends."""
        ...


class Browser(Protocol):
    """The thread's browser, started at the first need. Its profile lives in the workspace."""

    async def act(self, action: str, arguments: JsonObject, *, timeout_seconds: float) -> Seen:
        """Does one thing. Raises ToolError where there is no browser, it does not start or does not answer."""
        ...

    def take_over(self) -> AbstractAsyncContextManager[Hands]:
        """Gives the browser to a person while entered; every `act` is an error then."""
        ...
