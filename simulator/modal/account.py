"""The control plane's calls on apps, images and secrets."""

from collections.abc import Mapping
from typing import cast

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from simulator.modal.rpc import Answer, RpcStream, Talk
from simulator.modal.world import SimulatedImage, World, new_id, token

TOKEN_SECONDS = 1200.0
BUILDER = "2025.06"
CREATE_IF_MISSING = api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING
SUCCESS = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)


async def hello(world: World, request: object) -> api_pb2.ClientHelloResponse:
    return api_pb2.ClientHelloResponse()


async def auth_token(world: World, request: object) -> api_pb2.AuthTokenGetResponse:
    return api_pb2.AuthTokenGetResponse(token=token(TOKEN_SECONDS))


async def environment(
    world: World, request: api_pb2.EnvironmentGetOrCreateRequest
) -> api_pb2.EnvironmentGetOrCreateResponse:
    settings = api_pb2.EnvironmentSettings(image_builder_version=BUILDER)
    name = request.deployment_name or "main"
    return api_pb2.EnvironmentGetOrCreateResponse(
        environment_id="en-1", metadata=api_pb2.EnvironmentMetadata(name=name, settings=settings)
    )


async def app(world: World, request: api_pb2.AppGetOrCreateRequest) -> api_pb2.AppGetOrCreateResponse:
    name = request.app_name
    if name not in world.apps and request.object_creation_type != CREATE_IF_MISSING:
        raise GRPCError(Status.NOT_FOUND, f"App {name!r} not found")
    app_id = world.apps.setdefault(name, new_id("ap"))
    handle = api_pb2.AppHandleMetadata(description=name, app_id=app_id)
    return api_pb2.AppGetOrCreateResponse(app_id=app_id, handle_metadata=handle)


async def image(world: World, request: api_pb2.ImageGetOrCreateRequest) -> api_pb2.ImageGetOrCreateResponse:
    """Records the commands of layers without running them. An image based on a snapshot has its files."""
    bases = [world.image(base.image_id) for base in request.image.base_images]
    layers = (*(bases[0].layers if bases else ()), *request.image.dockerfile_commands)
    folder = bases[0].folder if bases else None
    for built in world.images.values():
        if (built.layers, built.folder, built.expires_at) == (layers, folder, None):
            return api_pb2.ImageGetOrCreateResponse(image_id=built.image_id, result=SUCCESS)
    image_id = new_id("im")
    world.images[image_id] = SimulatedImage(image_id=image_id, layers=layers, folder=folder)
    return api_pb2.ImageGetOrCreateResponse(image_id=image_id)


async def build(world: World, stream: RpcStream) -> None:
    request = cast("api_pb2.ImageJoinStreamingRequest", await stream.recv_message())
    world.image(request.image_id)
    result = SUCCESS
    if world.failing_builds:
        world.failing_builds -= 1
        await world.delete_image(request.image_id)
        failure = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
        result = api_pb2.GenericResult(status=failure, exception="apt-get failed")
    await stream.send_message(api_pb2.ImageJoinStreamingResponse(result=result, eof=True))


async def image_by_id(world: World, request: api_pb2.ImageFromIdRequest) -> api_pb2.ImageFromIdResponse:
    return api_pb2.ImageFromIdResponse(image_id=world.image(request.image_id).image_id)


async def delete_image(world: World, request: api_pb2.ImageDeleteRequest) -> Empty:
    world.image(request.image_id)
    await world.delete_image(request.image_id)
    return Empty()


async def secret(world: World, request: api_pb2.SecretGetOrCreateRequest) -> api_pb2.SecretGetOrCreateResponse:
    name = request.deployment_name
    if name and name not in world.secrets and not request.env_dict:
        raise GRPCError(Status.NOT_FOUND, f"Secret {name!r} not found")
    secret_id = f"st-{name}" if name else new_id("st")
    world.secrets.setdefault(name or secret_id, dict(request.env_dict))
    return api_pb2.SecretGetOrCreateResponse(secret_id=secret_id)


async def mount(world: World, request: api_pb2.MountGetOrCreateRequest) -> api_pb2.MountGetOrCreateResponse:
    world.mounted_files.update(one.filename for one in request.files)
    return api_pb2.MountGetOrCreateResponse(mount_id=new_id("mo"))


async def files_there(
    world: World, request: api_pb2.MountBatchedCheckExistenceRequest
) -> api_pb2.MountBatchedCheckExistenceResponse:
    """Reports all files of a deployment as present, so that nothing is uploaded."""
    return api_pb2.MountBatchedCheckExistenceResponse()


async def app_by_name(
    world: World, request: api_pb2.AppGetByDeploymentNameRequest
) -> api_pb2.AppGetByDeploymentNameResponse:
    is_deployed = world.apps.get(request.name, "") in world.deployed
    app_id = world.apps[request.name] if is_deployed else ""
    return api_pb2.AppGetByDeploymentNameResponse(app_id=app_id)


async def create_app(world: World, request: api_pb2.AppCreateRequest) -> api_pb2.AppCreateResponse:
    app_id = world.apps.setdefault(request.description, new_id("ap"))
    return api_pb2.AppCreateResponse(app_id=app_id, app_page_url="http://127.0.0.1/")


async def layout(world: World, request: api_pb2.AppGetLayoutRequest) -> api_pb2.AppGetLayoutResponse:
    return api_pb2.AppGetLayoutResponse(app_layout=api_pb2.AppLayout())


async def acknowledge(world: World, request: object) -> Empty:
    return Empty()


ANSWERS: Mapping[str, Answer] = {
    "ClientHello": hello,
    "AuthTokenGet": auth_token,
    "EnvironmentGetOrCreate": environment,
    "AppGetOrCreate": app,
    "ImageGetOrCreate": image,
    "ImageFromId": image_by_id,
    "ImageDelete": delete_image,
    "SecretGetOrCreate": secret,
    "MountGetOrCreate": mount,
    "MountBatchedCheckExistence": files_there,
    "AppGetByDeploymentName": app_by_name,
    "AppCreate": create_app,
    "AppGetLayout": layout,
    "AppHeartbeat": acknowledge,
    "AppClientDisconnect": acknowledge,
}
TALKS: Mapping[str, Talk] = {"ImageJoinStreaming": build}
