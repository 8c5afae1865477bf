"""Real providers for the tests, in folders that a jail's user can reach, and words to use them."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bots.settings import Settings
from core.ports import CommandOutput, Sandbox
from sandbox.docker.cli import DockerCommands
from sandbox.docker.provider import DockerSandboxProvider
from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig
from sandbox.local.provider import LocalSandboxProvider
from tests.requirements_of_the_machine import lacking

SECONDS = 60.0
ENDED = (130, 137)  # a Ctrl-C that meets a program just starting is lost, and SIGKILL follows


@asynccontextmanager
async def reachable_folder() -> AsyncGenerator[Path]:
    """pytest's own temporary folders are private to the user that runs it."""
    folder = Path(tempfile.mkdtemp(prefix="threadhand-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def local_jails(
    limits: SandboxLimits | None = None, *, egress: EgressConfig | None = None
) -> AsyncIterator[LocalSandboxProvider]:
    async with reachable_folder() as folder:
        provider = LocalSandboxProvider(folder, limits=limits, egress=egress)
        result = await provider.probe()
        if not result.ok:
            lacking("jail", f"{result.reason} {result.remedy}")
        try:
            yield provider
        finally:
            await provider.close()


@asynccontextmanager
async def docker_containers(limits: SandboxLimits | None = None) -> AsyncGenerator[DockerSandboxProvider]:
    async with reachable_folder() as folder:
        image = Settings.model_fields["docker_image"].default
        plan = DockerCommands(image=image, home=str(folder), limits=limits or SandboxLimits())
        provider = DockerSandboxProvider(plan, folder)
        result = await provider.probe()
        if not result.ok:
            lacking("docker", f"{result.reason} {result.remedy}")
        try:
            yield provider
        finally:
            for thread_id in list(provider._machines.running_by_thread()):
                await provider.destroy(thread_id)
            await provider.close()


async def run(sandbox: Sandbox, command: str, *, session: str = "main", seconds: float = SECONDS) -> CommandOutput:
    return await sandbox.shell.execute(command, session=session, folder=None, timeout_seconds=seconds)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def content(sandbox: Sandbox, path: str) -> bytes:
    return b"".join([piece async for piece in sandbox.files.read(path)])
