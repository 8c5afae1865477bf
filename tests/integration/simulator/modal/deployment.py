"""A deployment at the simulated Modal, in the calls that `modal deploy` makes for its functions."""

import modal
from modal_proto import api_pb2

from tests.support.narrow import require


async def published(client: modal.Client, app: str, module: str, *names: str, secret: str = "") -> None:
    """From here on the app has functions of these names."""
    stub = require(client._stub)
    made = await stub.AppCreate(api_pb2.AppCreateRequest(description=app))
    for name in names:
        function = api_pb2.Function(
            function_name=name,
            module_name=module,
            function_type=api_pb2.Function.FUNCTION_TYPE_FUNCTION,
            secret_ids=[f"st-{secret}"] if secret else [],
        )
        created = api_pb2.FunctionCreateRequest(app_id=made.app_id, function=function)
        await stub.FunctionCreate(created)
    await stub.AppPublish(api_pb2.AppPublishRequest(app_id=made.app_id, name=app))
