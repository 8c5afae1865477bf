"""The task command router: commands in a sandbox, their streams, and snapshots."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import cast

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import task_command_router_pb2 as router_pb2

from simulator.modal.container import Command, CommandRefused
from simulator.modal.rpc import Answer, RpcStream, Talk
from simulator.modal.world import SimulatedSandbox, World
from simulator.serving import spawn

HOME = "/root"


async def start(world: World, request: router_pb2.TaskExecStartRequest) -> router_pb2.TaskExecStartResponse:
    sandbox = _living(world, request.task_id)
    await sandbox.started.wait()
    _living(world, request.task_id)
    if request.exec_id not in sandbox.commands:  # the id makes a repeated call harmless
        if request.HasField("pty_info"):
            raise GRPCError(Status.UNIMPLEMENTED, "the simulated Modal has no terminals")
        environment = dict(sandbox.environment)
        for source in request.secret_sources:
            environment.update(source.env.contents)
        try:
            command = await sandbox.container.run(
                request.exec_id,
                list(request.command_args),
                env=environment,
                folder=request.workdir or sandbox.definition.workdir or HOME,
            )
        except CommandRefused as refused:
            raise GRPCError(Status.INVALID_ARGUMENT, str(refused)) from refused
        sandbox.commands[request.exec_id] = command
        if request.timeout_secs:
            asyncio.get_running_loop().call_later(request.timeout_secs, _time_is_over, world, sandbox, request.exec_id)
    return router_pb2.TaskExecStartResponse()


async def read(world: World, stream: RpcStream) -> None:
    request = cast("router_pb2.TaskExecStdioReadRequest", await stream.recv_message())
    command = _command(world, request.task_id, request.exec_id)
    is_output = request.file_descriptor == router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
    output = command.stdout if is_output else command.stderr
    async with aclosing(output.follow(request.offset)) as pieces:
        async for piece in pieces:
            await stream.send_message(router_pb2.TaskExecStdioReadResponse(data=piece))


async def write(world: World, request: router_pb2.TaskExecStdinWriteRequest) -> router_pb2.TaskExecStdinWriteResponse:
    command = _command(world, request.task_id, request.exec_id)
    await _fed(command, request.offset, request.data, is_last=request.eof)
    return router_pb2.TaskExecStdinWriteResponse()


async def write_stream(world: World, stream: RpcStream) -> None:
    command: Command | None = None
    offset = 0
    async for received in stream:
        message = cast("router_pb2.TaskExecStdinWriteStreamRequest", received)
        kind = message.WhichOneof("payload")
        if kind == "start":
            command = _command(world, message.start.task_id, message.start.exec_id)
            offset = message.start.offset
        elif command is None:
            raise GRPCError(Status.INVALID_ARGUMENT, "the stream must begin with its start")
        elif kind == "data":
            await _fed(command, offset, message.data, is_last=False)
            offset += len(message.data)
        else:
            await _fed(command, offset, b"", is_last=True)
    await stream.send_message(router_pb2.TaskExecStdinWriteStreamResponse())


async def input_status(
    world: World, request: router_pb2.TaskExecStdinStatusRequest
) -> router_pb2.TaskExecStdinStatusResponse:
    command = _command(world, request.task_id, request.exec_id)
    return router_pb2.TaskExecStdinStatusResponse(
        num_bytes_written=command.written_bytes, closed=not command.takes_input
    )


async def poll(world: World, request: router_pb2.TaskExecPollRequest) -> router_pb2.TaskExecPollResponse:
    code = _command(world, request.task_id, request.exec_id).code
    if code is None:
        return router_pb2.TaskExecPollResponse()
    if code < 0:
        return router_pb2.TaskExecPollResponse(signal=-code)
    return router_pb2.TaskExecPollResponse(code=code)


async def wait(world: World, request: router_pb2.TaskExecWaitRequest) -> router_pb2.TaskExecWaitResponse:
    command = _command(world, request.task_id, request.exec_id)
    await command.ended.wait()
    code = command.code or 0
    if code < 0:
        return router_pb2.TaskExecWaitResponse(signal=-code)
    return router_pb2.TaskExecWaitResponse(code=code)


async def snapshot(
    world: World, request: router_pb2.TaskSnapshotFilesystemRequest
) -> router_pb2.TaskSnapshotFilesystemResponse:
    sandbox = _living(world, request.task_id)
    if request.ttl_seconds != -1 and request.ttl_seconds <= 0:
        raise GRPCError(Status.INVALID_ARGUMENT, "ttl_seconds must be positive, or -1")
    image_id = await world.snapshot(sandbox, request.ttl_seconds)
    return router_pb2.TaskSnapshotFilesystemResponse(image_id=image_id)


async def ready(
    world: World, request: router_pb2.SandboxWaitUntilReadyTcrRequest
) -> router_pb2.SandboxWaitUntilReadyTcrResponse:
    _living(world, request.task_id)
    return router_pb2.SandboxWaitUntilReadyTcrResponse(ready_at=world.now())


async def set_network(world: World, request: router_pb2.TaskSetNetworkAccessRequest) -> Empty:
    _living(world, request.task_id).definition.network_access.CopyFrom(request.network_access)
    return Empty()


async def _fed(command: Command, offset: int, content: bytes, *, is_last: bool) -> None:
    try:
        await command.write(offset, content, is_last=is_last)
    except OSError as error:
        raise GRPCError(Status.FAILED_PRECONDITION, "the command takes no input") from error


def _living(world: World, task_id: str) -> SimulatedSandbox:
    sandbox = world.of_task(task_id)
    if sandbox is None or sandbox.result is not None or sandbox.is_ending:
        raise GRPCError(Status.NOT_FOUND, f"task {task_id} not found")
    sandbox.last_active_at = world.now()
    return sandbox


def _command(world: World, task_id: str, exec_id: str) -> Command:
    sandbox = world.of_task(task_id)
    if sandbox is None or exec_id not in sandbox.commands:
        raise GRPCError(Status.NOT_FOUND, f"exec {exec_id} not found")
    return sandbox.commands[exec_id]


def _time_is_over(world: World, sandbox: SimulatedSandbox, exec_id: str) -> None:
    if sandbox.commands[exec_id].code is None and sandbox.result is None:
        spawn(sandbox.container.kill(exec_id), name="kill a command over its time")


ANSWERS: Mapping[str, Answer] = {
    "TaskExecStart": start,
    "TaskExecStdinWrite": write,
    "TaskExecStdinStatus": input_status,
    "TaskExecPoll": poll,
    "TaskExecWait": wait,
    "TaskSnapshotFilesystem": snapshot,
    "SandboxWaitUntilReady": ready,
    "TaskSetNetworkAccess": set_network,
}
TALKS: Mapping[str, Talk] = {"TaskExecStdioRead": read, "TaskExecStdinWriteStream": write_stream}
