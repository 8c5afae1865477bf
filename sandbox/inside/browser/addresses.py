"""Which addresses the browser may open: the web, pages of the workspace, and nothing else of the machine."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote, urlsplit

from sandbox.inside.browser.setting import Refused

ADDRESS_CHARACTERS_MAX = 8192
LOCAL = re.compile(
    r"(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(:\d+)?([/?#]|$)", re.IGNORECASE
)
SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(?!\d+([/?#]|$))", re.IGNORECASE)


def address(written: str, root: str) -> str:
    """The address as the browser takes it. Raises Refused for one that it must not open."""
    text = written.strip()
    if not text or len(text) > ADDRESS_CHARACTERS_MAX:
        raise Refused("Give an address, such as https://example.org/ or /workspace/page.html.")
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
    raise Refused(f"{scheme[1]}: addresses are not opened here; use http, https or /workspace/...")


def is_outside(url: str, root: str) -> bool:
    """Whether the address shows files of the machine that are not of the workspace."""
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
    if is_outside(url, root):
        raise Refused("Of the machine's files only those under /workspace can be opened.")
    if not os.path.exists(whole):
        raise Refused(f"There is no file {path}. list_files shows what there is.")
    return url
