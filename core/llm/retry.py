"""Retries model requests while the service is unavailable, and tries the fallback models after that or a refusal.

Does not use stamina, because stamina retries functions and cannot tell whether a stream has already started."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from core.domain.errors import AnswerRejected, ContextOverflow, ModelError, ModelRejected, ModelUnavailable
from core.llm import error_mapping
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest, ModelRetried
from core.tasks import backoff_seconds

log = logging.getLogger(__name__)
Adapt = Callable[[ModelRequest, ModelRejected], str]
Fit = Callable[[ModelRequest], ModelRequest]

FALLBACK_PERCENT = 30
"""If there are fallback models, a model that sends nothing is abandoned after this share of the time: 90 s of five
minutes. A model that has begun its answer has all of the time except this share."""
WAIT_SECONDS_MAX = 60.0
BREAKS_MAX = 3
"""A model is abandoned after this many interrupted answers, or after one fewer if there is a fallback."""


async def stream_with_retries(
    llm: LLM,
    request: ModelRequest,
    *,
    fallbacks: Sequence[str] = (),
    first_seconds: float = 60,
    fallback_seconds: float = 110,
    deadline_seconds: float = 300,
    attempts_max: int = 6,
    scale_seconds: float = 1,
    change_after_refusal: Adapt = lambda _request, _error: "",
    fit: Fit = lambda request: request,
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the answer of the requested model, or of the first fallback that answers, and a delta before each retry.

    Only ModelUnavailable is retried. An attempt fails if no part of its response arrives within `first_seconds`, unless
    the answer is not streamed, or if the answer breaks off. Waits are random, grow exponentially from `scale_seconds`,
    and are at least as long as the service requests. All attempts share `deadline_seconds`, from which the time in
    which an answer streams is not taken. A model is abandoned after `attempts_max` attempts or BREAKS_MAX broken
    answers, or if there are fallbacks and it has used FALLBACK_PERCENT of the time, or `fallback_seconds` without
    the first delta, whatever signs of life it shows. Each model is sent what `fit` returns, and a fallback only the
    tool choice of the options. If a model refuses it, `change_after_refusal` names what
    the client will change in requests to this model, and the request is sent again, once for each name. Without a
    name, the model is abandoned at once, unless the model itself wrote what was refused, or the request is too long
    and can be shortened. The name of a fallback is in its first and its last delta. If no model answers, the error
    that the caller can do most about is raised."""
    models = list(dict.fromkeys((request.model, *fallbacks)))
    errors: list[ModelError] = []
    patience = _Patience(request, first_seconds, fallback_seconds, deadline_seconds)
    while models:
        model = models.pop(0)
        patience.start_model(has_fallback=bool(models))
        attempt = 1
        while True:
            sent = replace(request, model=model, on_received=patience.received)
            if model != request.model and request.options is not None:
                sent = replace(sent, options=request.options.for_another_model())
            try:
                sent = fit(sent)
                with patience.attempt():
                    async with aclosing(llm.stream(sent)) as deltas:
                        while (delta := await patience.next(deltas)) is not None:
                            is_signed = patience.deltas == 1 or isinstance(delta, ModelFinished)
                            yield replace(delta, model=model) if is_signed and model != request.model else delta
                return
            except AnswerRejected:
                raise
            except (ModelRejected, ContextOverflow) as error:
                if patience.allows_resend(error, sent, change_after_refusal):
                    continue
                is_too_long = isinstance(error, ContextOverflow) and not patience.deltas
                if is_too_long and request.can_be_shortened and model == request.model:
                    raise
                errors.append(error)
                if not models or patience.is_over:
                    raise _most_useful(errors) from None
                log.warning("%s refuses the request: %s", model, error.detail or error)
                yield ModelRetried(text=f"{model} refuses the request: trying {models[0]}")
                break
            except ModelUnavailable as error:
                errors.append(error)
                ceiling = backoff_seconds(attempt, first=2 * scale_seconds, most=WAIT_SECONDS_MAX)
                wait = random.uniform(min(scale_seconds, ceiling), ceiling)
                wait = max(wait, error.retry_after_seconds or 0)
                is_given_up = attempt == attempts_max or not patience.allows_retry(wait)
                if is_given_up and (not models or patience.is_over):
                    raise _most_useful(errors) from None
                fault = patience.fault(error)
                log.warning("%s %s (attempt %d): %s", model, fault, attempt, error.detail)
                waited = f"{patience.waited_seconds:.0f} s"
                if is_given_up:
                    end = fault if patience.deltas else f"does not answer after {waited}"
                    yield ModelRetried(text=f"{model} {end}: trying {models[0]}")
                    break
                counted = f"attempt {attempt + 1} of {attempts_max}"
                yield ModelRetried(text=f"The model {fault}: {counted}, {waited}")
                await asyncio.sleep(wait)
                attempt += 1


