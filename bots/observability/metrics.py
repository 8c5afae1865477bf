"""Prometheus metrics. Label values come from fixed sets and never contain IDs or user-supplied names."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from core.domain.errors import ThreadhandError
from core.domain.threads import Usage
from core.observability import Backlog, SandboxOccupancy, Step, Timing

OTHER = "other"
LAG_SECONDS = 3.0
_SHORT = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800, 3600)
_LAGS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATUSES = frozenset(HTTPStatus)
"""The statuses that have their own label value. A program behind an exposed port may answer with any other number."""
_STEPS: dict[Step, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "run": ("attempts at runs, by how each ended", ("state", "result"), _LONG),
    "turn": ("turns", ("result",), _LONG),
    "model": ("single calls of a model", ("model", "result"), _LONG),
    "tool": ("tool calls", ("tool", "outcome", "result"), _SHORT),
    "sandbox": ("a run's first use of its sandbox, found or started", ("result",), _SHORT),
    "delivery": ("what is posted, edited and uploaded", ("platform", "action", "result"), _SHORT),
}


# without this call, the library adds a second time series with the creation time for each metric
disable_created_metrics()


class Metrics:
    """All Prometheus metrics of this process. Implements `RunMetrics`.

    `models` and `tools` are the names allowed as label values. Other names are counted as `other`."""

    def __init__(self, *, models: Iterable[str] = (), tools: Iterable[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._known = {"model": frozenset(models), "tool": frozenset(tools)}
        self._labels = {step: labels for step, (_, labels, _) in _STEPS.items()}
        self._steps = {
            step: self._times(f"{step}_seconds", f"Time of {what}.", labels, buckets)
            for step, (what, labels, buckets) in _STEPS.items()
        }
        first = "Time to the first sign of a model's answer."
        self._first = self._times("model_first_token_seconds", first, ("model",), _SHORT)
        calls = "Calls to Slack and Discord, each attempt."
        self._calls = self._times("platform_call_seconds", calls, ("platform",), _SHORT)
        turns = "Waits for the budget of calls, where a call had to wait."
        self._turns = self._times("rate_wait_seconds", turns, ("platform", "call"), _SHORT)
        self._lag = self._times("loop_lag_seconds", "How late the event loop is.", (), _LAGS)
        self._tokens = self._counts("tokens", "Tokens used.", "model", "kind")
        cost = "Cost of model calls, told by the provider or reckoned from prices."
        self._cost = self._counts("cost_usd", cost, "model", "kind")
        requests = "Answers of the HTTP server."
        self._requests = self._counts("http_requests", requests, "method", "route", "status")
        answers = "Answers of Slack and Discord: 429 is a rate limit, 0 no answer."
        self._answers = self._counts("platform_answers", answers, "platform", "method", "status")
        streams = "Event streams that are open."
        self.streams = Gauge("threadhand_streams_open", streams, registry=registry)
        under_way = "Steps that run just now."
        self._under_way = Gauge("threadhand_under_way", under_way, ["step"], registry=registry)
        self._backlog = _BacklogGauges(registry)
        sandboxes = "Sandboxes of this process: running, the most that may run, and threads that wait."
        self._sandboxes = Gauge("threadhand_sandboxes", sandboxes, ["state"], registry=registry)

    def _times(self, name: str, what: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"threadhand_{name}", what, labels, buckets=buckets, registry=self.registry)

    def _counts(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"threadhand_{name}", what, labels, registry=self.registry)

    @contextmanager
    def time_step(self, step: Step, **labels: str) -> Generator[Timing]:
        timing, result, start = Timing(labels), "ok", time.monotonic()
        under_way = self._under_way.labels(step)
        under_way.inc()
        try:
            yield timing
        except BaseException as error:
            result = error_label(error)
            raise
        finally:
            under_way.dec()
            given = {**timing.labels, "result": result}
            shown = [self._bounded(label, given.get(label, "none")) for label in self._labels[step]]
            self._steps[step].labels(*shown).observe(time.monotonic() - start)
            if timing.first_seconds is not None:
                model = self._bounded("model", given.get("model", ""))
                self._first.labels(model).observe(timing.first_seconds)

    def count_usage(self, model: str, usage: Usage) -> None:
        name = self._bounded("model", model)
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        self._tokens.labels(name, "input").inc(fresh)
        self._tokens.labels(name, "cached").inc(max(0, usage.cached_tokens))
        self._tokens.labels(name, "output").inc(max(0, usage.output_tokens))
        told = usage.cost_usd - usage.estimated_usd
        self._cost.labels(name, "told").inc(max(0.0, told))
        self._cost.labels(name, "estimated").inc(max(0.0, usage.estimated_usd))

    def count_response(self, method: str, route: str, status: int) -> None:
        """Records a response of the HTTP server. `route` is the URL pattern, not the actual path."""
        shown = method if method in _METHODS else OTHER
        self._requests.labels(shown, route, str(status) if status in _STATUSES else OTHER).inc()

    def observe_platform_call(self, platform: str, method: str, status: int, seconds: float) -> None:
        """Records a call to a chat platform. Status 0 means no response. `method` must not contain IDs."""
        self._answers.labels(platform, method, str(status)).inc()
        self._calls.labels(platform).observe(seconds)

    def observe_rate_wait(self, platform: str, call: str, seconds: float) -> None:
        """Records how long the rate limiter delayed a call. `call` is the name of the rate limit."""
        self._turns.labels(platform, call).observe(seconds)

    def observe_sandboxes(self, occupancy: Callable[[], SandboxOccupancy]) -> None:
        """Reads the numbers of sandboxes at each request for metrics."""
        self._sandboxes.labels("running").set_function(lambda: occupancy().running)
        self._sandboxes.labels("most").set_function(lambda: occupancy().most)
        self._sandboxes.labels("waiting").set_function(lambda: occupancy().waiting)

    async def measure_loop_lag(self) -> None:
        """Measures the delay of the event loop until cancelled."""
        while True:
            start = time.monotonic()
            await asyncio.sleep(LAG_SECONDS)
            self._lag.observe(max(0.0, time.monotonic() - start - LAG_SECONDS))

    def render_text(self, backlog: Backlog | None) -> bytes:
        """Returns all metrics in the Prometheus text format.

        `backlog` is None if the database is unavailable. The gauges that are read from the database then become NaN."""
        self._backlog.show(backlog)
        return generate_latest(self.registry)

    def _bounded(self, label: str, value: str) -> str:
        known = self._known.get(label)
        return value if known is None or value in known else OTHER


def error_label(error: BaseException) -> str:
    """Returns the metric label for an exception.

    This is the class name for Threadhand's own errors, `cancelled` for a cancelled task, `left` for a generator that
    the consumer closed early, and `broken` for other exceptions."""
    if isinstance(error, ThreadhandError):
        return type(error).__name__
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "left" if isinstance(error, GeneratorExit) else "broken"


class _BacklogGauges:
    """Gauges with values that are read from the database at each request for metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, what: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"threadhand_{name}", what, labels, registry=registry)

        self._up = gauge("database_up", "Whether the database answered this request.")
        self._runs = gauge("runs", "Runs that are not over, in the whole database.", ("status",))
        self._oldest = gauge("oldest_queued_seconds", "Longest wait of a queued run, since it was queued last.")
        self._alive = gauge("processes_alive", "Processes whose heart beat in the last 4 s.")
        self._heartbeat = gauge("oldest_heartbeat_seconds", "Age of the oldest of their beats.")
        self._open = gauge("open_deliveries", "Runs with something left to show.")

    def show(self, backlog: Backlog | None) -> None:
        unknown = float("nan")
        self._up.set(backlog is not None)
        for status in ("queued", "running", "waiting"):
            self._runs.labels(status).set(backlog.runs.get(status, 0) if backlog else unknown)
        self._oldest.set(backlog.oldest_queued_seconds if backlog else unknown)
        self._alive.set(backlog.processes_alive if backlog else unknown)
        self._heartbeat.set(backlog.oldest_heartbeat_seconds if backlog else unknown)
        self._open.set(backlog.open_deliveries if backlog else unknown)
