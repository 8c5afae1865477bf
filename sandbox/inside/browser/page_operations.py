"""Operations on a page: scrolling, reading, dropdowns, and dragging with the pointer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from playwright.async_api import ElementHandle, Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser.elements import frames_of
from sandbox.inside.browser.page_state import single_line
from sandbox.inside.browser.protocol import ActionRefused
from sandbox.inside.browser.tab import Tab

OPTIONS_MAX = 300
TEXT_CHARACTERS_MAX = 200_000
FRAME_SECONDS = 3.0
SCROLL = """(amount) => {
  const down = amount > 0 ? 1 : -1;
  const room = (e) => down > 0 ? e.scrollHeight - e.clientHeight - e.scrollTop > 1 : e.scrollTop > 0;
  const page = document.scrollingElement || document.documentElement;
  const candidates = [];
  const scrolls = (e) => e !== page && e.scrollHeight > e.clientHeight + 1
    && /(auto|scroll|overlay)/.test(getComputedStyle(e).overflowY);
  const above = (e) => e.parentElement || e.getRootNode().host;
  for (let e = document.elementFromPoint(innerWidth / 2, innerHeight / 2); e; e = above(e)) {
    if (scrolls(e)) candidates.push(e);
  }
  const chosen = [page, ...candidates].find(room) || page;
  const before = chosen.scrollTop;
  chosen.scrollBy({ top: amount, behavior: 'instant' });
  return Math.round(Math.abs(chosen.scrollTop - before));
}"""
OPTIONS = """(element) => element.tagName === 'SELECT'
  ? [...element.options].map((o) => ({ text: o.text, value: o.value, disabled: o.disabled, selected: o.selected }))
  : [...element.querySelectorAll('[role=option], [role=menuitem], option')].map((o) => (
      { text: o.textContent, value: '', disabled: false, selected: o.getAttribute('aria-selected') === 'true' }))"""

TEXT = """(most) => {
  // innerText leaves out shadow trees and what is shown in their slots: only what has none inside is read with it
  const divided = new Set(), roots = [document];
  for (const root of roots) {
    for (const element of root.querySelectorAll('*')) {
      if (element.shadowRoot) roots.push(element.shadowRoot);
      else if (element.localName !== 'slot') continue;
      for (let at = element; at && !divided.has(at); at = at.parentNode || at.host) divided.add(at);
    }
  }
  if (roots.length === 1) return (document.body?.innerText || '').slice(0, most);
  const waiting = [document.body], parts = [];
  for (let length = 0; waiting.length && length < most; length += parts.at(-1)?.length || 0) {
    const node = waiting.pop();
    if (typeof node === 'string') parts.push(node);
    if (node.nodeType === Node.TEXT_NODE) parts.push(node.data.replace(/\\s+/g, ' '));
    if (node.nodeType !== Node.ELEMENT_NODE) continue;
    const display = getComputedStyle(node).display;
    if (display === 'none') continue;
    const end = /^(inline|contents)/.test(display) ? '' : '\\n';
    parts.push(end);
    const slotted = node.localName === 'slot' ? node.assignedNodes() : [];
    const inside = slotted.length ? slotted : (node.shadowRoot || node).childNodes;
    waiting.push(end);
    if (!divided.has(node)) parts.push(node.innerText);
    else for (let n = inside.length - 1; n >= 0; n -= 1) waiting.push(inside[n]);
  }
  return parts.join('').slice(0, most).split('\\n').map((line) => line.trimEnd()).filter(Boolean).join('\\n');
}"""


async def scroll(tab: Tab, amount: int) -> str:
    """Scrolls the page, or the scrollable element in its middle, by that many pixels."""
    moved = int(await asyncio.wait_for(tab.page.evaluate(SCROLL, amount), FRAME_SECONDS))
    if not moved:  # a frame is in the middle, or the page scrolls by script
        size = tab.page.viewport_size or {"width": 1280, "height": 800}
        await tab.page.mouse.move(size["width"] / 2, size["height"] / 2)
        await tab.page.mouse.wheel(0, amount)
        return f"Turned the wheel by {amount} pixels."
    return f"Scrolled {'down' if amount > 0 else 'up'} by {moved} pixels."


async def scroll_to_text(tab: Tab, text: str) -> str:
    if not text.strip():
        raise ActionRefused("Give the text to look for.")
    for frame in frames_of(tab.page)[:20]:
        try:
            found = frame.get_by_text(text).locator("visible=true").first
            if await asyncio.wait_for(found.count(), FRAME_SECONDS):
                await found.scroll_into_view_if_needed(timeout=3000)
                return f"Scrolled to {single_line(text, 100)!r}."
        except (Error, TimeoutError):
            continue
    raise ActionRefused(
        f"{single_line(text, 100)!r} is not visible on this page. browser_read_page shows all of its text."
    )


async def list_options(element: ElementHandle, number: int) -> str:
    found: list[dict[str, Any]] = await element.evaluate(OPTIONS)
    if not found:
        raise ActionRefused(f"[{number}] has no options. If it opens a list when clicked, click it.")
    lines = [
        json.dumps(single_line(str(one["text"]), 200), ensure_ascii=False)
        + (" (selected)" if one["selected"] else "")
        + (" (disabled)" if one["disabled"] else "")
        for one in found[:OPTIONS_MAX]
    ]
    if len(found) > OPTIONS_MAX:
        lines.append(f"(and {len(found) - OPTIONS_MAX} more)")
    return "\n".join([f"The options of [{number}]:", *lines])


async def select_option(element: ElementHandle, number: int, text: str) -> str:
    if await element.evaluate("element => element.tagName") != "SELECT":
        raise ActionRefused(f"[{number}] is not a native dropdown: click it, then click the option in its list.")
    found: list[dict[str, Any]] = await element.evaluate(OPTIONS)
    wanted = " ".join(text.split())
    places = [n for n, one in enumerate(found) if " ".join(str(one["text"]).split()) == wanted]
    places = places or [n for n, one in enumerate(found) if one["value"] == text]
    if not places:
        raise ActionRefused(f"[{number}] has no option {text!r}. {await list_options(element, number)}")
    if found[places[0]]["disabled"]:
        raise ActionRefused(f"The option {text!r} of [{number}] is disabled.")
    await element.select_option(index=places[0], timeout=3000)
    return f"Selected {single_line(text, 100)!r} in [{number}]."


async def read_text(tab: Tab) -> str:
    """Returns the text of the page, its open shadow trees and all its frames."""
    parts: list[str] = []
    for frame in frames_of(tab.page)[:20]:
        try:
            text = str(await asyncio.wait_for(frame.evaluate(TEXT, TEXT_CHARACTERS_MAX), FRAME_SECONDS)).strip()
        except (Error, TimeoutError):
            continue
        if text:
            parts.append(text if frame == tab.page.main_frame else f"[frame {frame.url[:200]}]\n{text}")
    return "\n\n".join(parts)[:TEXT_CHARACTERS_MAX]


STEPS = 12


@dataclass(frozen=True)
class DragPoint:
    """The centre of an element, or a point in the picture."""

    name: str
    element: ElementHandle | None = None
    x: float = 0
    y: float = 0

    async def point(self) -> tuple[float, float]:
        if self.element is None:
            return self.x, self.y
        box = await self.element.bounding_box()
        if box is None:
            raise ActionRefused(f"{self.name} is not visible.")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def drag(page: Page, source: DragPoint, target: DragPoint) -> None:
    """Raises ActionRefused unless the start and the end of the drag are visible at the same time."""
    for place in (source, target):
        if place.element is not None:
            try:
                await place.element.scroll_into_view_if_needed(timeout=2000)
            except PlaywrightTimeout:
                raise ActionRefused(f"{place.name} is not visible.") from None
    x, y = await source.point()
    to_x, to_y = await target.point()
    size = page.viewport_size
    if size is not None and not (0 <= x < size["width"] and 0 <= y < size["height"]):
        raise ActionRefused("Both ends must be in view together; scroll so that they are.")
    mouse = page.mouse
    await mouse.move(x, y)
    await mouse.down()
    try:
        # a small first step starts the drag; the last two make the target notice the hover
        await mouse.move(x + 4, y + 4, steps=2)
        await mouse.move(to_x, to_y, steps=STEPS)
        await mouse.move(to_x + 1, to_y + 1)
        await mouse.move(to_x, to_y)
    finally:
        await mouse.up()
