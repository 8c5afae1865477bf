"""HTTP routes for the files of a sandbox: listing, download, signed links, and previews of web pages."""

import mimetypes
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import quote

from aiohttp import web

from bots.web import links, request_parsing
from bots.web.deps import DEPS
from bots.web.errors import ApiError
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.ports import FileEntry, Files

READER_FENCE = 0
"""The lowest fencing token. Opening a sandbox with it never takes the sandbox away from a run."""
PATH_CHARACTERS_MAX = 4096


async def list_files(request: web.Request) -> web.Response:
    """`GET /api/sandboxes/{sandbox_id}/files?path=`: lists the entries of a folder."""
    path = parse_workspace_path(request.query.get("path", ""))
    files = await open_sandbox_files(request, request_parsing.parse_path_id(request, "sandbox_id"))
    entries: list[JsonObject] = [
        {
            "name": entry.path.rsplit("/", 1)[-1],
            "path": entry.path.removeprefix("./"),
            "kind": entry.kind,
            "size_bytes": entry.size_bytes,
            "modified_at": entry.modified_at,
        }
        for entry in await _entries(files, path or ".")
    ]
    return web.json_response({"path": path, "files": entries})


async def send_file(request: web.Request) -> web.StreamResponse:
    """`GET /api/sandboxes/{sandbox_id}/files/content?path=`: sends a file as a download, never inline."""
    path = parse_workspace_path(request.query.get("path", ""))
    return await _download(request, request_parsing.parse_path_id(request, "sandbox_id"), path)


async def send_linked_file(request: web.Request) -> web.StreamResponse:
    """`GET /files/{token}`: sends the file of a signed link as a download."""
    secret = request.app[DEPS].links.secret
    sandbox_id, path = links.verify_file_link(secret, request.match_info["token"])
    return await _download(request, sandbox_id, parse_workspace_path(path))


def parse_workspace_path(path: str) -> str:
    """Returns the path relative to /workspace. Raises ApiError 400 if it is invalid or outside /workspace."""
    relative = path.removeprefix("/workspace/") if path != "/workspace" else ""
    parts = [part for part in relative.split("/") if part not in {"", "."}]
    is_bad = (
        relative.startswith("/")
        or ".." in parts
        or len(path) > PATH_CHARACTERS_MAX
        or any(ord(character) < 32 or 0xD800 <= ord(character) <= 0xDFFF for character in path)
    )
    if is_bad:
        raise ApiError(400, "bad_path", "The path must lie inside /workspace.")
    return "/".join(parts)


async def open_sandbox_files(request: web.Request, sandbox_id: str) -> Files:
    """Returns the files of an existing sandbox. Raises ApiError 404 if the thread has no sandbox."""
    ports = request.app[DEPS]
    snapshot = await ports.conversations.snapshot(sandbox_id)
    if snapshot is None or not snapshot.thread.sandbox_id or ports.sandboxes is None:
        raise ApiError(404, "sandbox_not_found", "There is no such sandbox.")
    sandbox = await ports.sandboxes.open(snapshot.thread.thread_id, fence=READER_FENCE)
    return sandbox.files


async def _entries(files: Files, path: str) -> tuple[FileEntry, ...]:
    try:
        return await files.list(path)
    except ToolError:
        raise ApiError(404, "file_not_found", "There is no such file or folder.") from None


async def _download(request: web.Request, sandbox_id: str, path: str) -> web.StreamResponse:
    if not path:
        raise ApiError(400, "bad_path", "Name a file.")
    files = await open_sandbox_files(request, sandbox_id)
    entries = await _entries(files, path)
    if len(entries) != 1 or entries[0].path.strip("/") != path or entries[0].kind != "file":
        raise ApiError(400, "not_a_file", "This is not a file.")
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": attachment_header(path.rsplit("/", 1)[-1]),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
    }
    return await stream_file(request, files, entries[0], headers)


