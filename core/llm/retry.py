"""Asking a model again when its service could not answer, and then the fallback models.

An own generator: stamina retries functions, and cannot see whether a stream has begun.
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
"""Told before each wait: its seconds, and the error that made it necessary."""


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
    """The answer of the request's model, or of the first fallback that gives one, whose first and last delta name it.

    Only ModelUnavailable is retried, and only while nothing was passed on: a stream that dies in the middle raises.
    Waits are random, grow exponentially from `scale_seconds`, and are no shorter than the service asks for. A model is
    given up after `attempts_max`, or when the next wait would end after its deadline; then the error is raised.
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
