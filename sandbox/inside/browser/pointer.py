"""Dragging with the pointer, as a hand would: pages that follow the pointer and pages with HTML's own drag and drop."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.async_api import ElementHandle, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser.setting import Refused

STEPS = 12


@dataclass(frozen=True)
class Place:
    """An element's middle, or a point of the picture."""

    name: str
    element: ElementHandle | None = None
    x: float = 0
    y: float = 0

    async def point(self) -> tuple[float, float]:
        if self.element is None:
            return self.x, self.y
        box = await self.element.bounding_box()
        if box is None:
            raise Refused(f"{self.name} is not visible.")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def drag(page: Page, source: Place, target: Place) -> None:
    """Raises Refused when both ends cannot be in view together."""
    for place in (source, target):
        if place.element is not None:
            try:
                await place.element.scroll_into_view_if_needed(timeout=2000)
            except PlaywrightTimeout:
                raise Refused(f"{place.name} is not visible.") from None
    x, y = await source.point()
    to_x, to_y = await target.point()
    size = page.viewport_size
    if size is not None and not (0 <= x < size["width"] and 0 <= y < size["height"]):
        raise Refused("Both ends must be in view together; scroll so that they are.")
    mouse = page.mouse
    await mouse.move(x, y)
    await mouse.down()
    try:
        # a first small step starts the drag; the last two tell the target that something hovers over it
        await mouse.move(x + 4, y + 4, steps=2)
        await mouse.move(to_x, to_y, steps=STEPS)
        await mouse.move(to_x + 1, to_y + 1)
        await mouse.move(to_x, to_y)
    finally:
        await mouse.up()
