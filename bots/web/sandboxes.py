"""Files of a sandbox over HTTP: listed, downloaded, and by signed link."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import quote

from aiohttp import web

from bots.web import links, requests
from bots.web.deps import PORTS
from bots.web.errors import Refusal
from core.domain.errors import ToolError
from core.domain.messages import JsonObject
from core.ports import FileEntry, Files

READER_FENCE = 0
"""A reader's opening of a sandbox outranks no run: nothing in it is ended."""
PATH_CHARACTERS_MAX = 4096


async def list_files(request: web.Request) -> web.Response:
    """`GET /api/sandboxes/{sandbox_id}/files?path=`: the entries of a folder."""
    path = workspace_path(request.query.get("path", ""))
    files = await files_of(request, requests.path_id(request, "sandbox_id"))
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
    """`GET /api/sandboxes/{sandbox_id}/files/content?path=`: always a download, never shown."""
    path = workspace_path(request.query.get("path", ""))
    return await _download(request, requests.path_id(request, "sandbox_id"), path)


async def send_linked_file(request: web.Request) -> web.StreamResponse:
    """`GET /files/{token}`: the file that a signed link names."""
    secret = request.app[PORTS].link_secret
    sandbox_id, path = links.open_link(secret, request.match_info["token"])
    return await _download(request, sandbox_id, workspace_path(path))


def workspace_path(path: str) -> str:
    """The path relative to /workspace. Raises Refusal 400 for one that leads out or cannot be a path."""
    relative = path.removeprefix("/workspace/") if path != "/workspace" else ""
    parts = [part for part in relative.split("/") if part not in {"", "."}]
    is_bad = (
        relative.startswith("/")
        or ".." in parts
        or len(path) > PATH_CHARACTERS_MAX
        or any(ord(sign) < 32 or 0xD800 <= ord(sign) <= 0xDFFF for sign in path)
    )
    if is_bad:
        raise Refusal(400, "bad_path", "The path must lie inside /workspace.")
    return "/".join(parts)


async def files_of(request: web.Request, sandbox_id: str) -> Files:
    """Raises Refusal 404 where the thread has no sandbox; starting one for a look would make an empty one."""
    ports = request.app[PORTS]
    snapshot = await ports.conversations.snapshot(sandbox_id)
    if snapshot is None or not snapshot.thread.sandbox_id or ports.sandboxes is None:
        raise Refusal(404, "sandbox_not_found", "There is no such sandbox.")
    sandbox = await ports.sandboxes.open(snapshot.thread.thread_id, fence=READER_FENCE)
    return sandbox.files


async def _entries(files: Files, path: str) -> tuple[FileEntry, ...]:
    try:
        return await files.list(path)
    except ToolError:
        raise Refusal(404, "file_not_found", "There is no such file or folder.") from None


async def _download(request: web.Request, sandbox_id: str, path: str) -> web.StreamResponse:
    if not path:
        raise Refusal(400, "bad_path", "Name a file.")
    files = await files_of(request, sandbox_id)
    entries = await _entries(files, path)
    if len(entries) != 1 or entries[0].path.strip("/") != path or entries[0].kind != "file":
        raise Refusal(400, "not_a_file", "This is not a file.")
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": attachment(path.rsplit("/", 1)[-1]),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
    }
    return await send(request, files, entries[0], headers)


async def send(
    request: web.Request, files: Files, entry: FileEntry, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends exactly the announced size; a file that shrinks meanwhile breaks the connection, not the promise."""
    response = web.StreamResponse(headers=headers)
    response.content_length = entry.size_bytes
    sent = 0
    async with aclosing(_read(files, entry)) as pieces:
        async for piece in pieces:
            if not response.prepared:
                await response.prepare(request)
            await response.write(piece)
            sent += len(piece)
    if not response.prepared:
        await response.prepare(request)
    if sent != entry.size_bytes and request.transport is not None:
        request.transport.abort()
    return response


async def _read(files: Files, entry: FileEntry) -> AsyncGenerator[bytes, None]:
    left = entry.size_bytes
    try:
        async for piece in files.read(entry.path, length=entry.size_bytes):
            yield piece[:left]
            left -= min(left, len(piece))
    except ToolError:
        raise Refusal(404, "file_not_found", "The file can no longer be read.") from None


def attachment(name: str) -> str:
    """A Content-Disposition that saves under this name (RFC 6266), whatever characters it has."""
    safe = requests.safe_name(name)
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", safe)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"
