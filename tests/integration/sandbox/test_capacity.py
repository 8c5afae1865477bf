"""More threads than a machine has sandboxes for: the longest idle one makes room, and who gets none waits."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from core.domain.errors import SandboxesBusy
from sandbox.limits import SandboxLimits, raise_descriptor_limit, sandbox_capacity
from sandbox.local.provider import LocalSandboxProvider
from tests.support.sandboxes import content, local_jails, pieces, run


@pytest.fixture
async def two() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails(SandboxLimits(sandboxes=2)) as provider:
        yield provider


def running(jails: LocalSandboxProvider) -> set[str]:
    return set(jails._machines.running_by_thread())


async def test_the_longest_idle_sandbox_makes_room_and_keeps_its_files(two: LocalSandboxProvider) -> None:
    first = await two.open("first", fence=1)
    await first.files.write("kept", pieces(b"x"))
    two.release("first")
    await two.open("second", fence=1)
    two.release("second")
    await run(await two.open("first", fence=2), "true")
    two.release("first")
    await two.open("third", fence=1)
    assert running(two) == {"first", "third"}
    two.release("third")
    await two.open("second", fence=2)
    two.release("second")
    again = await two.open("first", fence=3)
    assert await content(again, "kept") == b"x"


async def test_the_sandbox_of_a_run_is_never_taken(two: LocalSandboxProvider) -> None:
    await two.open("first", fence=1)
    await two.open("second", fence=1)
    with pytest.raises(SandboxesBusy, match="All 2 sandboxes"):
        await two.open("third", fence=1)
    assert running(two) == {"first", "second"}
    assert (two.occupancy().running, two.occupancy().most, two.occupancy().waiting) == (2, 2, 1)
    two.release("second")
    await two.open("third", fence=1)
    assert running(two) == {"first", "third"}
    assert two.occupancy().waiting == 0


async def test_a_sandbox_that_works_in_the_background_of_a_call_is_not_idle(two: LocalSandboxProvider) -> None:
    first = await two.open("first", fence=1)
    two.release("first")
    reading = asyncio.ensure_future(run(first, "read line"))
    await two.open("second", fence=1)
    two.release("second")
    await two.open("third", fence=1)
    assert running(two) == {"first", "third"}
    await first.shell.type_text("main", "\n")
    await reading


@contextmanager
def descriptors(soft: int, hard: int | None = None) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_capacity_follows_from_descriptors_and_memory() -> None:
    with descriptors(1024):
        few = sandbox_capacity(total_memory_bytes=64 << 30)
        assert 50 < few < 246  # where a machine with that many descriptors failed
        raise_descriptor_limit()
        assert sandbox_capacity(total_memory_bytes=64 << 30) > few
    assert sandbox_capacity(total_memory_bytes=1 << 30) == 16
    assert sandbox_capacity(total_memory_bytes=1 << 20) == 1


async def test_with_too_few_descriptors_a_run_waits_and_does_not_fail(two: LocalSandboxProvider) -> None:
    await two.open("first", fence=1)
    lowest = os.dup(0)
    os.close(lowest)
    with descriptors(lowest + 2), pytest.raises(SandboxesBusy):
        await two.open("second", fence=1)
    await run(await two.open("second", fence=1), "true")
