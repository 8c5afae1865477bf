"""A client for the data providers of RapidAPI, each described by a YAML file of endpoints."""

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.web_access.client import ServiceApi, ServiceRequest, request_json

Provider = Literal["linkedin", "twitter", "zillow", "amazon", "yahoo_finance", "active_jobs"]
_VALUE_CHARACTERS_MAX = 2_000


class Endpoint(BaseModel):
    """`payload` maps parameters (of the query for GET, of the body for POST) to descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["GET", "POST"] = "GET"
    path: str = Field(pattern="^/[A-Za-z0-9/._-]+$")
    about: str
    payload: dict[str, str]


class ProviderEndpoints(BaseModel):
    """One provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(pattern=r"^[a-z0-9-]+\.p\.rapidapi\.com$")
    about: str
    endpoints: dict[str, Endpoint]


@cache
def load_provider_endpoints(name: Provider) -> ProviderEndpoints:
    """Returns the endpoints of a provider."""
    text = (resources.files(__name__) / f"{name}.yaml").read_text("utf-8")
    return ProviderEndpoints.model_validate(yaml.safe_load(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class RapidApi:
    """Calls the providers' endpoints. `url` replaces the hosts of all providers if set. No other host gets the key."""

    key: str = field(repr=False)
    url: str = ""
    seconds_max: float = 60
    pause_seconds: float = 1.0

    async def call(self, provider: Provider, route: str, payload: JsonObject) -> JsonValue:
        """Calls an endpoint. Raises ToolError with a message for the model, for example if the route or a parameter is
        unknown."""
        known = load_provider_endpoints(provider)
        by_path = {one.path: one for one in known.endpoints.values()}
        endpoint = known.endpoints.get(route.strip().lstrip("/")) or by_path.get(route.strip())
        if endpoint is None:
            raise ToolError(
                f"{provider} has no route {route[:100]!r}. It has: {', '.join(known.endpoints)}. Nothing was asked."
            )
        given: JsonObject = {name: value for name, value in payload.items() if value is not None}
        strangers = sorted(set(given) - set(endpoint.payload))
        if strangers:
            raise ToolError(
                f"{route} of {provider} knows no parameter {', '.join(strangers)[:300]}. It knows:"
                f" {', '.join(endpoint.payload)}. Nothing was asked."
            )
        for name, value in given.items():
            if isinstance(value, list | dict):
                raise ToolError(f"{name} is a single value, not a list or an object. Nothing was asked.")
            if isinstance(value, str) and len(value) > _VALUE_CHARACTERS_MAX:
                raise ToolError(f"{name} is longer than {_VALUE_CHARACTERS_MAX} characters. Nothing was asked.")
        query = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        request = ServiceRequest(method="GET", path=endpoint.path, query=query)
        if endpoint.method == "POST":
            request = ServiceRequest(method="POST", path=endpoint.path, body=given)
        api = ServiceApi(
            name=f"The data provider {provider}",
            url=self.url or f"https://{known.host}",
            headers={"X-RapidAPI-Key": self.key, "X-RapidAPI-Host": known.host},
            seconds_max=self.seconds_max,
            pause_seconds=self.pause_seconds,
            key_remedy="it may not be subscribed to at RapidAPI",
        )
        return await request_json(api, request)
