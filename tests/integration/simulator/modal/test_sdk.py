"""The simulated Modal does for the real SDK what is said of the real Modal."""

import asyncio
from typing import Any

import modal
import modal.exception
import pytest
from grpclib import Status
from modal_proto import api_pb2

from core.tasks import cancel
from simulator.modal.sandboxes import ANSWERS
from tests.integration.simulator.modal.conftest import Account


async def ended(sandbox: modal.Sandbox, *argv: str, **more: Any) -> tuple[bytes, bytes, int]:
    process = await sandbox.exec.aio(*argv, text=False, **more)
    out, err = await asyncio.gather(process.stdout.read.aio(), process.stderr.read.aio())
    return out, err, await process.wait.aio()


async def test_commands_have_their_own_streams_and_codes(account: Account) -> None:
    sandbox = await account.sandbox()
    out, err, code = await ended(sandbox, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (out, err, code) == (b"out\n", b"err\n", 3)
    with pytest.raises(modal.exception.InvalidError, match="No such file"):
        await sandbox.exec.aio("no-such-program")


async def test_input_goes_in_piece_by_piece(account: Account) -> None:
    sandbox = await account.sandbox()
    process = await sandbox.exec.aio("wc", "-c", text=False)
    for _ in range(5):
        process.stdin.write(bytes(300_000))
        await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()
    assert (await process.stdout.read.aio()).strip() == b"1500000"


@pytest.mark.parametrize(("patience", "codes"), [(1, (-1, 137))])
async def test_a_command_over_its_time_ends_and_the_sandbox_goes_on(
    account: Account, patience: int, codes: tuple[int, ...]
) -> None:
    sandbox = await account.sandbox()
    out, _, code = await ended(sandbox, "sh", "-c", "echo begun; exec sleep 1000", timeout=patience)
    assert (out, code in codes) == (b"begun\n", True)
    assert (await ended(sandbox, "true"))[2] == 0


async def test_the_servers_kill_may_win_the_race(account: Account) -> None:
    sandbox = await account.sandbox()
    process = await sandbox.exec.aio("sleep", "1000")
    (running,) = account.simulator.world.living()
    (name,) = running.commands
    await running.container.kill(name)
    assert await process.wait.aio() == 137


async def test_names_are_taken_while_their_sandbox_lives(account: Account) -> None:
    first = await account.sandbox("mine")
    with pytest.raises(modal.exception.AlreadyExistsError):
        await account.sandbox("mine")
    found = await modal.Sandbox.from_name.aio("test", "mine", client=account.client)
    assert found.object_id == first.object_id
    await first.terminate.aio()
    assert await first.poll.aio() is None  # it is asked to end, and keeps its name until it has
    with pytest.raises(modal.exception.AlreadyExistsError):
        await account.sandbox("mine")
    await first.wait.aio(raise_on_termination=False)
    with pytest.raises(modal.exception.NotFoundError):
        await modal.Sandbox.from_name.aio("test", "mine", client=account.client)
    assert (await account.sandbox("mine")).object_id != first.object_id


async def test_tags_find_sandboxes(account: Account) -> None:
    sandbox = await account.sandbox(tags={"kind": "a"})
    await account.sandbox(tags={"kind": "b"})
    found = [
        one.object_id
        async for one in modal.Sandbox.list.aio(app_id=account.app.app_id, tags={"kind": "a"}, client=account.client)
    ]
    assert found == [sandbox.object_id]
    await sandbox.set_tags.aio({"kind": "c"})
    assert await sandbox.get_tags.aio() == {"kind": "c"}


async def test_a_snapshot_is_a_copy_that_later_changes_do_not_reach(account: Account) -> None:
    first = await account.sandbox()
    write = ("sh", "-c", "mkdir -p sub; echo one >sub/file; ln -s file sub/link; mkfifo pipe")
    assert (await ended(first, *write, workdir="/workspace"))[2] == 0
    saved = await first.snapshot_filesystem.aio(ttl=100)
    await ended(first, "sh", "-c", "echo two >>sub/file", workdir="/workspace")
    again = modal.Image.from_id(saved.object_id, client=account.client)
    second = await modal.Sandbox.create.aio(app=account.app, image=again, timeout=60, client=account.client)
    out, _, _ = await ended(second, "sh", "-c", "cat sub/link; ls -F", workdir="/workspace")
    assert out == b"one\npipe|\nsub/\n"
    await account.simulator.world.advance(101)
    with pytest.raises(modal.exception.NotFoundError):
        await modal.Sandbox.create.aio(
            app=account.app,
            image=modal.Image.from_id(saved.object_id, client=account.client),
            timeout=60,
            client=account.client,
        )


async def test_idle_and_old_sandboxes_end(account: Account) -> None:
    idle, busy = await account.sandbox(), await account.sandbox()
    process = await busy.exec.aio("sleep", "1000")
    await account.simulator.world.advance(700)
    await idle.wait.aio(raise_on_termination=False)
    assert await idle.poll.aio() is not None
    assert await busy.poll.aio() is None
    await account.simulator.world.advance(3600)
    with pytest.raises(modal.exception.SandboxTimeoutError):
        await busy.wait.aio()
    assert await busy.poll.aio() == 124
    assert await process.wait.aio() in (-1, 137)
    with pytest.raises((modal.exception.NotFoundError, modal.exception.ConflictError)):
        await busy.exec.aio("true")


async def test_a_sandbox_may_live_a_day_and_no_longer(account: Account) -> None:
    with pytest.raises(modal.exception.InvalidError, match="24 hours"):
        await account.sandbox(timeout=25 * 3600)


async def test_a_tunnel_leads_to_this_machine(account: Account) -> None:
    sandbox = await account.sandbox(block_network=False, unencrypted_ports=[8123])
    tunnels = await sandbox.tunnels.aio()
    assert tunnels[8123].tcp_socket == ("127.0.0.1", 8123)


async def test_ended_sandboxes_leave_no_process(account: Account) -> None:
    sandbox = await account.sandbox()
    await ended(sandbox, "sh", "-c", "setsid sleep 77123 </dev/null >/dev/null 2>&1 & sleep 0")
    (running,) = account.simulator.world.living()
    await sandbox.terminate.aio()
    assert running.container._process.poll() is not None
    found = await asyncio.create_subprocess_exec(
        "grep", "-lsz", "^77123$", "-r", "/proc", "--include=cmdline", stdout=asyncio.subprocess.PIPE
    )
    assert not [line for line in (await found.communicate())[0].splitlines() if b"task" not in line]


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
