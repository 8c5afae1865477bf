"""Our MCP server and client in the official conformance suite, which npm installs. docs/developers/mcp-conformance.md
names the scenarios that do not apply, with the reasons."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import FAKES, REPOSITORY

pytestmark = pytest.mark.timeout(1_800)

NODE = "node@22"
SUITE = "@modelcontextprotocol/conformance"
SECONDS = 600
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}  # noqa: TID251 - npm needs its settings


def auth(names: str) -> tuple[str, ...]:
    return tuple(f"auth/{name}" for name in names.split())


AUTH = auth(
    "metadata-default metadata-var1 metadata-var2 metadata-var3 basic-cimd scope-from-www-authenticate "
    "scope-from-scopes-supported scope-omitted-when-undefined scope-step-up scope-retry-limit "
    "token-endpoint-auth-basic token-endpoint-auth-post token-endpoint-auth-none pre-registration resource-mismatch"
)


@dataclass(frozen=True)
class Release:
    """A release of the suite, the options that choose a protocol version, and the scenarios that apply to us."""

    version: str
    options: tuple[str, ...]
    server: tuple[str, ...]
    client: tuple[str, ...]


OLD = Release(
    version="0.1.16",
    options=(),
    server=(
        *("server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-image"),
        *("tools-call-error", "tools-call-with-progress", "server-sse-multiple-streams"),
        "dns-rebinding-protection",
    ),
    client=(
        *("initialize", "tools_call", "sse-retry", *AUTH),
        *auth("2025-03-26-oauth-endpoint-fallback offline-access-scope offline-access-not-supported"),
        *auth("client-credentials-jwt client-credentials-basic"),
    ),
)
OLD_IN_NEW = Release(
    version="0.2.0-alpha.12",
    options=("--spec-version", "2025-11-25"),
    server=(*OLD.server, "server-session-lifecycle"),
    client=("initialize", "tools_call", "sse-retry"),
)
NEW = Release(
    version="0.2.0-alpha.12",
    options=("--spec-version", "2026-07-28"),
    server=(
        *("tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-error"),
        *("tools-call-with-progress", "server-sse-multiple-streams", "dns-rebinding-protection"),
        *("sep-2164-resource-not-found", "http-header-validation"),
    ),
    client=(
        *("tools_call", "request-metadata", "sep-2322-client-request-state", "json-schema-ref-no-deref"),
        *("http-standard-headers", "http-custom-headers", "http-invalid-tool-headers", *AUTH),
        *auth("offline-access-scope offline-access-not-supported authorization-server-migration"),
        *auth("iss-supported iss-not-advertised iss-supported-missing iss-wrong-issuer"),
        *auth("iss-unexpected iss-normalized metadata-issuer-mismatch"),
    ),
)


@pytest.fixture(scope="module", params=[OLD, OLD_IN_NEW, NEW], ids=["old", "old-in-new", "new"])
def release(request: pytest.FixtureRequest) -> Release:
    return request.param


@pytest.fixture(scope="module")
def suite(release: Release, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the suite."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not here, so MCP conformance was NOT tested; install Node.js with npm")
    folder = tmp_path_factory.mktemp("suite")
    for arguments in (("init", "-y"), ("install", f"{SUITE}@{release.version}", NODE)):
        subprocess.run(["npm", *arguments], cwd=folder, check=True, timeout=SECONDS, stdout=subprocess.PIPE)
    program = folder / "node_modules" / SUITE / "dist" / "index.js"
    return [str(folder / "node_modules" / ".bin" / "node"), str(program)]


def test_every_scenario_that_applies_to_our_server_passes(suite: list[str], release: Release, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, str(FAKES / "mcp_conformance_server.py"), str(port)]
    with subprocess.Popen(command, env=ENVIRONMENT) as serving:
        try:
            while serving.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    continue
            url = f"http://127.0.0.1:{port}/mcp"
            options = ("--suite", "all", *release.options, "-o", str(tmp_path))
            result = subprocess.run(
                [*suite, "server", "--url", url, *options], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        finally:
            serving.kill()
    passed = set(re.findall(r"^✓ ([\w/-]+):", result.stdout, re.MULTILINE))
    assert set(release.server) - passed == set(), result.stdout[-4_000:]


async def test_every_scenario_that_applies_to_our_client_passes(
    suite: list[str], release: Release, tmp_path: Path
) -> None:
    places = asyncio.Semaphore(2)

    async def says(scenario: str) -> str:
        async with places:
            return await _run_client(suite, release.options, scenario, tmp_path)

    said = await asyncio.gather(*map(says, release.client))
    failed = {
        name: text[-2_000:] for name, text in zip(release.client, said, strict=True) if "OVERALL: PASSED" not in text
    }
    assert failed == {}, json.dumps(failed, indent=1)


async def _run_client(suite: list[str], options: Sequence[str], scenario: str, folder: Path) -> str:
    client = f"{sys.executable} {FAKES / 'mcp_conformance_client.py'}"
    process = await asyncio.create_subprocess_exec(
        *suite,
        *("client", "--command", client, "--scenario", scenario, *options),
        *("--timeout", "120000", "-o", str(folder)),
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode("utf-8", "replace")
