"""Retries model requests while the service is unavailable, and then tries the fallback models.

Does not use stamina, because stamina retries functions and cannot tell whether a stream has already started.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from core.domain.errors import ModelUnavailable
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest

log = logging.getLogger(__name__)

OnWait = Callable[[float, ModelUnavailable], Awaitable[None]]
"""A callback that runs before each wait. Its arguments are the wait in seconds and the error that caused the wait."""


async def stream_with_retries(
    llm: LLM,
    request: ModelRequest,
    *,
    fallbacks: Sequence[str] = (),
    deadline_seconds: float = 600,
    attempts_max: int = 6,
    scale_seconds: float = 1,
    wait_seconds_max: float = 60,
    on_wait: OnWait | None = None,
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the answer of the requested model, or of the first fallback that answers.

    Only ModelUnavailable is retried, and only before the first delta; a stream that fails later raises. Waits are
    random, grow exponentially from `scale_seconds`, and are at least as long as the service requests. A model is
    abandoned after `attempts_max` attempts, or if the next wait would exceed its deadline. The last model's error
    is raised. If a fallback answers, its name is in the first and the last delta.
    """
    models = [request.model, *fallbacks]
    while models:
        model = models.pop(0)
        deadline = time.monotonic() + deadline_seconds
        for attempt in range(1, attempts_max + 1):
            has_begun = False
            try:
                async with aclosing(llm.stream(replace(request, model=model))) as deltas:
                    async for delta in deltas:
                        yield _signed(delta, model, request, is_first=not has_begun)
                        has_begun = True
                return
            except ModelUnavailable as error:
                if has_begun:
                    raise
                wait = _wait_seconds(error, attempt, scale_seconds, wait_seconds_max)
                is_given_up = attempt == attempts_max or time.monotonic() + wait > deadline
                if is_given_up and not models:
                    raise
                log.warning("%s did not answer (attempt %d): %s", model, attempt, error.detail)
                if is_given_up:
                    break
                await _pause(wait, error, on_wait)


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


async def _pause(wait: float, error: ModelUnavailable, on_wait: OnWait | None) -> None:
    if on_wait is not None:
        await on_wait(wait, error)
    await asyncio.sleep(wait)
