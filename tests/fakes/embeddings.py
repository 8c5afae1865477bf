"""A fake OpenAI-compatible embeddings endpoint on this machine, with typical faults."""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

from aiohttp import web

from tests.support.web import serve_http

DIMENSIONS = 64
Fault = Literal["none", "status", "slow", "lengths", "garbage", "list", "redirect", "cut"]
ALIKE = {"feline": "cat", "cats": "cat", "kitten": "cat", "vehicle": "car", "automobile": "car"}
"""Words that the fake model treats as having the same meaning."""


@dataclass
class EmbeddingsFake:
    """The fake endpoint. Records requests, fails as configured, and refuses a wrong key or malformed request."""

    base_url: str = ""
    key: str = "sk-embeddings"
    fault: Fault = "none"
    status: int = 500
    message: str = "no"
    answers_max: int = 1_000_000
    tokens: int = 1
    seen: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    keys: list[str] = field(default_factory=list[str])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handles `POST /v1/embeddings`."""
        asked = cast(dict[str, object], await request.json())
        self.seen.append(asked)
        self.keys.append(request.headers.get("Authorization", ""))
        if self.key and self.keys[-1] != f"Bearer {self.key}":
            return _refused(401, "bad key")
        texts = cast(list[str], asked["input"])
        if len(self.seen) > self.answers_max:
            return _refused(503, "enough")
        if not isinstance(asked["input"], list) or not texts or asked["encoding_format"] != "float":
            return _refused(400, "input must be a list of texts")
        return await self._answered(texts, str(asked["model"]), request)

    async def _answered(self, texts: list[str], model: str, request: web.Request) -> web.StreamResponse:
        dimensions = DIMENSIONS // 2 if self.fault == "lengths" else DIMENSIONS
        vectors = [
            {"object": "embedding", "index": at, "embedding": vector_of(text, dimensions)}
            for at, text in enumerate(texts)
        ]
        body = {
            "object": "list",
            "model": model,
            "data": vectors[::-1],
            "usage": {"prompt_tokens": self.tokens, "total_tokens": self.tokens},
        }
        match self.fault:
            case "status":
                return _refused(self.status, self.message)
            case "slow":
                await asyncio.sleep(60)
            case "garbage":
                return web.Response(text='{"data": [{"ind', content_type="application/json")
            case "list":
                return web.json_response([body])
            case "redirect":
                raise web.HTTPFound(f"{self.base_url}/elsewhere")
            case "cut" if request.transport is not None:
                request.transport.abort()
            case _:
                pass
        return web.json_response(body)


def vector_of(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Returns a vector of word counts. Each word has its own index; words with the same meaning share one."""
    vector = [0.01] * dimensions
    for word in text.lower().split():
        stem = word.strip(".,?!:")
        vector[zlib.crc32(ALIKE.get(stem, stem).encode()) % dimensions] += 1
    return vector


@asynccontextmanager
async def embeddings_fake() -> AsyncGenerator[EmbeddingsFake, None]:
    """Context manager: serves the endpoint inside the block."""
    fake = EmbeddingsFake()
    async with serve_http(fake.answer) as url:
        fake.base_url = f"{url}/v1"
        yield fake


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
