"""Reads the state of the current tab: address, title, tabs, numbered elements, scroll position, picture."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from playwright.async_api import Error

from sandbox.inside.browser import tab as cdp
from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.elements import ElementList
from sandbox.inside.browser.tab import Tab

JPEG_QUALITY = 60
PICTURE_SECONDS = 6.0
LINES_CHARACTERS_MAX = 9000
TITLE_CHARACTERS_MAX = 200
URL_CHARACTERS_MAX = 1000
PLAIN = ("type", "role", "value", "checked", "disabled", "options")
ARIA = ("aria-expanded", "aria-checked", "aria-selected", "aria-disabled")


async def read_page_state(chromium: Chromium, tab: Tab) -> tuple[dict[str, Any], bytes]:
    """Returns the state and a JPEG, which is empty if no screenshot could be taken."""
    listing, picture, title, tabs = await asyncio.gather(
        tab.element_index.list(tab.page), _screenshot(tab), tab.title(), _tab_facts(chromium, tab)
    )
    tab.is_silent = listing.is_silent
    facts: dict[str, Any] = {
        "url": tab.page.url[:URL_CHARACTERS_MAX],
        "title": single_line(title, TITLE_CHARACTERS_MAX),
        "tabs": tabs,
        "pixels_above": listing.above,
        "pixels_below": listing.below,
        "element_count": len(listing.elements),
        "elements": _element_lines(listing),
    }
    return facts, picture


def single_line(text: str, characters_max: int) -> str:
    """Returns the text on one line, without control characters."""
    kept = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * characters_max])
    return " ".join(kept.split())[:characters_max]


def element_line(facts: dict[str, Any]) -> str:
    """Formats an element for the model. The page's text is quoted, so that it cannot imitate an element number."""
    parts = [str(facts.get("tag", "?"))]
    for name in PLAIN:
        value = facts.get(name)
        if value is True:
            parts.append(name)
        elif value:
            parts.append(f"{name}={_quote(value, 60)}")
    parts += [f"{name}={_quote(facts[name], 20)}" for name in ARIA if facts.get(name)]
    if facts.get("href"):
        parts.append(f"href={_quote(facts['href'], 120)}")
    text = f"[{facts['number']}] <{' '.join(parts)}> {_quote(facts.get('name', ''), 100)}"
    return f"{text} (in the frame {_quote(facts['frame'], 120)})" if facts.get("frame") else text


def _quote(value: object, characters_max: int) -> str:
    return json.dumps(single_line(str(value), characters_max), ensure_ascii=False)


def _element_lines(listing: ElementList) -> list[str]:
    lines: list[str] = []
    room = LINES_CHARACTERS_MAX
    for facts in listing.elements:
        text = element_line(facts)
        room -= len(text) + 1
        if room < 0:
            break
        lines.append(text)
    left_out = listing.left_out + len(listing.elements) - len(lines)
    if left_out:
        lines.append(f"({left_out} more are in view; scroll to see fewer at a time)")
    if listing.is_silent:
        lines.append("(the page does not answer; wait, open another address or close the tab)")
    elif listing.silent_frames:
        lines.append(f"({listing.silent_frames} frames of the page do not answer)")
    return lines


async def _tab_facts(chromium: Chromium, current: Tab) -> list[dict[str, Any]]:
    tabs = chromium.tabs
    titles = await asyncio.gather(*(tab.title() for tab in tabs))
    return [
        {
            "page_id": tab.number,
            "title": single_line(title, 80),
            "url": tab.page.url[:200],
            **({"is_current": True} if tab is current else {}),
        }
        for tab, title in zip(tabs, titles, strict=True)
    ]


async def _screenshot(tab: Tab) -> bytes:
    try:
        session = await asyncio.wait_for(tab.session(), PICTURE_SECONDS)
        wanted = {"format": "jpeg", "quality": JPEG_QUALITY, "optimizeForSpeed": True}
        shot = await asyncio.wait_for(cdp.send_cdp_command(session, "Page.captureScreenshot", wanted), PICTURE_SECONDS)
        return base64.b64decode(shot["data"])
    except (Error, TimeoutError, KeyError, ValueError):
        return b""