async def stream_file(
    request: web.Request, files: Files, entry: FileEntry, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Streams a file from a sandbox, or the one part of it that the client asks for.

    Sends at most the size in `entry`. If the file has become smaller, aborts the connection so that the client notices.
    """
    tag = f"{entry.size_bytes:x}-{int(entry.modified_at * 1_000_000):x}"
    headers = {**headers, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
    if any(known.value in (tag, "*") for known in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    start, end = _requested_part(request, entry, headers["ETag"])
    response = web.StreamResponse(headers=headers)
    if (start, end) != (0, entry.size_bytes):
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size_bytes}"
    response.content_length = end - start
    if request.method == "HEAD":
        await response.prepare(request)
        return response
    sent = 0
    async with aclosing(_read(files, entry.path, start, end - start)) as pieces:
        async for piece in pieces:
            if not response.prepared:
                await response.prepare(request)
            await response.write(piece)
            sent += len(piece)
    if not response.prepared:
        await response.prepare(request)
    if sent != end - start and request.transport is not None:
        request.transport.abort()
    return response


def _requested_part(request: web.Request, entry: FileEntry, tag: str) -> tuple[int, int]:
    """Returns the index of the first byte to send, and that of the byte after the last. Returns the whole file for a
    range that is malformed, has several parts, or belongs to an older version of the file. Raises ApiError 416 for a
    range beyond the end."""
    size = entry.size_bytes
    try:
        part = request.http_range
    except ValueError:
        part = slice(None)
    if part.start is None or request.headers.get("If-Range", tag) != tag:
        return 0, size
    start, end, _ = part.indices(size)
    if start >= end:
        raise ApiError(416, "no_such_range", "The file has no such part.", headers={"Content-Range": f"bytes */{size}"})
    return start, end


async def _read(files: Files, path: str, offset: int, length: int) -> AsyncGenerator[bytes, None]:
    left = length
    try:
        async for piece in files.read(path, offset=offset, length=length):
            yield piece[:left]
            left -= min(left, len(piece))
    except ToolError:
        raise ApiError(404, "file_not_found", "The file can no longer be read.") from None


def attachment_header(name: str) -> str:
    """Returns a Content-Disposition header value for a download. The name may contain any characters (RFC 6266)."""
    safe = request_parsing.sanitize_file_name(name)
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", safe)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"


INDEX_FILE = "index.html"
# `sandbox` without allow-same-origin gives the page an opaque origin, separate from the API. Modules, fonts and fetch
# therefore need CORS, which is safe because anyone with the token may read the files anyway.
PREVIEW_HEADERS = {
    "Content-Security-Policy": ("sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Access-Control-Allow-Origin": "*",
    "Cache-Control": "private, no-cache",
}
_TYPES = mimetypes.MimeTypes()
"""Uses only Python's built-in table, so that the system's /etc/mime.types has no effect."""
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


async def show_preview(request: web.Request) -> web.StreamResponse:
    """`GET /preview/{token}/{path}`: serves a file inline, or the index.html of a folder."""
    sandbox_id = links.verify_preview_link(request.app[DEPS].links.secret, request.match_info["token"])
    requested = request.match_info.get("path")
    if requested is None:
        return _redirect_with_slash(request.match_info["token"])
    path = parse_workspace_path(requested)
    if any(part.startswith(".") for part in path.split("/")):
        raise ApiError(404, "file_not_found", "Hidden files are not shown.")
    files = await open_sandbox_files(request, sandbox_id)
    if requested in ("", "/") or requested.endswith("/"):
        path = f"{path}/{INDEX_FILE}".lstrip("/")
    try:
        entries = await files.list(path)
    except ToolError:
        raise ApiError(404, "file_not_found", "There is no such page.") from None
    if [entry.path for entry in entries] != [path]:
        return _redirect_with_slash(path.rpartition("/")[2])
    (entry,) = entries
    if entry.kind != "file":
        raise ApiError(404, "file_not_found", "This is not a file.")
    return await stream_file(request, files, entry, {**PREVIEW_HEADERS, "Content-Type": content_type(path)})


def content_type(path: str) -> str:
    """Returns the content type for the file extension of a path. Text types include the charset UTF-8."""
    extension = f".{path.rpartition('.')[2].lower()}"
    kind = _MORE_TYPES.get(extension) or _TYPES.guess_type(f"x{extension}", strict=True)[0]
    if kind is None or kind == "application/x-httpd-php":
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _redirect_with_slash(name: str) -> web.Response:
    """Redirects to a folder's URL with a trailing slash, so that relative links on its page work.

    The redirect itself is relative, so that it works behind a proxy with a path prefix."""
    return web.Response(status=302, headers={**PREVIEW_HEADERS, "Location": f"./{quote(name, safe='')}/"})
