"""A direct client for the embeddings of OpenAI-compatible endpoints, over one shared session."""

from collections.abc import Sequence
from typing import cast

import aiohttp
import jiter

from core.domain.errors import ModelUnavailable
from core.failpoints import Failpoint
from core.llm import errors
from core.llm.errors import error_of, retry_after
from core.llm.openai_chunks import read_refusal, to_json

BODY_BYTES_MAX = 64 * 1024 * 1024
EMBED = Failpoint("llm.openai.embed")


class OpenAIEmbeddings:
    """`core.llm.embeddings.EmbeddingSource` for one endpoint. State: the session, made at the first call.

    `base_url` ends before `/embeddings`. `model_prefix` is taken off the names of models. Redirects are refused, since
    the key would go with them.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        model_prefix: str = "",
        connect_seconds: float = 10,
        deadline_seconds: float = 120,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._api_key = api_key.strip()
        self._model_prefix = model_prefix
        self._timeout = aiohttp.ClientTimeout(total=deadline_seconds, sock_connect=connect_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def embed(self, model: str, texts: Sequence[str]) -> dict[str, object]:
        """The provider's answer. Raises ModelError."""
        asked = {
            "model": model.removeprefix(self._model_prefix),
            "input": list(texts),
            "encoding_format": "float",
        }
        try:
            with EMBED:
                status, headers, content = await self._posted(to_json(asked))
        except TimeoutError as error:
            late = "no answer in time"
            raise ModelUnavailable(errors.TIMED_OUT, detail=late, is_late=True) from error
        except (OSError, aiohttp.ClientError) as error:
            facts = f"{type(error).__name__}: {error}"[: errors.DETAIL_CHARACTERS_MAX]
            raise ModelUnavailable(errors.UNREACHABLE, detail=self._without_key(facts)) from error
        body = _parsed(content)
        if status != 200:
            refusal = read_refusal(
                body if body is not None else content.decode("utf-8", "replace"),
                status=status,
                retry_after_seconds=retry_after(headers),
            )
            refused = error_of(refusal)
            refused.detail = self._without_key(refused.detail)
            raise refused
        if not isinstance(body, dict):
            raise ModelUnavailable(errors.UNREADABLE, detail="not a JSON object")
        return cast(dict[str, object], body)

    async def _posted(self, content: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        async with self._open().post(
            self._url, data=content, headers=headers, allow_redirects=False
        ) as response:
            pieces, size = list[bytes](), 0
            async for piece in response.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                if size > BODY_BYTES_MAX:
                    raise ModelUnavailable(errors.UNREADABLE, detail="the answer is too large")
            told = {name.lower(): text for name, text in response.headers.items()}
            return response.status, told, b"".join(pieces)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _without_key(self, detail: str) -> str:
        return detail.replace(self._api_key, "[key]") if self._api_key else detail


def _parsed(content: bytes) -> object:
    """None for what is no JSON."""
    try:
        return cast(object, jiter.from_json(content))
    except ValueError:
        return None
