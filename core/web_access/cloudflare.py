"""Deploys websites to Cloudflare Pages: uploads files by content hash, then creates a deployment."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from mimetypes import MimeTypes
from pathlib import PurePosixPath
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, StringConstraints

from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.web_access.client import ApiRefused, ServiceApi, ServiceRequest, request_json
from core.web_access.search import parse_response

FILE_BYTES_MAX = 25 * 1024 * 1024
"""Cloudflare's size limit for one file."""
BRANCH = "main"
RULES = ("_headers", "_redirects")
"""Files that configure the service's responses and are not part of the site."""
_BATCH_BYTES_MAX = 20_000_000
_BATCH_FILES_MAX = 500
_HASH_CHARACTERS = 32
_TYPES = MimeTypes()
ResultT = TypeVar("ResultT")
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,253}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """A file of a website. `path` is its URL path and begins with a slash."""

    path: str
    content: bytes

    @property
    def key(self) -> str:
        """The hash that Cloudflare uses to upload equal content with the same file extension only once."""
        ending = PurePosixPath(self.path).suffix.removeprefix(".")
        hashed = hashlib.sha256(base64.b64encode(self.content) + ending.encode())
        return hashed.hexdigest()[:_HASH_CHARACTERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A finished deployment. `url` always shows the project's newest version, `version_url` only this deployment."""

    url: str
    version_url: str


class _Project(BaseModel):
    subdomain: Host


class _Token(BaseModel):
    jwt: str


class _Deployed(BaseModel):
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s<>]{1,300}$")]


class _Answer(BaseModel, Generic[ResultT]):
    result: ResultT


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudflarePages:
    """Deploys to one Cloudflare account. The headers of `api` contain the token."""

    api: ServiceApi
    account_id: str

    async def deploy(self, project: str, files: Sequence[SiteFile], rules: Mapping[str, bytes]) -> Deployment:
        """Deploys the files as the newest version of the project, which is created if it does not exist.

        The site changes only in the last step. Raises ToolError with a message for the model.
        """
        projects = f"/accounts/{self.account_id}/pages/projects"
        try:
            found = await request_json(self.api, ServiceRequest(method="GET", path=f"{projects}/{project}"))
        except ApiRefused as refused:
            if refused.status != 404:
                raise
            body: JsonObject = {"name": project, "production_branch": BRANCH}
            request = ServiceRequest(method="POST", path=projects, body=body, is_repeatable=False)
            found = await request_json(self.api, request)
        host = parse_response(found, _Answer[_Project], self.api).result.subdomain
        await self._upload(f"{projects}/{project}", files)
        manifest = json.dumps({one.path: one.key for one in files})
        form = {"manifest": manifest, "branch": BRANCH, **rules}
        version_url = await self._publish(f"{projects}/{project}/deployments", form)
        return Deployment(url=f"https://{host}", version_url=version_url)

    async def _publish(self, path: str, form: Mapping[str, str | bytes]) -> str:
        request = ServiceRequest(method="POST", path=path, form=form, is_repeatable=False)
        return parse_response(await request_json(self.api, request), _Answer[_Deployed], self.api).result.url

    async def _upload(self, project_path: str, files: Sequence[SiteFile]) -> None:
        """Uploads the files that Cloudflare does not have yet."""
        told = await request_json(self.api, ServiceRequest(method="GET", path=f"{project_path}/upload-token"))
        token = parse_response(told, _Answer[_Token], self.api).result.jwt
        api = replace(self.api, headers={"Authorization": f"Bearer {token}"})
        by_key = {one.key: one for one in files}
        hashes: JsonObject = {"hashes": [*by_key]}
        missing = parse_response(
            await request_json(api, ServiceRequest(method="POST", path="/pages/assets/check-missing", body=hashes)),
            _Answer[list[str]],
            api,
        ).result
        wanted = [by_key[key] for key in dict.fromkeys(missing) if key in by_key]
        for batch in _batches(wanted):
            await request_json(
                api, ServiceRequest(method="POST", path="/pages/assets/upload", body=[*map(_asset, batch)])
            )
        await request_json(api, ServiceRequest(method="POST", path="/pages/assets/upsert-hashes", body=hashes))


def _batches(files: Sequence[SiteFile]) -> Iterator[list[SiteFile]]:
    batch: list[SiteFile] = []
    size = 0
    for file in files:
        is_full = size + len(file.content) > _BATCH_BYTES_MAX or len(batch) == _BATCH_FILES_MAX
        if batch and is_full:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += len(file.content)
    if batch:
        yield batch


def _asset(file: SiteFile) -> JsonObject:
    kind = _TYPES.guess_type(file.path)[0] or "application/octet-stream"
    return {
        "key": file.key,
        "value": base64.b64encode(file.content).decode("ascii"),
        "metadata": {"contentType": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind},
        "base64": True,
    }


def project_name(name: str) -> str:
    """Returns the name in lower-case letters, digits and dashes. Raises ToolError if the result is empty."""
    kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in name.strip().lower())
    project = "-".join(part for part in kept.split("-") if part)[:58].strip("-")
    if not project:
        raise ToolError("The name needs letters or digits, such as my-report.")
    return project