class _Patience:
    """Limits how long the deltas of one answer may take, over all its attempts.

    A model that is silent fails after `first_seconds` or at its deadline. Once any part of its response has arrived,
    the model counts as working on the answer. It then has until a later deadline to begin the answer, and until a third
    one to continue it. The client itself ends a stream that falls silent for long.

    Times are those of the event loop. One timer serves all deltas of an attempt, because `asyncio.timeout` for each
    delta would double what a streamed answer costs."""

    def __init__(
        self, request: ModelRequest, first_seconds: float, fallback_seconds: float, deadline_seconds: float
    ) -> None:
        self._request = request
        self._first_seconds = first_seconds
        self._fallback_seconds = fallback_seconds
        self._deadline_seconds = deadline_seconds
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._streamed_seconds = 0.0
        self._silent_until = self._begin_until = self._alive_until = deadline_seconds
        self._breaks_left = 0
        self._pause_seconds = 0.0
        self._last = 0.0
        self._until = 0.0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False
        self._changes = set[str]()
        self.deltas = 0

    @property
    def waited_seconds(self) -> float:
        """The seconds since the start, except those in which an answer streamed."""
        return self._loop.time() - self._start - self._streamed_seconds

    @property
    def is_over(self) -> bool:
        return self.waited_seconds >= self._deadline_seconds

    def start_model(self, *, has_fallback: bool) -> None:
        self._changes.clear()
        self._silent_until = self._begin_until = self._alive_until = self._deadline_seconds
        self._breaks_left = BREAKS_MAX
        if has_fallback:
            share = self._deadline_seconds * FALLBACK_PERCENT / 100
            begin = self.waited_seconds + self._fallback_seconds
            self._silent_until = min(self._deadline_seconds, self.waited_seconds + share, begin)
            self._alive_until = max(self._silent_until, self._deadline_seconds - share)
            self._begin_until = min(self._alive_until, begin)
            self._breaks_left -= 1

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Context manager: inside the block, `next` returns the deltas of one attempt."""
        self.deltas = 0
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def received(self) -> None:
        """Records that a part of the response has arrived, perhaps without content."""
        if not self.deltas:
            self._until = self._loop.time() + self._begin_until - self.waited_seconds
        self._request.on_received()

    async def next(self, deltas: AsyncGenerator[ModelDelta, None]) -> ModelDelta | None:
        """Returns the next delta, or None at the end of the answer. Raises ModelUnavailable if it takes too long."""
        wait = self._pause_seconds
        if not self.deltas:
            left = self._silent_until - self.waited_seconds
            wait = min(self._first_seconds, left) if self._request.is_streamed else left
        task = asyncio.current_task()
        if wait <= 0 or task is None:
            raise _late()
        cancelled_before = task.cancelling()
        self._task, self._until, self._is_late = task, self._loop.time() + wait, False
        if self._timer is None:
            self._check()
        try:
            delta = await anext(deltas, None)
        except asyncio.CancelledError as error:
            if self._is_late and task.cancelling() == cancelled_before + 1:
                raise _late() from error
            raise
        finally:
            self._task = None
            if self._is_late:
                task.uncancel()
        now = self._loop.time()
        if self.deltas:
            self._streamed_seconds += now - self._last
        elif delta is None:
            raise _late()
        else:
            # an answer that begins late may pause, too
            self._pause_seconds = max(self._alive_until - self.waited_seconds, self._first_seconds)
        self._last = now
        self.deltas += 1
        return delta

    def _check(self) -> None:
        """Cancels the wait if the next delta is late. Otherwise schedules the next check for the time when it would be
        late."""
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._check)
        else:
            self._is_late = True
            self._task.cancel()

    def allows_retry(self, wait_seconds: float) -> bool:
        """Whether the model may be asked again after the wait. Called once after each failed attempt."""
        if self.deltas:
            self._breaks_left -= 1
        in_time = self.waited_seconds + wait_seconds <= self._silent_until
        return in_time and self._breaks_left > 0

    def allows_resend(self, error: ModelError, sent: ModelRequest, adapt: Adapt) -> bool:
        """Whether the client will change the refused request, so that it is worth sending again."""
        if self.deltas or not isinstance(error, ModelRejected):
            return False
        change = adapt(sent, error)
        is_new = bool(change) and change not in self._changes
        self._changes.add(change)
        return is_new

    def fault(self, error: ModelUnavailable) -> str:
        if self.deltas:
            return "stopped answering in the middle"
        return "is slow" if error.is_late else "does not answer"


def _late() -> ModelUnavailable:
    late = "no part of an answer in time"
    return ModelUnavailable(error_mapping.TIMED_OUT, detail=late, is_late=True)


def _most_useful(errors: Sequence[ModelError]) -> ModelError:
    """Returns an overflow, which a shorter request can cure, else the first refusal, else the last error."""
    curable = (one for kind in (ContextOverflow, ModelRejected) for one in errors if isinstance(one, kind))
    return next(curable, errors[-1])
