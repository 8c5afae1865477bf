"""Generates and edits pictures with an image model."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import BaseModel, Field, ValidationError

from core.context.tokens import count_text
from core.domain.errors import ModelError, ModelUnavailable, ToolError
from core.domain.threads import Usage
from core.web_access.download import DownloadLimits, download
from core.web_access.guard import AddressGuard
from core.web_access.pictures import Picture

GENERATED_BYTES_MAX = 30_000_000
UNPRICED_PICTURE_USD = 0.2
"""What a picture counts against a limit in US dollars if its price is unknown: about that of the dearest models."""
_TOKENS_MAX = 100_000_000
_UNKNOWN = "The model of pictures answered in a form that is not known. Try it once more."


class ImageModel(Protocol):
    """A client for image models, implemented by `core.llm.litellm_client.LiteLLMClient`."""

    async def draw(self, model: str, prompt: str, picture: bytes | None) -> Mapping[str, object]:
        """Generates a picture, or edits the given one. Returns a response in the format of OpenAI's images API.

        The response may have an estimated `cost_usd`. Raises ModelError.
        """
        ...

    async def close(self) -> None: ...


class _Image(BaseModel):
    b64_json: str = ""
    url: str = ""


class _Answer(BaseModel):
    data: list[_Image] = Field(min_length=1)


class _Tokens(BaseModel):
    input_tokens: int = Field(default=0, ge=0, le=_TOKENS_MAX)
    output_tokens: int = Field(default=0, ge=0, le=_TOKENS_MAX)


class _Cost(BaseModel):
    cost_usd: float = Field(default=0, ge=0, allow_inf_nan=False)


@dataclass(slots=True)
class ImageGenerator:
    """Generates pictures with one image model. Remembers the cost of the last picture.

    A picture of unknown cost counts as `unpriced_usd`."""

    source: ImageModel
    model: str
    guard: AddressGuard
    unpriced_usd: float = UNPRICED_PICTURE_USD
    _last: Usage | None = None

    async def draw(self, prompt: str, picture: Picture | None = None, *, spent: Callable[[str, Usage], None]) -> bytes:
        """Returns a new picture, or the given picture edited as the prompt says. Raises ToolError with a message for
        the model.

        Calls `spent` with the model and the cost, even if the response has no usable picture. A request that timed out
        or was cancelled counts as much as the last picture, because a picture may have been generated."""
        given = picture.content if picture is not None else None
        try:
            told = await self.source.draw(self.model, prompt, given)
            self._last = self._priced(parse_usage(told))
            spent(self.model, self._last)
            answer = _Answer.model_validate(told)
        except asyncio.CancelledError:
            spent(self.model, self._likely(prompt))
            raise
        except ModelUnavailable as error:
            if error.is_late:
                spent(self.model, self._likely(prompt))
            raise ToolError(f"No picture was made. {error}") from error
        except ModelError as error:
            raise ToolError(f"No picture was made. {error} Go on without it.") from error
        except ValidationError as error:
            raise ToolError(_UNKNOWN) from error
        image = answer.data[0]
        if image.b64_json and len(image.b64_json) <= GENERATED_BYTES_MAX * 4 // 3 + 4:
            try:
                return base64.b64decode(image.b64_json, validate=True)
            except ValueError as error:
                raise ToolError(_UNKNOWN) from error
        if image.url:
            limits = DownloadLimits(bytes_max=GENERATED_BYTES_MAX, seconds_max=60)
            return (await download(image.url, self.guard, limits=limits)).content
        raise ToolError(_UNKNOWN)

    def _likely(self, prompt: str) -> Usage:
        """Returns the estimated usage of a request without a response: that of the last picture, if there is one."""
        return self._last or self._priced(Usage(input_tokens=count_text(prompt)))

    def _priced(self, usage: Usage) -> Usage:
        if usage.cost_usd:
            return usage
        return replace(usage, cost_usd=self.unpriced_usd, estimated_usd=self.unpriced_usd)

    async def close(self) -> None:
        await self.source.close()


def parse_usage(answer: Mapping[str, object]) -> Usage:
    """Returns the usage stated in the response. Invalid figures count as missing."""
    tokens, cost = _Tokens(), _Cost()
    with suppress(ValidationError):
        tokens = _Tokens.model_validate(answer.get("usage") or {})
    with suppress(ValidationError):
        cost = _Cost.model_validate(answer)
    return Usage(
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cost_usd=cost.cost_usd,
        estimated_usd=cost.cost_usd,
    )
