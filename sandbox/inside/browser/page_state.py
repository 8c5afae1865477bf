"""What the tab in front shows: address, title, tabs, numbered elements, how far it is scrolled, a picture."""

from __future__ import annotations

import asyncio
import base64
import binascii
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
HTML_CHARACTERS_MAX = 20_000
HTML = """(most) => document.querySelectorAll('*').length > 4000 ? ''
  : (document.documentElement?.outerHTML || '').slice(0, most)"""
PLAIN = ("type", "role", "value", "checked", "disabled", "options")
ARIA = ("aria-expanded", "aria-checked", "aria-selected", "aria-disabled")


async def read_page_state(chromium: Chromium, tab: Tab) -> tuple[dict[str, Any], bytes]:
    """The facts and a JPEG, which is empty where the page does not let itself be pictured."""
    listing, picture, title, html, tabs = await asyncio.gather(
        tab.register.list(tab.page), _picture(tab), tab.title(), _html(tab), _tabs(chromium, tab)
    )
    tab.is_silent = listing.is_silent
    facts: dict[str, Any] = {
        "url": tab.page.url[:URL_CHARACTERS_MAX],
        "title": single_line(title, TITLE_CHARACTERS_MAX),
        "tabs": tabs,
        "pixels_above": listing.above,
        "pixels_below": listing.below,
        "element_count": len(listing.elements),
        "elements": _lines(listing),
        "html": html,
    }
    return facts, picture


def single_line(text: str, characters_max: int) -> str:
    """On one line, without control characters."""
    kept = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * characters_max])
    return " ".join(kept.split())[:characters_max]


def element_line(facts: dict[str, Any]) -> str:
    """One element as the model reads it. What the page wrote stands in quotes, so that it cannot look like a number."""
    parts = [str(facts.get("tag", "?"))]
    for name in PLAIN:
        value = facts.get(name)
        if value is True:
            parts.append(name)
        elif value:
            parts.append(f"{name}={_quoted(value, 60)}")
    parts += [f"{name}={_quoted(facts[name], 20)}" for name in ARIA if facts.get(name)]
    if facts.get("href"):
        parts.append(f"href={_quoted(facts['href'], 120)}")
    said = f"[{facts['number']}] <{' '.join(parts)}> {_quoted(facts.get('name', ''), 100)}"
    if facts.get("offscreen"):
        said += " (out of view)"
    return f"{said} (in the frame {_quoted(facts['frame'], 120)})" if facts.get("frame") else said


def _quoted(value: object, characters_max: int) -> str:
    return json.dumps(single_line(str(value), characters_max), ensure_ascii=False)


def _lines(listing: ElementList) -> list[str]:
    lines: list[str] = []
    room = LINES_CHARACTERS_MAX
    for facts in listing.elements:
        said = element_line(facts)
        room -= len(said) + 1
        if room < 0:
            break
        lines.append(said)
    left_out = listing.left_out + len(listing.elements) - len(lines)
    if left_out:
        lines.append(f"({left_out} more are in view; scroll to see fewer at a time)")
    if listing.is_silent:
        lines.append("(the page does not answer; wait, open another address or close the tab)")
    elif listing.silent_frames:
        lines.append(f"({listing.silent_frames} frames of the page do not answer)")
    return lines


async def _tabs(chromium: Chromium, current: Tab) -> list[dict[str, Any]]:
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


async def _picture(tab: Tab) -> bytes:
    try:
        session = await asyncio.wait_for(tab.session(), PICTURE_SECONDS)
        wanted = {"format": "jpeg", "quality": JPEG_QUALITY, "optimizeForSpeed": True}
        shot = await asyncio.wait_for(
            cdp.send_cdp_command(session, "Page.captureScreenshot", wanted), PICTURE_SECONDS
        )
        return base64.b64decode(shot["data"])
    except (Error, TimeoutError, KeyError, binascii.Error):
        return b""


async def _html(tab: Tab) -> str:
    try:
        found = await asyncio.wait_for(tab.page.evaluate(HTML, HTML_CHARACTERS_MAX), 2)
    except (Error, TimeoutError):
        return ""
    return found if isinstance(found, str) else ""
