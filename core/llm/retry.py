"""Retries model requests while the service is unavailable, and then tries the fallback models.

Does not use stamina, because stamina retries functions and cannot tell whether a stream has already started."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from core.domain.errors import ModelUnavailable
from core.llm import error_mapping
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest, ModelRetried

log = logging.getLogger(__name__)

FALLBACK_PERCENT = 30
"""While there are fallback models, a model has this share of the time: 90 s of five minutes."""


async def stream_with_retries(
    llm: LLM,
    request: ModelRequest,
    *,
    fallbacks: Sequence[str] = (),
    first_seconds: float = 60,
    deadline_seconds: float = 300,
    attempts_max: int = 6,
    scale_seconds: float = 1,
    wait_seconds_max: float = 60,
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the answer of the requested model, or of the first fallback that answers, and a delta before each retry.

    Only ModelUnavailable is retried, and only before the first delta; a stream that fails later raises. An attempt
    fails if its first delta takes longer than `first_seconds`, unless the answer is not streamed. Waits are random,
    grow exponentially from `scale_seconds`, and are at least as long as the service requests. All attempts end within
    `deadline_seconds`. A model is abandoned after `attempts_max` attempts, or if there are fallbacks and it has used
    FALLBACK_PERCENT of that time. The last model's error is raised. If a fallback answers, its name is in the first and
    the last delta."""
    models = [request.model, *fallbacks]
    start = time.monotonic()
    end = start + deadline_seconds
    while models:
        model = models.pop(0)
        now = time.monotonic()
        deadline = min(end, now + deadline_seconds * FALLBACK_PERCENT / 100) if models else end
        for attempt in range(1, attempts_max + 1):
            has_begun = False
            patience = first_seconds if request.is_streamed else deadline_seconds
            until = min(deadline, time.monotonic() + patience)
            try:
                async with aclosing(llm.stream(replace(request, model=model))) as deltas:
                    delta = await _first(deltas, until)
                    yield _signed(delta, model, request, is_first=True)
                    has_begun = True
                    async for delta in deltas:
                        yield _signed(delta, model, request, is_first=False)
                return
            except ModelUnavailable as error:
                if has_begun:
                    raise
                wait = _wait_seconds(error, attempt, scale_seconds, wait_seconds_max)
                is_given_up = attempt == attempts_max or time.monotonic() + wait > deadline
                if is_given_up and not models:
                    raise
                log.warning("%s did not answer (attempt %d): %s", model, attempt, error.detail)
                waited = time.monotonic() - start
                if is_given_up:
                    yield ModelRetried(
                        text=f"{model} does not answer after {waited:.0f} s: trying {models[0]}"
                    )
                    break
                yield ModelRetried(text=_retry_text(error, attempt + 1, attempts_max, waited))
                await asyncio.sleep(wait)


async def _first(deltas: AsyncGenerator[ModelDelta, None], until: float) -> ModelDelta:
    """Returns the first delta. Raises ModelUnavailable if it does not arrive in time."""
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            return await anext(deltas)
    except (TimeoutError, StopAsyncIteration) as error:
        late = "no part of an answer in time"
        raise ModelUnavailable(error_mapping.TIMED_OUT, detail=late, is_late=True) from error


def _retry_text(error: ModelUnavailable, attempt: int, attempts_max: int, waited: float) -> str:
    fault = "is slow" if error.is_late else "does not answer"
    return f"The model {fault}: attempt {attempt} of {attempts_max}, {waited:.0f} s"


def _signed(delta: ModelDelta, model: str, request: ModelRequest, *, is_first: bool) -> ModelDelta:
    if model != request.model and (is_first or isinstance(delta, ModelFinished)):
        return replace(delta, model=model)
    return delta


def _wait_seconds(
    error: ModelUnavailable, attempt: int, scale_seconds: float, wait_seconds_max: float
) -> float:
    ceiling = min(wait_seconds_max, scale_seconds * 2**attempt)
    wait = random.uniform(min(scale_seconds, ceiling), ceiling)
    return max(wait, error.retry_after_seconds or 0)
