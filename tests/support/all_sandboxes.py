"""The providers, and a sandbox of each of them, for the suites that hold for all."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from core.ports import Sandbox, SandboxProvider
from sandbox.limits import SandboxLimits
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.support.modal_stage import modal_stage
from tests.support.sandboxes import docker_containers, local_jails, reachable_folder, run

PROVIDERS = ("local", "unsafe-process", "modal", "docker")


@asynccontextmanager
async def provider_of(name: str, limits: SandboxLimits | None = None) -> AsyncGenerator[SandboxProvider]:
    if name == "local":
        async with local_jails(limits) as jails:
            yield jails
    elif name == "docker":
        async with docker_containers(limits) as containers:
            yield containers
    elif name == "modal":
        async with modal_stage() as stage:
            yield stage.worker() if limits is None else stage.worker(limits=limits)
    else:
        async with reachable_folder() as folder:
            processes = UnsafeProcessProvider(folder, limits=limits)
            yield processes
            await processes.close()


@asynccontextmanager
async def sandbox_of(provider: str, limits: SandboxLimits | None = None) -> AsyncGenerator[Sandbox]:
    async with provider_of(provider, limits) as opened:
        yield await opened.open("thread", fence=1)


async def clear(sandbox: Sandbox) -> None:
    """Ends all sessions and empties the workspace, so that the next test finds the sandbox like a new one."""
    for session in await sandbox.shell.sessions():
        await sandbox.shell.terminate(session.name)
    emptied = await run(sandbox, "chmod -R u+rwx . && find . -mindepth 1 -delete", session="clearing")
    assert emptied.exit_code == 0, emptied
    await sandbox.shell.terminate("clearing")
