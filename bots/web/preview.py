"""Pages of a workspace, shown as a web server would show them, but with no power over anything else."""

import mimetypes
from urllib.parse import quote

from aiohttp import web

from bots.web import links
from bots.web.deps import PORTS
from bots.web.errors import Refusal
from bots.web.sandboxes import files_of, send, workspace_path
from core.domain.errors import ToolError
from core.ports import FileEntry, Files

INDEX = "index.html"
# `sandbox` without allow-same-origin: an origin of its own that nothing else shares, the API least of all. Modules,
# fonts and fetch therefore need CORS; whoever has the token may read the files anyway.
HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts allow-forms allow-popups",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Access-Control-Allow-Origin": "*",
    "Cache-Control": "no-store",
}
_TYPES = mimetypes.MimeTypes()
"""Python's own table alone: what a machine has in /etc/mime.types changes nothing."""
_MORE_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".md": "text/plain",
    ".log": "text/plain",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".ico": "image/x-icon",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
    ".otf": "font/otf",
}


async def show(request: web.Request) -> web.StreamResponse:
    """`GET /preview/{token}/{path}`: a file as what it is; a folder as its index.html."""
    sandbox_id = links.open_preview(request.app[PORTS].link_secret, request.match_info["token"])
    asked = request.match_info.get("path")
    if asked is None:
        return _with_slash(request.match_info["token"])
    path = workspace_path(asked)
    if any(part.startswith(".") for part in path.split("/")):
        raise Refusal(404, "file_not_found", "Hidden files are not shown.")
    files = await files_of(request, sandbox_id)
    if asked in ("", "/") or asked.endswith("/"):
        path = f"{path}/{INDEX}".lstrip("/")
    entry = await _file(files, path)
    if entry is None:
        return _with_slash(path.rpartition("/")[2])
    return await send(request, files, entry, {**HEADERS, "Content-Type": content_type(path)})


def content_type(path: str) -> str:
    """By the ending of the name. Text counts as UTF-8, which is what the agent writes."""
    ending = f".{path.rpartition('.')[2].lower()}"
    kind = _MORE_TYPES.get(ending) or _TYPES.guess_type(f"x{ending}", strict=True)[0]
    if kind is None or kind == "application/x-httpd-php":
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


async def _file(files: Files, path: str) -> FileEntry | None:
    """None for a folder. Raises Refusal 404."""
    try:
        entries = await files.list(path)
    except ToolError:
        raise Refusal(404, "file_not_found", "There is no such page.") from None
    if len(entries) == 1 and entries[0].path == path:
        if entries[0].kind == "file":
            return entries[0]
        raise Refusal(404, "file_not_found", "This is not a file.")
    return None


def _with_slash(name: str) -> web.Response:
    """A folder's page refers to its neighbours relative to the folder. The redirect is relative too, so that it holds
    behind a proxy with a prefix."""
    return web.Response(status=302, headers={**HEADERS, "Location": f"./{quote(name, safe='')}/"})
