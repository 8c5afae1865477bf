"""Numbers the elements of a page: an element keeps its number, and numbers are never reused."""

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
    """The elements in a tab. `silent_frames` is how many frames did not respond."""

    elements: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left_out: int = 0
    silent_frames: int = 0
    is_silent: bool = False
    above: int = 0
    below: int = 0


def frames_of(page: Page) -> list[Frame]:
    """Returns the main frame and all frames with a document. Others may load late or never, so waiting is useless."""
    main = page.main_frame
    return [one for one in page.frames if one == main or (one.url and not one.is_detached())]


class ElementIndex:
    """The numbered elements of one tab.

    Each frame's document keeps its numbers behind a handle; numbers are unique per tab."""

    def __init__(self) -> None:
        self._next = 0
        self._handle_by_frame: dict[Frame, JSHandle] = {}
        self._handle_by_number: dict[int, JSHandle] = {}
        self._name_by_number: dict[int, str] = {}

    def name(self, number: int) -> str:
        """Returns the element's accessible name, or an empty string if it was never listed."""
        return self._name_by_number.get(number, "")

    async def list(self, page: Page) -> ElementList:
        """Numbers the elements in view in all frames."""
        frames = frames_of(page)[:FRAMES_MAX]
        looks = await asyncio.gather(*(self._list_frame(frame) for frame in frames))
        listing = ElementList(is_silent=looks[0] is None)
        for frame, look in zip(frames, looks, strict=True):
            if look is None:
                listing.silent_frames += 1
                continue
            if frame == page.main_frame:
                listing.above, listing.below = look["above"], look["below"]
            listing.left_out += look["left_out"]
            await self._number(frame, look["lines"])
            self._name_by_number.update({line["number"]: str(line.get("name", "")) for line in look["lines"]})
            where = "" if frame == page.main_frame else frame.url
            listing.elements += [{**line, "frame": where} for line in look["lines"]]
        return listing

    async def element(self, number: int) -> ElementHandle:
        """Raises ActionRefused if no living element has the number."""
        handle = self._handle_by_number.get(number)
        if handle is None and 0 <= number < self._next:
            raise _element_gone(number)
        if handle is None:
            raise ActionRefused(f"There is no element [{number}] on this page. Use a number of the newest list.")
        try:
            found = await asyncio.wait_for(handle.evaluate_handle(FIND, number), FRAME_SECONDS)
        except (Error, TimeoutError):
            found = None
        element = found.as_element() if found else None
        if element is None:
            raise _element_gone(number)
        return element

    async def _list_frame(self, frame: Frame) -> dict[str, Any] | None:
        try:
            return await asyncio.wait_for(self._list_frame_elements(frame), FRAME_SECONDS)
        except (Error, TimeoutError, KeyError, TypeError, ValueError):
            return None

    async def _list_frame_elements(self, frame: Frame) -> dict[str, Any]:
        handle = self._handle_by_frame.get(frame)
        if handle is not None:
            try:
                return self._validate_frame_elements(await handle.evaluate(INDEX, ELEMENTS_MAX), handle)
            except Error:  # the frame has a new document
                self._forget(handle)
        handle = self._handle_by_frame[frame] = await frame.evaluate_handle(NEW)
        return self._validate_frame_elements(await handle.evaluate(INDEX, ELEMENTS_MAX), handle)

    def _validate_frame_elements(self, look: Any, handle: JSHandle) -> dict[str, Any]:
        """Checks the answer of a page, which may have manipulated built-in objects. Raises ValueError."""
        lines = look["lines"]
        for line in lines:
            if line["number"] is not None and self._handle_by_number.get(line["number"]) is not handle:
                raise ValueError("an unknown number")
        counts = {name: int(look[name]) for name in ("left_out", "above", "below")}
        return {**counts, "lines": [dict(line) for line in lines[:ELEMENTS_MAX]]}

    async def _number(self, frame: Frame, lines: list[dict[str, Any]]) -> None:
        fresh = [line for line in lines if line["number"] is None]
        if not fresh:
            return
        first, handle = self._next, self._handle_by_frame[frame]
        self._next += len(fresh)
        for number, line in enumerate(fresh, start=first):
            line["number"] = number
            self._handle_by_number[number] = handle
        try:
            await asyncio.wait_for(handle.evaluate(NUMBER, first), FRAME_SECONDS)
        except (Error, TimeoutError):
            self._forget(handle)  # then the elements count as gone

    def _forget(self, handle: JSHandle) -> None:
        self._handle_by_frame = {frame: kept for frame, kept in self._handle_by_frame.items() if kept != handle}
        self._handle_by_number = {number: kept for number, kept in self._handle_by_number.items() if kept != handle}
        self._name_by_number = {
            number: name for number, name in self._name_by_number.items() if number in self._handle_by_number
        }


def _element_gone(number: int) -> ActionRefused:
    return ActionRefused(f"Element [{number}] is gone: the page has changed. Use a number of the newest list.")
