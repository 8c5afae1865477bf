"""The control plane's calls on sandboxes."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from simulator.modal.links import Link
from simulator.modal.rpc import Answer
from simulator.modal.world import ENDED, SimulatedSandbox, World, token

LIST_MAX = 100


async def create(world: World, request: api_pb2.SandboxCreateV2Request) -> api_pb2.SandboxCreateV2Response:
    environment: dict[str, str] = {}
    for source in request.secret_sources:
        named = world.secrets.get(source.secret_id.removeprefix("st-"), {})
        environment.update(named if source.WhichOneof("source") == "secret_id" else source.env.contents)
    sandbox = await world.create(request, environment)
    return api_pb2.SandboxCreateV2Response(
        sandbox_id=sandbox.sandbox_id,
        task_id=sandbox.task_id,
        tunnels=_tunnels(sandbox),
        metadata=_handle(sandbox),
        command_router_access=api_pb2.CommandRouterAccess(url=world.router_url, jwt=world.router_token(sandbox)),
    )


async def router_access(
    world: World, request: api_pb2.SandboxGetCommandRouterAccessRequest
) -> api_pb2.SandboxGetCommandRouterAccessResponse:
    sandbox = world.of_task(request.task_id) if request.task_id else None
    sandbox = sandbox or world.sandbox(request.sandbox_id)
    if sandbox.result is not None or sandbox.is_ending:
        raise GRPCError(Status.FAILED_PRECONDITION, "Sandbox already finished")
    return api_pb2.SandboxGetCommandRouterAccessResponse(url=world.router_url, jwt=world.router_token(sandbox))


async def task_id(world: World, request: api_pb2.SandboxGetTaskIdRequest) -> api_pb2.SandboxGetTaskIdResponse:
    sandbox = world.sandbox(request.sandbox_id)
    if sandbox.result is not None:
        return api_pb2.SandboxGetTaskIdResponse(task_result=sandbox.result)
    return api_pb2.SandboxGetTaskIdResponse(task_id=sandbox.task_id)


async def wait(world: World, request: api_pb2.SandboxWaitRequest) -> api_pb2.SandboxWaitResponse:
    sandbox = world.sandbox(request.sandbox_id)
    if request.timeout:
        await _wait_for_end(sandbox, request.timeout)
    return api_pb2.SandboxWaitResponse(result=sandbox.result, metadata=_handle(sandbox))


async def _wait_for_end(sandbox: SimulatedSandbox, seconds: float) -> None:
    """Unlike `asyncio.wait_for`, is cancelled even if the sandbox ends at that moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await sandbox.ended.wait()


async def terminate(world: World, request: api_pb2.SandboxTerminateRequest) -> api_pb2.SandboxTerminateResponse:
    sandbox = world.sandbox(request.sandbox_id)
    before = sandbox.result
    await world.end(sandbox, api_pb2.GenericResult(status=ENDED))
    return api_pb2.SandboxTerminateResponse(existing_result=before)


async def exit_snapshot(
    world: World, request: api_pb2.SandboxGetExitSnapshotRequest
) -> api_pb2.SandboxGetExitSnapshotResponse:
    answer = api_pb2.SandboxGetExitSnapshotResponse
    sandbox = world.sandbox(request.sandbox_id)
    if not sandbox.has_exit_snapshot:
        raise GRPCError(Status.INVALID_ARGUMENT, "exit snapshot is not enabled for this Sandbox")
    await _wait_for_end(sandbox, request.timeout or 0.001)
    if sandbox.result is None or world.pending_exit_snapshots:
        if request.timeout and sandbox.result is not None:
            await asyncio.sleep(request.timeout)
        return answer(pending=answer.Pending())
    if not sandbox.exit_image_id:
        return answer(error=answer.Error(error_code=answer.ERROR_CODE_FILESYSTEM_INCONSISTENT))
    return answer(success=answer.Success(image_id=sandbox.exit_image_id))


async def by_name(world: World, request: api_pb2.SandboxGetFromNameRequest) -> api_pb2.SandboxGetFromNameResponse:
    app_id = world.apps.get(request.app_name, "")
    sandbox = world.named(app_id, request.sandbox_name, with_ended=request.include_terminated)
    if sandbox is None:
        raise GRPCError(Status.NOT_FOUND, f"Sandbox {request.sandbox_name!r} not found")
    return api_pb2.SandboxGetFromNameResponse(sandbox_id=sandbox.sandbox_id, metadata=_handle(sandbox))


