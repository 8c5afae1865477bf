"""Data of services that have no open door: people, posts, homes, products, prices, jobs."""

import json

from pydantic import BaseModel, Field, JsonValue

from core.context.untrusted_text import clean_json
from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.domain.messages import JsonObject
from core.tools.long_output import shown
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.web_access.providers import Provider, provider_file

CHARACTERS_MAX = 50_000
FOLDER = "data"


class EndpointsParams(BaseModel):
    """List what a data provider can be asked: its routes with their parameters. Call it before
    execute_data_provider_call. Prefer a data provider to search and browser where it has what you need."""

    service_name: Provider = Field(description="The provider.")


async def run_endpoints(params: EndpointsParams, context: ToolContext) -> ToolOutput:
    if context.outside.providers is None:
        raise ToolError("There are no data providers here. Go on without them.")
    known = provider_file(params.service_name)
    routes: dict[str, JsonValue] = {
        name: {
            "route": name,
            "method": one.method,
            "name": name.replace("_", " "),
            "description": one.about,
            "payload": {**one.payload},
        }
        for name, one in known.endpoints.items()
    }
    return ToolOutput(output={"service_name": params.service_name, "endpoints": routes})


class CallParams(BaseModel):
    """Ask a data provider. Its routes and their parameters are listed by get_data_provider_endpoints."""

    service_name: Provider = Field(description="The provider.")
    route: str = Field(min_length=1, max_length=200, description="The route, such as user_info.")
    payload: JsonObject = Field(
        default_factory=dict, description="The parameters of the route with their values."
    )


async def run_call(params: CallParams, context: ToolContext) -> ToolOutput:
    providers = context.outside.providers
    if providers is None:
        raise ToolError("There are no data providers here. Go on without them.")
    answer = await providers.call(params.service_name, params.route, params.payload)
    text = json.dumps(clean_json(answer), ensure_ascii=False, indent=1)
    path = f"{FOLDER}/{params.service_name}-{new_id()[-8:]}.json"
    output = await shown(
        text, source=params.service_name, room=CHARACTERS_MAX, path=path, context=context
    )
    return ToolOutput(output=output)


get_data_provider_endpoints = Tool(
    name="get_data_provider_endpoints",
    params=EndpointsParams,
    run=run_endpoints,
    title=lambda params: f"Looking at what {params.service_name} offers",
    example={"service_name": "twitter"},
    is_idempotent=True,
    requires=("data_providers",),
)
execute_data_provider_call = Tool(
    name="execute_data_provider_call",
    params=CallParams,
    run=run_call,
    title=lambda params: f"Asking {params.service_name} for {params.route}",
    example={
        "service_name": "twitter",
        "route": "user_info",
        "payload": {"screenname": "github"},
    },
    is_idempotent=True,
    timeout_seconds=180,
    requires=("data_providers",),
)
