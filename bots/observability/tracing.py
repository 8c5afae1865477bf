"""OpenTelemetry traces of runs. The SDK is an optional dependency and is imported only if an endpoint is set."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from bots.observability.metrics import error_label
from core.domain.errors import ConfigurationError
from core.domain.threads import Usage
from core.observability import RunMetrics, Step, Timing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

NO_EXTRA = (
    "Traces are wanted (THREADHAND_OTEL_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT is set), but what sends them is not"
    " installed: pip install 'threadhand[otel]', or take the setting away."
)
CLOSE_MILLISECONDS = 5_000
_OPERATIONS: dict[Step, str] = {"run": "invoke_agent", "model": "chat", "tool": "execute_tool"}
_ATTRIBUTES = {"model": "gen_ai.request.model", "tool": "gen_ai.tool.name", "thread_id": "gen_ai.conversation.id"}
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""The names of providers in the conventions, if litellm calls them otherwise."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_tracing(endpoint: str, metrics: RunMetrics) -> AsyncGenerator["RunTracing"]:
    """Context manager: inside the block, measurements go to `metrics`, and as spans to `endpoint`, for example
    `http://host:4318`.

    Raises ConfigurationError if the optional dependency `threadhand[otel]` is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(NO_EXTRA) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "threadhand"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    try:
        yield RunTracing(provider, metrics)
    finally:
        await asyncio.to_thread(provider.force_flush, CLOSE_MILLISECONDS)
        await asyncio.to_thread(provider.shutdown)


class RunTracing:
    """Adds spans to `metrics`. Each step is a child span of the enclosing step.

    Names and attributes follow OpenTelemetry's conventions for generative AI
    (https://opentelemetry.io/docs/specs/semconv/gen-ai/), others begin with `threadhand.`. They contain IDs and fixed
    labels, but no text from users or the model."""

    def __init__(self, provider: "TracerProvider", metrics: RunMetrics) -> None:
        self._tracer: Tracer = provider.get_tracer("threadhand")
        self._metrics = metrics

    @contextmanager
    def time_step(self, step: Step, **labels: str) -> Generator[Timing]:
        from opentelemetry.trace import SpanKind, StatusCode, use_span

        kind = SpanKind.CLIENT if step == "model" else SpanKind.INTERNAL
        subject = labels.get("model") or labels.get("tool") or ("threadhand" if step == "run" else "")
        span = self._tracer.start_span(f"{_OPERATIONS.get(step, step)} {subject}".strip(), kind=kind)
        # a model call is a generator: other work runs between its chunks and must not become its child spans
        own = (
            use_span(span, record_exception=False, set_status_on_exception=False) if step != "model" else nullcontext()
        )
        with self._metrics.time_step(step, **labels) as timing:
            try:
                with own:
                    yield timing
            except BaseException as error:
                # record only the label of the error, because its message may quote users
                span.set_status(StatusCode.ERROR, error_label(error))
                span.set_attribute("error.type", error_label(error))
                raise
            finally:
                found: dict[str, str | int | float] = {
                    _ATTRIBUTES.get(name, f"threadhand.{name}"): value for name, value in timing.labels.items()
                }
                if step in _OPERATIONS:
                    found["gen_ai.operation.name"] = _OPERATIONS[step]
                if step == "model":
                    name, slash, _ = timing.labels.get("model", "").partition("/")
                    found["gen_ai.provider.name"] = _PROVIDERS.get(name, name) if slash else "unknown"
                if (usage := timing.usage) is not None:
                    found["gen_ai.usage.input_tokens"] = usage.input_tokens
                    found["gen_ai.usage.output_tokens"] = usage.output_tokens
                    found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
                if timing.first_seconds is not None:
                    found["threadhand.first_token_seconds"] = timing.first_seconds
                span.set_attributes(found)
                span.end()

    def count_usage(self, model: str, usage: Usage) -> None:
        self._metrics.count_usage(model, usage)
