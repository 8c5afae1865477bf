"""One sandbox of each provider, for the suites that hold for all of them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from core.ports import Sandbox
from sandbox.limits import SandboxLimits
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.integration.sandbox.modal_stage import modal_stage
from tests.integration.sandbox.providers import docker_containers, local_jails, reachable_folder

PROVIDERS = ("local", "unsafe-process", "modal", "docker")


@asynccontextmanager
async def sandbox_of(provider: str, limits: SandboxLimits | None = None) -> AsyncGenerator[Sandbox]:
    if provider == "local":
        async with local_jails(limits) as jails:
            yield await jails.open("thread", fence=1)
    elif provider == "docker":
        async with docker_containers(limits) as containers:
            yield await containers.open("thread", fence=1)
    elif provider == "modal":
        async with modal_stage() as stage:
            worker = stage.worker() if limits is None else stage.worker(limits=limits)
            yield await worker.open("thread", fence=1)
    else:
        async with reachable_folder() as folder:
            processes = UnsafeProcessProvider(folder, limits=limits)
            yield await processes.open("thread", fence=1)
            await processes.close()
