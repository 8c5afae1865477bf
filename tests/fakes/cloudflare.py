"""A fake of Cloudflare Pages with direct uploads, which keeps deployed files."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.fakes.web_service import FakeWebService, fake_web_service, form_of

TOKEN = "cf-secret-token-0123456789"
UPLOAD_TOKEN = "upload.jwt.secret"
ACCOUNT = "a1b2c3"


def _good(result: object) -> web.Response:
    return web.json_response({"success": True, "errors": [], "messages": [], "result": result})


def _bad(status: int, code: int, message: str) -> web.Response:
    errors = [{"code": code, "message": message}]
    return web.json_response({"success": False, "errors": errors, "messages": [], "result": None}, status=status)


def _is_signed(request: web.Request, token: str) -> bool:
    return request.headers.get("Authorization") == f"Bearer {token}"


@dataclass
class Pages:
    """A fake account. `sites` maps each project to its newest files by path."""

    standing: FakeWebService = field(default_factory=FakeWebService)
    projects: dict[str, str] = field(default_factory=dict)
    assets: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    sites: dict[str, dict[str, tuple[bytes, str]]] = field(default_factory=dict)
    rules: dict[str, dict[str, bytes]] = field(default_factory=dict)
    count: int = 0

    def checked(self, request: web.Request) -> web.Response | None:
        if not _is_signed(request, TOKEN):
            return _bad(403, 10000, "Authentication error")
        if request.match_info["account"] != ACCOUNT:
            return _bad(404, 7003, "Could not route to the account")
        return None

    async def show(self, request: web.Request) -> web.Response:
        if bad := self.checked(request):
            return bad
        name = request.match_info["project"]
        if name not in self.projects:
            return _bad(404, 8000007, "Project not found. The specified project name does not match.")
        return _good({"name": name, "subdomain": self.projects[name]})

    async def create(self, request: web.Request) -> web.Response:
        if bad := self.checked(request):
            return bad
        body = json.loads(await request.read())
        if set(body) != {"name", "production_branch"} or body["name"] in self.projects:
            return _bad(409, 8000002, "A project with this name already exists")
        self.projects[body["name"]] = f"{body['name']}-9x.pages.dev"
        return _good({"name": body["name"], "subdomain": self.projects[body["name"]]})

    async def token(self, request: web.Request) -> web.Response:
        return self.checked(request) or _good({"jwt": UPLOAD_TOKEN})

    async def missing(self, request: web.Request) -> web.Response:
        if not _is_signed(request, UPLOAD_TOKEN):
            return _bad(401, 8000013, "Invalid JWT")
        hashes = json.loads(await request.read())["hashes"]
        assert all(len(one) == 32 and set(one) <= set("0123456789abcdef") for one in hashes)
        return _good([one for one in hashes if one not in self.assets])

    async def upload(self, request: web.Request) -> web.Response:
        if not _is_signed(request, UPLOAD_TOKEN):
            return _bad(401, 8000013, "Invalid JWT")
        for one in json.loads(await request.read()):
            assert set(one) == {"key", "value", "metadata", "base64"}
            assert one["base64"] is True
            content = base64.b64decode(one["value"], validate=True)
            self.assets[one["key"]] = (content, one["metadata"]["contentType"])
        return _good({"successful_key_count": 1, "unsuccessful_keys": []})

    async def upsert(self, request: web.Request) -> web.Response:
        if not _is_signed(request, UPLOAD_TOKEN):
            return _bad(401, 8000013, "Invalid JWT")
        self.kept.update(json.loads(await request.read())["hashes"])
        return _good(None)

    async def deploy(self, request: web.Request) -> web.Response:
        if bad := self.checked(request):
            return bad
        form = await form_of(request)
        manifest = json.loads(form.pop("manifest").content)
        assert form.pop("branch").content == b"main"
        name = request.match_info["project"]
        if not all(path.startswith("/") and key in self.kept for path, key in manifest.items()):
            return _bad(400, 8000027, "The manifest names files that are not there")
        self.sites[name] = {path: self.assets[key] for path, key in manifest.items()}
        self.rules[name] = {key: part.content for key, part in form.items()}
        self.count += 1
        url = f"https://d{self.count}.{self.projects[name]}"
        return _good({"id": "d1", "url": url, "environment": "production", "aliases": None})

    def routes(self) -> list[web.RouteDef]:
        projects = "/accounts/{account}/pages/projects"
        return [
            web.get(f"{projects}/{{project}}", self.show),
            web.post(projects, self.create),
            web.get(f"{projects}/{{project}}/upload-token", self.token),
            web.post("/pages/assets/check-missing", self.missing),
            web.post("/pages/assets/upload", self.upload),
            web.post("/pages/assets/upsert-hashes", self.upsert),
            web.post(f"{projects}/{{project}}/deployments", self.deploy),
        ]


@asynccontextmanager
async def cloudflare() -> AsyncIterator[Pages]:
    """Context manager: serves one account inside the block."""
    pages = Pages()
    async with fake_web_service(pages.routes()) as standing:
        pages.standing = standing
        yield pages
