"""A fake OpenAI-compatible endpoint that has one model, checks its key, and answers with OK."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.web_service import fake_web_service

CHUNK = (
    '{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "OK, marmalade"}}]}'
)
USAGE = '{"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 4096}}'


@dataclass
class ModelEndpoint:
    """The endpoint. `requests` are the bodies of the chat requests that it accepted. `cuts`: it reads only the last
    4,096 tokens of a request, and says so only in the usage."""

    base_url: str = ""
    key: str = "sk-model-endpoint"
    models: tuple[str, ...] = ("small", "large")
    has_tools: bool = True
    cuts: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def list_models(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        body = await request.json()
        if body["model"] not in self.models:
            return _error(404, f"The model `{body['model']}` does not exist", "model_not_found")
        if body.get("tools") and not self.has_tools:
            return _error(400, "tools are not supported", "unsupported_parameter")
        self.requests.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunks = [CHUNK.replace(", marmalade", ""), USAGE] if self.cuts else [CHUNK]
        await response.write("".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]")).encode())
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self.key or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return _error(401, "Incorrect API key provided", "invalid_api_key")


def _error(status: int, message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


@asynccontextmanager
async def model_endpoint() -> AsyncGenerator[ModelEndpoint, None]:
    """Context manager: serves the endpoint inside the block."""
    endpoint = ModelEndpoint()
    routes = [web.get("/v1/models", endpoint.list_models), web.post("/v1/chat/completions", endpoint.answer)]
    async with fake_web_service(routes) as served:
        endpoint.base_url = f"{served.url}/v1"
        yield endpoint
