"""The checked arguments of an action, and the elements, files and addresses that they name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from playwright.async_api import ElementHandle, Error

from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.page_operations import DragPoint
from sandbox.inside.browser.page_state import single_line
from sandbox.inside.browser.protocol import ActionRefused
from sandbox.inside.browser.tab import Tab

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass
class ActionContext:
    """A running action: its browser, tab and arguments."""

    chromium: Chromium
    tab: Tab
    arguments: dict[str, Any]

    def number(self, name: str) -> int:
        value = self.arguments.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ActionRefused(f"{name} must be a whole number.")
        return value

    def text(self, name: str) -> str:
        value = self.arguments.get(name)
        if not isinstance(value, str):
            raise ActionRefused(f"{name} must be a text.")
        return value

    async def element(self, name: str = "index") -> ElementHandle:
        return await self.tab.element_index.element(self.number(name))


def playwright_key(key: str) -> str:
    """Translates a key such as `ctrl+a` to Playwright's spelling."""
    names = {
        "ctrl": "Control", "cmd": "Meta", "command": "Meta", "option": "Alt", "esc": "Escape", "return": "Enter",
        "del": "Delete", "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight",
        "space": "Space", "pgup": "PageUp", "pgdn": "PageDown", "enter": "Enter", "tab": "Tab", "escape": "Escape",
        "shift": "Shift", "alt": "Alt", "control": "Control", "meta": "Meta", "backspace": "Backspace",
    }  # fmt: skip
    parts = key.split("+") if len(key) > 1 else [key]
    return "+".join(names.get(part.lower(), part) for part in parts)


async def drag_point(context: ActionContext, side: str) -> DragPoint:
    named = context.arguments.get(f"element_{side}")
    x, y = context.arguments.get(f"coord_{side}_x"), context.arguments.get(f"coord_{side}_y")
    if isinstance(named, str) and named.strip():
        element = await _require_element(context, named.strip().strip("[]"))
        return DragPoint(name=f"[{named.strip('[] ')}]", element=element)
    if x is None or y is None:
        raise ActionRefused(f"Give element_{side}, or coord_{side}_x and coord_{side}_y.")
    x, y = context.number(f"coord_{side}_x"), context.number(f"coord_{side}_y")
    return DragPoint(name=f"({x}, {y})", x=x, y=y)


async def _require_element(context: ActionContext, named: str) -> ElementHandle:
    if named.isdecimal():
        return await context.tab.element_index.element(int(named))
    try:
        found = await context.tab.page.query_selector(named)
    except Error:
        found = None
    if found is None:
        raise ActionRefused(f"{named!r} is neither the number of an element nor a CSS selector that fits one.")
    return found


def upload_path(context: ActionContext) -> str:
    """Returns the path of a file in the workspace, with all links resolved."""
    root = os.path.realpath(context.chromium.settings.root)
    path = os.path.realpath(f"{root}/{context.text('file_path')}")
    if not path.startswith(root + "/"):
        raise ActionRefused("The path leads out of /workspace.")
    if not os.path.isfile(path):
        raise ActionRefused(f"There is no file {context.text('file_path')}. list_files shows what there is.")
    return path


def screenshot_path(context: ActionContext) -> str:
    """Returns the path for an image in the workspace, with all links resolved, and creates its folder."""
    root = os.path.realpath(context.chromium.settings.root)
    folder, _, name = f"{root}/{context.text('file_path')}".rpartition("/")
    folder = os.path.realpath(folder)
    if folder != root and not folder.startswith(root + "/"):
        raise ActionRefused("The path leads out of /workspace.")
    if not name.lower().endswith(PICTURE_ENDINGS):
        raise ActionRefused("Give a name that ends in .png or .jpg.")
    if os.path.isdir(f"{folder}/{name}"):
        raise ActionRefused(f"{context.text('file_path')} is a folder.")
    os.makedirs(folder, exist_ok=True)
    return f"{folder}/{name}"


def describe_navigation_error(url: str, error: Error) -> str:
    code = next((word for word in error.message.split() if word.startswith("net::")), "")
    reasons = {
        "net::ERR_NAME_NOT_RESOLVED": "its name is not known",
        "net::ERR_CONNECTION_REFUSED": "nothing answers there",
        "net::ERR_INTERNET_DISCONNECTED": "this sandbox has no internet access",
        "net::ERR_TUNNEL_CONNECTION_FAILED": "the sandbox's network policy does not allow it",
        "net::ERR_PROXY_CONNECTION_FAILED": "this sandbox has no internet access",
        "net::ERR_TOO_MANY_REDIRECTS": "it redirects without end",
        "net::ERR_FILE_NOT_FOUND": "there is no such file",
    }
    why = reasons.get(code) or code or error.message.splitlines()[0][:200]
    return f"{single_line(url, 300)} cannot be opened: {why}."


ADDRESS_CHARACTERS_MAX = 8192
LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(:\d+)?([/?#]|$)", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(?!\d+([/?#]|$))", re.IGNORECASE)


def resolve_address(written: str, root: str) -> str:
    """Returns the address as a URL. Raises ActionRefused if it must not be opened."""
    text = written.strip()
    if not text or len(text) > ADDRESS_CHARACTERS_MAX:
        raise ActionRefused("Give an address, such as https://example.org/ or /workspace/page.html.")
    if text == "about:blank":
        return text
    if text.startswith("/"):
        return _page(text, root)
    scheme = SCHEME.match(text)
    if scheme is None:
        return f"{'http' if LOCAL.match(text) else 'https'}://{text}"
    if scheme[1].lower() == "file":
        return _page(unquote(urlsplit(text).path), root)
    if scheme[1].lower() in ("http", "https"):
        return text
    raise ActionRefused(f"{scheme[1]}: addresses are not opened here; use http, https or /workspace/...")


def is_outside_workspace(url: str, root: str) -> bool:
    if not url.lower().startswith("file:"):
        return False
    path = os.path.realpath(unquote(urlsplit(url).path))
    real = os.path.realpath(root)
    return path != real and not path.startswith(real + "/")


def _page(path: str, root: str) -> str:
    if path == "/workspace" or path.startswith("/workspace/"):
        path = root + path[len("/workspace") :]
    whole = os.path.realpath(path)
    url = f"file://{quote(whole)}"
    if is_outside_workspace(url, root):
        raise ActionRefused("Only files under /workspace can be opened.")
    if not os.path.exists(whole):
        raise ActionRefused(f"There is no file {path}. list_files shows what there is.")
    return url
