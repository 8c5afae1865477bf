"""The simulated Modal does for the real SDK what is said of the real Modal."""

import asyncio

import modal
import modal.exception
import pytest
from grpclib import Status
from modal_proto import api_pb2

from core.tasks import cancel
from simulator.modal.sandboxes import ANSWERS
from tests.integration.simulator.modal.conftest import Account


async def test_the_servers_kill_may_win_the_race(account: Account) -> None:
    sandbox = await account.sandbox()
    process = await sandbox.exec.aio("sleep", "1000")
    (running,) = account.simulator.world.living()
    (name,) = running.commands
    await running.container.kill(name)
    assert await process.wait.aio() == 137


async def test_an_unknown_call_is_refused_by_name(account: Account) -> None:
    with pytest.raises(modal.exception.UnimplementedError, match="no QueueGetOrCreate"):
        await modal.Queue.from_name("q", create_if_missing=True, client=account.client).len.aio()


async def test_faults_bite_as_often_as_armed(account: Account) -> None:
    account.simulator.faults.arm("SandboxCreateV2", Status.RESOURCE_EXHAUSTED, "full", times=1)
    with pytest.raises(modal.exception.ResourceExhaustedError, match="full"):
        await account.sandbox()
    await account.sandbox()


async def test_layers_are_made_once_and_written_down(account: Account) -> None:
    def layered() -> modal.Image:
        return modal.Image.from_registry("python:3.11").run_commands("echo one")

    first = await layered().build.aio(account.app)
    before = len(account.simulator.calls)
    again = await layered().build.aio(account.app)
    assert again.object_id == first.object_id
    assert "ImageJoinStreaming" not in account.simulator.calls[before:]
    assert "RUN echo one" in account.simulator.world.images[first.object_id].layers


def test_our_ids_are_of_the_second_kind() -> None:
    from simulator.modal.world import new_id

    assert len(new_id("sb", 25)) != len("sb-") + 22
    assert api_pb2.GenericResult.GENERIC_STATUS_TERMINATED


@pytest.mark.parametrize("call", ["SandboxWaitV2", "SandboxGetExitSnapshotV2"])
async def test_a_call_that_is_given_up_as_its_sandbox_ends_is_cancelled(account: Account, call: str) -> None:
    """The server counts an answer on a closed stream as a bug of the simulator."""
    sandbox = await account.sandbox(experimental_options={"enable_exit_snapshot": True})
    world = account.simulator.world
    request = api_pb2.SandboxWaitRequest(sandbox_id=sandbox.object_id, timeout=60)
    (running,) = world.living()
    for ticks in range(3):
        running.ended.clear()
        asking = asyncio.ensure_future(ANSWERS[call](world, request))
        await asyncio.sleep(0.01)
        running.ended.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        was_done = asking.done()
        await cancel(asking)
        assert asking.cancelled() or was_done
