"""Modal's real SDK against the simulated Modal, for tests."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from modal.client import Client, _Client
from modal_proto import api_pb2

from core.domain.errors import SandboxUnavailable
from core.domain.sandbox_records import SandboxRecord
from core.ports import Sandbox
from sandbox.local import jail_requirements
from sandbox.local.toolbox import require_toolbox
from sandbox.memory_records import MemorySandboxRecords
from sandbox.modal.config import ModalConfig
from sandbox.modal.provider import ModalSandboxProvider
from simulator.modal.container import Jail
from simulator.modal.server import ModalSimulator
from simulator.modal.world import Pace
from tests.requirements_of_the_machine import lacking
from tests.support.narrow import require
from tests.support.sandboxes import local_jails, pieces

PLAN = ModalConfig(app="threadhand-test", start_seconds=30)
SLOW_ENDS = Pace(scale=float(os.environ.get("THREADHAND_TEST_MODAL_SCALE", "0.01")))  # noqa: TID251 - of the tests
"""A sandbox ends 0.2 to 35 hundredths of a second after it was asked to, and keeps its name until then. With a scale of
1 it takes as long as at Modal."""
JAIL_USER = 29_998
MINUTE, HOUR = 60.0, 3600.0
OUT_OF_MEMORY = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_KERNEL_OOM_KILL, exitcode=137)
INTERNAL_FAILURE = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_INTERNAL_FAILURE)
ENDS_OF_PATIENCE = ("is still starting", "does not answer")


class Clock:
    """Goes only when it is told to, and takes the simulated Modal along."""

    def __init__(self, modal: ModalSimulator) -> None:
        self._modal = modal

    def __call__(self) -> float:
        return self._modal.world.now()

    async def advance(self, seconds: float) -> None:
        await self._modal.world.advance(seconds)


@dataclass(kw_only=True)
class Stage:
    """One Modal, what is remembered, and as many workers as a test wants."""

    modal: ModalSimulator
    clock: Clock
    records: MemorySandboxRecords = field(default_factory=MemorySandboxRecords)
    workers: list[ModalSandboxProvider] = field(default_factory=list[ModalSandboxProvider])

    def worker(self, **changes: object) -> ModalSandboxProvider:
        plan = replace(PLAN, **changes)
        provider = ModalSandboxProvider(plan, self.records, now=self.clock)
        self.workers.append(provider)
        return provider

    async def open_sandbox(self, content: bytes | None = None) -> tuple[ModalSandboxProvider, Sandbox]:
        """Opens the thread's sandbox with a new worker, and writes the content to its file `file`."""
        worker = self.worker()
        sandbox = await worker.open("thread", fence=1)
        if content is not None:
            await sandbox.files.write("file", pieces(content))
        return worker, sandbox

    async def record(self) -> SandboxRecord:
        """Returns what is remembered of the thread's sandbox."""
        return require(await self.records.find("modal", "thread"))

    async def save(self, worker: ModalSandboxProvider) -> None:
        """Lets go of the thread's sandbox, and waits until its files are saved."""
        worker.release("thread")
        await worker.wait_for_saves()

    async def end_sandbox(self, result: api_pb2.GenericResult = OUT_OF_MEMORY, *, waits_for_end: bool = True) -> None:
        """Ends the only sandbox as Modal does, which takes its time."""
        (made,) = self.modal.world.living()
        await self.modal.world.end(made, result)
        if waits_for_end:
            await made.ended.wait()

    @property
    def living(self) -> list[str]:
        """The names of those that are not ending, without what distinguishes a thread's sandboxes."""
        return [sandbox.name.rpartition(".")[0] for sandbox in self.modal.world.living()]

    @property
    def snapshots(self) -> list[str]:
        """Those that were asked for."""
        images = self.modal.world.images.values()
        return [one.image_id for one in images if one.folder and not one.is_exit_snapshot]

    @property
    def exit_snapshots(self) -> list[str]:
        return [one.image_id for one in self.modal.world.images.values() if one.is_exit_snapshot]


async def soon(worker: ModalSandboxProvider, thread_id: str = "thread") -> Sandbox:
    """The sandbox, from a worker whose patience for each attempt may be less than a slow machine takes."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await worker.open(thread_id, fence=1)
            except SandboxUnavailable:
                continue


async def refused(worker: ModalSandboxProvider, words: str, *, fence: int = 1) -> None:
    """Opens the sandbox with such a worker until it is refused with these words, or fails for other ones."""
    async with asyncio.timeout(30):
        while True:
            with pytest.raises(SandboxUnavailable) as told:
                await worker.open("thread", fence=fence)
            if words in str(told.value):
                return
            assert any(end in str(told.value) for end in ENDS_OF_PATIENCE), str(told.value)


@asynccontextmanager
async def modal_stage(
    *, jailed: bool = False, with_browser: bool = False, pace: Pace = SLOW_ENDS
) -> AsyncIterator[Stage]:
    """Plain processes by default: what is tried out is ours, and Modal keeps its own walls."""
    with tempfile.TemporaryDirectory(prefix="threadhand-test-") as folder:
        Path(folder).chmod(0o711)
        jail = await modal_jail(Path(folder), with_browser=with_browser) if jailed else None
        async with ModalSimulator(jail, pace=pace) as modal:
            environ = os.environ  # noqa: TID251 - where the SDK looks
            wanted = environment_of(modal)
            before = {name: environ.get(name) for name in wanted}
            environ.update(wanted)
            forget_client()
            stage = Stage(modal=modal, clock=Clock(modal))
            try:
                yield stage
            finally:
                for worker in stage.workers:
                    await worker.close()
                if _Client._client_from_env is not None:
                    await (await Client.from_env.aio()).close.aio()
                forget_client()
                for name, value in before.items():
                    if value is None:
                        environ.pop(name, None)
                    else:
                        environ[name] = value
        assert modal.gate.bugs == []


def forget_client() -> None:
    """The SDK keeps one client for the whole process, and its lock while that connects."""
    _Client._client_from_env = _Client._client_from_env_lock = None


def environment_of(modal: ModalSimulator) -> dict[str, str]:
    """With which the SDK finds the simulated Modal and nothing else."""
    token_id, secret = modal.world.credentials
    return {
        "MODAL_SERVER_URL": modal.url,
        "MODAL_TOKEN_ID": token_id,
        "MODAL_TOKEN_SECRET": secret,
        "MODAL_CONFIG_PATH": os.devnull,
        "MODAL_DISABLE_API_PROXY": "1",
    }


async def modal_jail(folder: Path, *, with_browser: bool = False) -> Jail:
    """Skips the test where the machine allows none."""
    async with local_jails() as jails:
        drops_user = jails._drops_user
        if with_browser and jails.browser_unavailable_reason:
            lacking("chromium", jails.browser_unavailable_reason)
    more: tuple[tuple[Path, str], ...] = ()
    try:
        python = jail_requirements.require_python(drops_user=drops_user)
        bwrap = jail_requirements.require_bwrap(folder, drops_user=drops_user)
        if with_browser:
            more = require_toolbox(python, drops_user=drops_user).mounts()
    except jail_requirements.MissingRequirement as why:
        lacking("jail", str(why))
    return Jail(
        bwrap=bwrap, python=python.path, prefix=python.prefix, user=JAIL_USER if drops_user else None, more=more
    )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with modal_stage() as made:
        yield made
