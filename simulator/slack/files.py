"""Files over HTTP: uploads of the app, downloads with its token, and addresses for the page."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from simulator.slack.tenants import Tenants
from simulator.slack.web_api.dispatch import Handle
from simulator.slack.world import StoredFile

_LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in</body></html>"


@dataclass(slots=True)
class FileServer:
    """The files of every workspace."""

    tenants: Tenants

    def routes(self, disturbing: Callable[[str, Handle], Handle]) -> list[web.RouteDef]:
        """Where the files are served; `files.upload` and `files.download` are the names for faults."""
        download = disturbing("files.download", self.download)
        return [
            web.post("/upload/v1/{team}/{key}", disturbing("files.upload", self.upload)),
            web.get("/files-pri/{place}/{name}", download),
            web.get("/files-pri/{place}/download/{name}", download),
            web.get("/open/{team}/{key}/{name}", self.open),
        ]

    async def upload(self, request: web.Request) -> web.Response:
        """Takes the bytes of a file, as raw body or as the first part of a form; the length must be as declared."""
        stored = self._by_key(request)
        if stored is None or stored.is_complete:
            return web.Response(status=404, text="no such upload")
        content = await _first_part(request)
        if len(content) != stored.declared_bytes:
            return web.Response(status=400, text=f"expected {stored.declared_bytes} bytes, got {len(content)}")
        stored.content, stored.is_uploaded = content, True
        return web.Response(text=f"OK - {len(content)}")

    async def download(self, request: web.Request) -> web.Response:
        """A file for its app. Without a valid token the platform answers 200 and its sign-in page."""
        header = request.headers.get("Authorization", "")
        reached = self.tenants.reached_by(header.removeprefix("Bearer ").strip())
        team_id, _, file_id = request.match_info["place"].partition("-")
        workspace = next((one for one in reached if one.team_id == team_id), None)
        if workspace is None:
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        if "files:read" not in workspace.settings.scopes:
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        stored = workspace.files.get(file_id)
        if stored is None or stored.is_deleted or not stored.is_complete:
            return web.Response(status=404, text="file not found")
        return _served(stored)

    async def open(self, request: web.Request) -> web.Response:
        """A file for the page, under an address that cannot be guessed."""
        stored = self._by_key(request)
        if stored is None or stored.is_deleted or not stored.is_complete:
            return web.Response(status=404, text="file not found")
        return _served(stored)

    def _by_key(self, request: web.Request) -> StoredFile | None:
        workspace = self.tenants.workspaces.get(request.match_info["team"])
        return workspace.file_keys.get(request.match_info["key"]) if workspace else None


async def _first_part(request: web.Request) -> bytes:
    if request.content_type != "multipart/form-data":
        return await request.read()
    for part in (await request.post()).values():
        if isinstance(part, web.FileField):
            return part.file.read()
    return b""


def _served(stored: StoredFile) -> web.Response:
    # A page made by somebody must not run scripts on the simulator's own address: pictures alone are shown in place.
    is_shown = stored.mime_type in ("image/png", "image/jpeg", "image/gif", "image/webp")
    place = "inline" if is_shown else "attachment"
    return web.Response(
        body=stored.content,
        headers={
            # a vector picture is shown by an image tag, which runs nothing; opened by itself it is downloaded
            "Content-Type": stored.mime_type
            if is_shown or stored.mime_type == "image/svg+xml"
            else "application/octet-stream",
            "Content-Disposition": f"{place}; filename*=UTF-8''{quote(stored.name, safe='', errors='replace')}",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox",
        },
    )
