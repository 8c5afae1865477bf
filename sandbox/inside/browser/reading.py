"""Scrolling, reading and dropdowns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from playwright.async_api import ElementHandle, Error

from sandbox.inside.browser.register import frames_of
from sandbox.inside.browser.setting import Refused
from sandbox.inside.browser.state import line
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


async def scroll(tab: Tab, amount: int) -> str:
    """By so many pixels: the page, or what scrolls in its middle."""
    moved = int(await asyncio.wait_for(tab.page.evaluate(SCROLL, amount), FRAME_SECONDS))
    if not moved:  # a frame lies in the middle, or the page scrolls by a script of its own
        size = tab.page.viewport_size or {"width": 1280, "height": 800}
        await tab.page.mouse.move(size["width"] / 2, size["height"] / 2)
        await tab.page.mouse.wheel(0, amount)
        return f"Turned the wheel by {amount} pixels."
    return f"Scrolled {'down' if amount > 0 else 'up'} by {moved} pixels."


async def scroll_to_text(tab: Tab, text: str) -> str:
    if not text.strip():
        raise Refused("Give the text to look for.")
    for frame in frames_of(tab.page)[:20]:
        try:
            found = frame.get_by_text(text).locator("visible=true").first
            if await asyncio.wait_for(found.count(), FRAME_SECONDS):
                await found.scroll_into_view_if_needed(timeout=3000)
                return f"Scrolled to {line(text, 100)!r}."
        except (Error, TimeoutError):
            continue
    raise Refused(
        f"{line(text, 100)!r} is not to be seen on this page. browser_read_page shows all of its text."
    )


async def options(element: ElementHandle, number: int) -> str:
    found: list[dict[str, Any]] = await element.evaluate(OPTIONS)
    if not found:
        raise Refused(f"[{number}] has no options. If it opens a list when clicked, click it.")
    lines = [
        json.dumps(line(str(one["text"]), 200), ensure_ascii=False)
        + (" (selected)" if one["selected"] else "")
        + (" (disabled)" if one["disabled"] else "")
        for one in found[:OPTIONS_MAX]
    ]
    if len(found) > OPTIONS_MAX:
        lines.append(f"(and {len(found) - OPTIONS_MAX} more)")
    return "\n".join([f"The options of [{number}]:", *lines])


async def select(element: ElementHandle, number: int, text: str) -> str:
    if await element.evaluate("element => element.tagName") != "SELECT":
        raise Refused(
            f"[{number}] is no native dropdown: click it, then click the option in its list."
        )
    found: list[dict[str, Any]] = await element.evaluate(OPTIONS)
    wanted = " ".join(text.split())
    places = [n for n, one in enumerate(found) if " ".join(str(one["text"]).split()) == wanted]
    places = places or [n for n, one in enumerate(found) if one["value"] == text]
    if not places:
        raise Refused(
            f"[{number}] has no option {text!r}. browser_get_dropdown_options lists them."
        )
    if found[places[0]]["disabled"]:
        raise Refused(f"The option {text!r} of [{number}] is disabled.")
    await element.select_option(index=places[0], timeout=3000)
    return f"Selected {line(text, 100)!r} in [{number}]."


async def text_of(tab: Tab) -> str:
    """What the page says, all of it and all frames, as text."""
    code = "() => (document.body?.innerText || '').slice(0, 200000)"
    parts: list[str] = []
    for frame in frames_of(tab.page)[:20]:
        try:
            said = str(await asyncio.wait_for(frame.evaluate(code), FRAME_SECONDS)).strip()
        except (Error, TimeoutError):
            continue
        if said:
            parts.append(
                said if frame == tab.page.main_frame else f"[frame {frame.url[:200]}]\n{said}"
            )
    return "\n\n".join(parts)[:TEXT_CHARACTERS_MAX]
