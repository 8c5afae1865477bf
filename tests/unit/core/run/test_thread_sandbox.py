"""When a run opens the sandbox of its thread, waits for one, and what it shows of that."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.domain.errors import LeaseLost, SandboxesBusy, SandboxUnavailable
from core.domain.events import ActivityChanged
from core.run.thread_sandbox import INTERRUPT_SECONDS, RETRY_SECONDS, WAIT_SECONDS_MAX, ThreadSandbox
from tests.fakes.memory_run import MemoryRunLog
from tests.histories.virtual_time import in_virtual_time

BUSY, STARTING = "Waiting for a sandbox. All are in use.", "Starting a sandbox"


@dataclass
class Provider:
    """Opens itself as the sandbox, after some seconds or with an error."""

    busy: float = 0
    seconds: float = 0.1
    error: Exception | None = None
    raises_notice: bool = False
    holds: int = 0
    opened: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    ended: list[str] = field(default_factory=list[str])
    interrupts: int = 0

    async def open(self, thread_id: str, *, fence: int) -> Any:
        self.opened.append((thread_id, fence))
        if self.error or len(self.opened) <= self.busy:
            raise self.error or SandboxesBusy("All are in use.")
        await asyncio.sleep(self.seconds)
        self.holds = 1
        if self.raises_notice:
            raise SandboxUnavailable("The sandbox ended unexpectedly.")
        return self

    def release(self, thread_id: str) -> None:
        self.holds = 0
        self.ended.append(thread_id)

    async def interrupt(self) -> None:
        self.interrupts += 1


def sandbox_of(provider: Provider | None) -> tuple[ThreadSandbox, list[str], MemoryRunLog]:
    bound, log = list[str](), MemoryRunLog()
    return ThreadSandbox(provider, "thread", 7, log, bind=bound.append), bound, log


@pytest.mark.parametrize(
    ("settings", "activities"),
    [({}, []), ({"seconds": 1.5}, [STARTING]), ({"busy": 3}, [BUSY]), ({"busy": 1, "seconds": 2}, [BUSY, STARTING])],
)
@in_virtual_time
async def test_it_is_opened_once_and_a_wait_is_shown(settings: dict[str, Any], activities: list[str]) -> None:
    provider = Provider(**settings)
    machine, bound, log = sandbox_of(provider)
    machine.release()
    await machine.interrupt()
    assert (provider.opened, provider.ended) == ([], [])
    assert await asyncio.gather(machine.open(), machine.open()) == [provider, provider]
    assert [*dict.fromkeys(log.events)] == [ActivityChanged(text=text) for text in activities]
    assert (bound, {*provider.opened}) == (["thread"], {("thread", 7)})
    provider.seconds = 0
    await machine.interrupt()
    machine.release()
    assert (provider.interrupts, provider.ended) == (1, ["thread"])


@pytest.mark.parametrize("raises_notice", [False, True])
@pytest.mark.parametrize("stop_after_seconds", [0.05, 1.5, 3])
@in_virtual_time
async def test_a_run_that_has_ended_holds_no_sandbox(*, raises_notice: bool, stop_after_seconds: float) -> None:
    provider = Provider(seconds=2, raises_notice=raises_notice)
    machine, _, _ = sandbox_of(provider)
    with suppress(SandboxUnavailable, TimeoutError):
        async with asyncio.timeout(stop_after_seconds):
            await machine.open()
    machine.release()
    await asyncio.sleep(5)
    assert provider.holds == 0


@in_virtual_time
async def test_a_run_waits_for_a_sandbox_only_so_long() -> None:
    provider = Provider(busy=10_000)
    machine, bound, log = sandbox_of(provider)
    with pytest.raises(SandboxesBusy):
        await machine.open()
    assert (len(log.events), bound) == (1, [])
    assert abs(len(provider.opened) - WAIT_SECONDS_MAX / RETRY_SECONDS) <= 2


@pytest.mark.parametrize("error", [None, LeaseLost("x"), SandboxUnavailable("x")])
@in_virtual_time
async def test_an_interrupt_that_fails_is_given_up(error: Exception | None) -> None:
    provider = Provider()
    machine, _, _ = sandbox_of(provider)
    await machine.open()
    provider.error, provider.seconds = error, 100
    before = asyncio.get_running_loop().time()
    await machine.interrupt()
    assert asyncio.get_running_loop().time() - before < INTERRUPT_SECONDS + 1
    assert provider.interrupts == 0


async def test_without_a_provider_it_is_off() -> None:
    machine, _, _ = sandbox_of(None)
    machine.release()
    await machine.interrupt()
    with pytest.raises(SandboxUnavailable, match="commands and files are off"):
        await machine.open()