async def old_by_name(world: World, request: api_pb2.SandboxGetFromNameRequest) -> api_pb2.SandboxGetFromNameResponse:
    """The SDK looks among V1 sandboxes too; there are none."""
    raise GRPCError(Status.NOT_FOUND, f"Sandbox {request.sandbox_name!r} not found")


async def listed(world: World, request: api_pb2.SandboxListRequest) -> api_pb2.SandboxListResponse:
    wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
    found = [
        sandbox
        for sandbox in world.sandboxes.values()
        if (not request.app_id or sandbox.app_id == request.app_id)
        and (request.include_finished or sandbox.result is None)
        and wanted.items() <= sandbox.tags.items()
        and (not request.before_timestamp or sandbox.created_at < request.before_timestamp)
    ]
    found.sort(key=lambda sandbox: -sandbox.created_at)
    return api_pb2.SandboxListResponse(
        sandboxes=[
            api_pb2.SandboxInfo(
                id=sandbox.sandbox_id,
                created_at=sandbox.created_at,
                app_id=sandbox.app_id,
                name=sandbox.name,
                metadata=_handle(sandbox),
            )
            for sandbox in found[:LIST_MAX]
        ]
    )


async def tags(world: World, request: api_pb2.SandboxTagsGetRequest) -> api_pb2.SandboxTagsGetResponse:
    found = world.sandbox(request.sandbox_id).tags
    return api_pb2.SandboxTagsGetResponse(
        tags=[api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in found.items()]
    )


async def set_tags(world: World, request: api_pb2.SandboxTagsSetRequest) -> Empty:
    sandbox = world.sandbox(request.sandbox_id)
    sandbox.tags = {tag.tag_name: tag.tag_value for tag in request.tags}
    return Empty()


async def tunnels(world: World, request: api_pb2.SandboxGetTunnelsRequest) -> api_pb2.SandboxGetTunnelsResponse:
    status = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
    sandbox = world.sandbox(request.sandbox_id)
    return api_pb2.SandboxGetTunnelsResponse(result=status, tunnels=_tunnels(sandbox))


async def connect_token(
    world: World, request: api_pb2.SandboxCreateConnectTokenRequest
) -> api_pb2.SandboxCreateConnectTokenResponse:
    sandbox = world.sandbox(request.sandbox_id)
    if sandbox.result is not None or sandbox.is_ending:
        raise GRPCError(Status.FAILED_PRECONDITION, "Sandbox already finished")
    if not sandbox.container.has_network:
        raise GRPCError(Status.INVALID_ARGUMENT, "this Sandbox has no network")
    given = token(3600)
    link = sandbox.links.setdefault(request.port or 8080, Link(request.port or 8080))
    return api_pb2.SandboxCreateConnectTokenResponse(url=await link.given(given), token=given)


def _handle(sandbox: SimulatedSandbox) -> api_pb2.SandboxHandleMetadata:
    return api_pb2.SandboxHandleMetadata(app_id=sandbox.app_id, result=sandbox.result)


def _tunnels(sandbox: SimulatedSandbox) -> list[api_pb2.TunnelData]:
    """A port of a container that shares the host's network is that port of this machine."""
    return [
        api_pb2.TunnelData(
            host="127.0.0.1",
            port=spec.port,
            unencrypted_host="127.0.0.1",
            unencrypted_port=spec.port,
            container_port=spec.port,
        )
        for spec in sandbox.definition.open_ports.ports
    ]


ANSWERS: Mapping[str, Answer] = {
    "SandboxCreateV2": create,
    "SandboxGetCommandRouterAccess": router_access,
    "SandboxGetTaskIdV2": task_id,
    "SandboxWaitV2": wait,
    "SandboxTerminateV2": terminate,
    "SandboxGetExitSnapshotV2": exit_snapshot,
    "SandboxGetFromNameV2": by_name,
    "SandboxGetFromName": old_by_name,
    "SandboxListV2": listed,
    "SandboxTagsGetV2": tags,
    "SandboxTagsSetV2": set_tags,
    "SandboxGetTunnelsV2": tunnels,
    "SandboxCreateConnectTokenV2": connect_token,
}
