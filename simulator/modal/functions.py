"""The control plane's calls on functions: made by a deployment, found by name once that is published, and called."""

import io
import pickle
from collections.abc import Mapping, Sequence
from typing import cast

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from simulator.modal.rpc import Answer
from simulator.modal.world import World, new_id


async def prepare(world: World, request: api_pb2.FunctionPrecreateRequest) -> api_pb2.FunctionPrecreateResponse:
    handle = api_pb2.FunctionHandleMetadata(function_name=request.function_name)
    return api_pb2.FunctionPrecreateResponse(
        function_id=_function_id(request.app_id, request.function_name), handle_metadata=handle
    )


async def create(world: World, request: api_pb2.FunctionCreateRequest) -> api_pb2.FunctionCreateResponse:
    world.deployed.setdefault(request.app_id, []).append(request)
    definition = request.function
    return api_pb2.FunctionCreateResponse(
        function_id=_function_id(request.app_id, definition.function_name),
        function=definition,
        handle_metadata=_handle(definition),
        function_data=_whole(definition),
    )


async def publish(world: World, request: api_pb2.AppPublishRequest) -> api_pb2.AppPublishResponse:
    world.published.add(request.app_id)
    return api_pb2.AppPublishResponse(url="http://127.0.0.1/", deployed_at=world.now())


async def by_name(world: World, request: api_pb2.FunctionGetRequest) -> api_pb2.FunctionGetResponse:
    app_id = world.apps.get(request.app_name, "")
    if app_id not in world.published:
        raise GRPCError(Status.NOT_FOUND, f"App {request.app_name!r} not found")
    for created in reversed(world.deployed[app_id]):
        definition = created.function
        if definition.function_name == request.object_tag:
            return api_pb2.FunctionGetResponse(
                function_id=_function_id(app_id, definition.function_name),
                handle_metadata=_handle(definition),
                function=_whole(definition),
            )
    raise GRPCError(Status.NOT_FOUND, f"Function {request.object_tag!r} not found")


async def call(world: World, request: api_pb2.FunctionMapRequest) -> api_pb2.FunctionMapResponse:
    """Answers when the call is taken, not when it ends: single calls that nobody waits for, and no others."""
    definition = _of_id(world, request.function_id)
    is_spawned = (
        request.function_call_type == api_pb2.FUNCTION_CALL_TYPE_UNARY
        and request.function_call_invocation_type == api_pb2.FUNCTION_CALL_INVOCATION_TYPE_ASYNC
    )
    if not is_spawned or len(request.pipelined_inputs) != 1:
        raise GRPCError(Status.UNIMPLEMENTED, "the simulated Modal takes single spawned calls")
    given = _arguments(request.pipelined_inputs[0].input)
    call_id, input_id = new_id("fc"), new_id("in")
    try:
        await world.function_calls.begin(
            call_id,
            (definition.module_name, definition.function_name),
            given,
            _environment(world, definition.secret_ids),
        )
    except OSError as error:
        raise GRPCError(Status.INTERNAL, f"the function does not start: {error}") from error
    taken = api_pb2.FunctionPutInputsResponseItem(idx=0, input_id=input_id, input_jwt=input_id)
    return api_pb2.FunctionMapResponse(function_call_id=call_id, function_call_jwt=call_id, pipelined_inputs=[taken])


class _PlainValues(pickle.Unpickler):
    """Reads what arguments are made of, and nothing that would be executed."""

    def find_class(self, module_name: str, global_name: str) -> object:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is no plain value")


def _arguments(given: api_pb2.FunctionInput) -> tuple[Sequence[object], Mapping[str, object]]:
    if given.data_format != api_pb2.DATA_FORMAT_PICKLE or not given.args:
        raise GRPCError(Status.INVALID_ARGUMENT, "arguments are pickled, and come with the call")
    try:
        read = _PlainValues(io.BytesIO(given.args)).load()
        args, kwargs = cast("tuple[Sequence[object], Mapping[str, object]]", read)
    except Exception as error:
        raise GRPCError(Status.INVALID_ARGUMENT, f"unreadable arguments: {error}") from error
    return args, kwargs


def _of_id(world: World, function_id: str) -> api_pb2.Function:
    for app_id in world.published:
        for created in reversed(world.deployed[app_id]):
            if _function_id(app_id, created.function.function_name) == function_id:
                return created.function
    raise GRPCError(Status.NOT_FOUND, f"Function {function_id} not found")


def _environment(world: World, secret_ids: Sequence[str]) -> dict[str, str]:
    """A container at Modal is its account's, without a token in a Secret."""
    token_id, secret = world.credentials
    own = {
        "MODAL_SERVER_URL": world.url,
        "MODAL_TOKEN_ID": token_id,
        "MODAL_TOKEN_SECRET": secret,
        "MODAL_CONFIG_PATH": "/dev/null",
        "MODAL_DISABLE_API_PROXY": "1",
    }
    for secret_id in secret_ids:
        own |= world.secrets.get(secret_id.removeprefix("st-"), {})
    return own


def _function_id(app_id: str, name: str) -> str:
    return f"fu-{app_id.removeprefix('ap-')}{name}"


def _handle(definition: api_pb2.Function) -> api_pb2.FunctionHandleMetadata:
    return api_pb2.FunctionHandleMetadata(
        function_name=definition.function_name, function_type=definition.function_type
    )


def _whole(definition: api_pb2.Function) -> api_pb2.FunctionData:
    ranked = api_pb2.FunctionData.RankedFunction(rank=0, function=definition)
    return api_pb2.FunctionData(
        function_name=definition.function_name, timeout_secs=definition.timeout_secs, ranked_functions=[ranked]
    )


ANSWERS: Mapping[str, Answer] = {
    "FunctionPrecreate": prepare,
    "FunctionCreate": create,
    "FunctionGet": by_name,
    "FunctionMap": call,
    "AppPublish": publish,
}
