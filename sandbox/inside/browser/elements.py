"""The numbers of elements: given once, kept while the element lives, never given to another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from playwright.async_api import ElementHandle, Error, Frame, JSHandle, Page

from sandbox.inside.browser.protocol import ActionRefused

INDEX = files("sandbox.inside.browser").joinpath("index.js").read_text("utf-8")
NEW = "() => ({ numbers: new WeakMap(), elements: new Map(), fresh: [] })"
NUMBER = """(register, first) => register.fresh.forEach((element, n) => {
  register.numbers.set(element, first + n);
  register.elements.set(first + n, new WeakRef(element));
})"""
FIND = """(register, number) => {
  const element = register.elements.get(number)?.deref();
  return element?.isConnected ? element : null;
}"""
FRAME_SECONDS = 3.0
FRAMES_MAX = 60
ELEMENTS_MAX = 400


@dataclass
class ElementList:
    """What there is to use in the tab. `silent_frames`: how many did not answer."""

    elements: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left_out: int = 0
    silent_frames: int = 0
    is_silent: bool = False
    above: int = 0
    below: int = 0


def frames_of(page: Page) -> list[Frame]:
    """The page's own frame, and those in it that have a document by now: one that loads when it comes into view, or
    never, would only be waited for."""
    main = page.main_frame
    return [one for one in page.frames if one == main or (one.url and not one.is_detached())]


class ElementIndex:
    """Of one tab. Each document of a frame has its own numbers behind a handle; the count goes on over all of them."""

    def __init__(self) -> None:
        self._next = 0
        self._handles: dict[Frame, JSHandle] = {}
        self._places: dict[int, JSHandle] = {}
        self._names: dict[int, str] = {}

    def name(self, number: int) -> str:
        """What the page calls the element; empty for one that was never listed."""
        return self._names.get(number, "")

    async def list(self, page: Page, *, everywhere: bool = False) -> ElementList:
        """Numbers what is in view (or everywhere) in all frames."""
        frames = frames_of(page)[:FRAMES_MAX]
        wanted = {"everywhere": everywhere, "most": ELEMENTS_MAX}
        looks = await asyncio.gather(*(self._look(frame, wanted) for frame in frames))
        listing = ElementList(is_silent=looks[0] is None)
        for frame, look in zip(frames, looks, strict=True):
            if look is None:
                listing.silent_frames += 1
                continue
            if frame == page.main_frame:
                listing.above, listing.below = look["above"], look["below"]
            listing.left_out += look["left_out"]
            await self._number(frame, look["lines"])
            self._names.update(
                {line["number"]: str(line.get("name", "")) for line in look["lines"]}
            )
            where = "" if frame == page.main_frame else frame.url
            listing.elements += [{**line, "frame": where} for line in look["lines"]]
        return listing

    async def element(self, number: int) -> ElementHandle:
        """Raises Refused where no living element has the number."""
        handle = self._places.get(number)
        if handle is None and 0 <= number < self._next:
            raise _gone(number)
        if handle is None:
            raise ActionRefused(
                f"There is no element [{number}] on this page. Use a number of the newest list."
            )
        try:
            found = await asyncio.wait_for(handle.evaluate_handle(FIND, number), FRAME_SECONDS)
        except (Error, TimeoutError):
            found = None
        element = found.as_element() if found else None
        if element is None:
            raise _gone(number)
        return element

    async def _look(self, frame: Frame, wanted: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return await asyncio.wait_for(self._looked(frame, wanted), FRAME_SECONDS)
        except (Error, TimeoutError, KeyError, TypeError, ValueError):
            return None

    async def _looked(self, frame: Frame, wanted: dict[str, Any]) -> dict[str, Any]:
        handle = self._handles.get(frame)
        if handle is not None:
            try:
                return self._checked(await handle.evaluate(INDEX, wanted), handle)
            except Error:  # another document is in the frame now
                self._forget(handle)
        handle = self._handles[frame] = await frame.evaluate_handle(NEW)
        return self._checked(await handle.evaluate(INDEX, wanted), handle)

    def _checked(self, look: Any, handle: JSHandle) -> dict[str, Any]:
        """A page that has bent the language's own objects may answer anything. Raises ValueError."""
        lines = look["lines"]
        for line in lines:
            if line["number"] is not None and self._places.get(line["number"]) is not handle:
                raise ValueError("a number that was not given")
        counts = {name: int(look[name]) for name in ("left_out", "above", "below")}
        return {**counts, "lines": [dict(line) for line in lines[:ELEMENTS_MAX]]}

    async def _number(self, frame: Frame, lines: list[dict[str, Any]]) -> None:
        fresh = [line for line in lines if line["number"] is None]
        if not fresh:
            return
        first, handle = self._next, self._handles[frame]
        self._next += len(fresh)
        for number, line in enumerate(fresh, start=first):
            line["number"] = number
            self._places[number] = handle
        try:
            await asyncio.wait_for(handle.evaluate(NUMBER, first), FRAME_SECONDS)
        except (Error, TimeoutError):
            self._forget(handle)  # then they count as gone

    def _forget(self, handle: JSHandle) -> None:
        self._handles = {frame: kept for frame, kept in self._handles.items() if kept != handle}
        self._places = {number: kept for number, kept in self._places.items() if kept != handle}
        self._names = {
            number: name for number, name in self._names.items() if number in self._places
        }


def _gone(number: int) -> ActionRefused:
    return ActionRefused(
        f"Element [{number}] is gone: the page has changed. Use a number of the newest list."
    )
