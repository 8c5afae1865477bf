"""Figures and traces: bounded labels, honest results, spans below each other, and no words of people."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from yarl import URL

from bots.bootstrap.observability import InstrumentedModel, build_http_trace, platform_call_label
from bots.observability.metrics import Metrics
from bots.observability.tracing import RunTracing, open_tracing
from bots.settings import load_settings
from bots.web.app import monitoring_app, serve_app
from bots.web.health import MonitoringDeps
from core.domain.errors import ConfigurationError, ModelUnavailable, ToolError
from core.domain.threads import Usage
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta
from tests.support.web import serve_http

REQUEST = ModelRequest(model="m", messages=())


class Model:
    """Says one word, then ends or breaks off."""

    def __init__(self, *, breaks: bool = False) -> None:
        self._breaks = breaks

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        yield TextDelta(text="hello")
        if self._breaks:
            raise ModelUnavailable("away")
        yield ModelFinished(finish_reason="stop")


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"threadhand_{name}", labels)


async def test_names_from_outside_make_no_series_of_their_own() -> None:
    metrics = Metrics(models=["m"], tools=["ask"])
    for tool in ("ask", "mcp_1", "mcp_2"):
        with metrics.time_step("tool", tool=tool) as timing:
            timing.labels["outcome"] = "completed"
    metrics.count_usage("somebody's", Usage(input_tokens=5, cached_tokens=2, output_tokens=1))
    labels = {"outcome": "completed", "result": "ok"}
    assert sample(metrics, "tool_seconds_count", tool="ask", **labels) == 1
    assert sample(metrics, "tool_seconds_count", tool="other", **labels) == 2
    assert sample(metrics, "tokens_total", model="other", kind="input") == 3
    metrics.count_response("BREW", "none", 404)
    assert sample(metrics, "http_requests_total", method="other", route="none", status="404") == 1


@pytest.mark.parametrize(
    ("platform", "path", "shown"),
    [
        ("slack", "/api/chat.postMessage", "chat.postMessage"),
        ("slack", "/upload/v1/ABC123", "other"),
        ("slack", "/api/../../x", "other"),
        ("discord", "/api/v10/channels/123/messages/456", "POST /channels/*/messages/*"),
        ("discord", "/api/v10/webhooks/12/aWF0tokenQ/messages/@original", "POST /webhooks/*/*/messages/@original"),
        (
            "discord",
            "/api/v10/channels/1/messages/2/reactions/%F0%9F%91%80/@me",
            "POST /channels/*/messages/*/reactions/*/@me",
        ),
        ("discord", "/attachments/1/2/a.png", "other"),
    ],
)
def test_a_call_is_counted_by_its_pattern(platform: str, path: str, shown: str) -> None:
    assert platform_call_label(platform, "POST", URL(f"http://x{path}")) == shown


async def test_every_attempt_at_a_platform_is_counted_and_lost_ones_as_0() -> None:
    statuses = iter((429, 200))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=next(statuses))

    metrics = Metrics()
    trace = build_http_trace("slack", metrics.observe_platform_call)
    async with aiohttp.ClientSession(trace_configs=[trace]) as http:
        async with serve_http(answer) as origin:
            url = f"{origin}/api/chat.update"
            for _ in range(2):
                (await http.post(url)).release()
        with pytest.raises(aiohttp.ClientError):
            await http.post(url)
    for status in ("429", "200", "0"):
        labels = {"platform": "slack", "method": "chat.update", "status": status}
        assert sample(metrics, "platform_answers_total", **labels) == 1, status


async def test_a_workers_figures_need_the_token_and_its_address_too() -> None:
    app = monitoring_app(MonitoringDeps(), "token-of-the-api")
    async with (
        serve_app(app, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        async with http.get("/metrics") as response:
            assert response.status == 401
        async with http.get("/metrics", headers={"Authorization": "Bearer token-of-the-api"}) as response:
            assert response.status == 200
        with pytest.raises(ConfigurationError, match="THREADHAND_WORKER_HTTP_PORT"):
            async with serve_app(
                monitoring_app(MonitoringDeps(), ""), host="127.0.0.1", port=port, setting="THREADHAND_WORKER_HTTP_PORT"
            ):
                pass
    with pytest.raises(ConfigurationError, match="THREADHAND_API_TOKEN"):
        async with serve_app(monitoring_app(MonitoringDeps(), ""), host="0.0.0.0", port=0):  # noqa: S104
            pass


async def test_what_a_call_cost_is_told_or_estimated() -> None:
    metrics = Metrics(models=["m"])
    metrics.count_usage("m", Usage(cost_usd=0.5, estimated_usd=0.2))
    assert sample(metrics, "cost_usd_total", model="m", kind="told") == pytest.approx(0.3)
    assert sample(metrics, "cost_usd_total", model="m", kind="estimated") == pytest.approx(0.2)


async def test_a_model_call_ends_well_or_by_the_kind_of_its_error() -> None:
    metrics = Metrics(models=["m"])
    deltas = [delta async for delta in InstrumentedModel(Model(), metrics).stream(REQUEST)]
    assert [type(delta) for delta in deltas] == [TextDelta, ModelFinished]
    with pytest.raises(ModelUnavailable):
        async for _ in InstrumentedModel(Model(breaks=True), metrics).stream(REQUEST):
            pass
    left = InstrumentedModel(Model(), metrics).stream(REQUEST)
    await anext(left)
    await left.aclose()
    for result in ("ok", "ModelUnavailable", "left"):
        assert sample(metrics, "model_seconds_count", model="m", result=result) == 1, result
    assert sample(metrics, "model_first_token_seconds_count", model="m") == 3
    assert sample(metrics, "under_way", step="model") == 0


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(kept: InMemorySpanExporter) -> RunTracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return RunTracing(provider, Metrics())


async def test_the_steps_of_a_run_lie_below_it(tracing: RunTracing, kept: InMemorySpanExporter) -> None:
    with tracing.time_step("run", run_id="r-1", thread_id="t-1") as run:
        with tracing.time_step("turn"), tracing.time_step("model", model="gemini/m") as model:
            model.first_seconds = 0.25
            model.usage = Usage(input_tokens=100, cached_tokens=90, output_tokens=5)
            with tracing.time_step("tool", tool="ask"):
                pass
        run.labels["state"] = "completed"
    spans = {span.name: span for span in kept.get_finished_spans()}
    parents = {name: span.parent and span.parent.span_id for name, span in spans.items()}
    of = {name: span.get_span_context().span_id for name, span in spans.items()}
    run_span, turn = "invoke_agent threadhand", of["turn"]
    assert parents == {run_span: None, "turn": of[run_span], "chat gemini/m": turn, "execute_tool ask": turn}
    assert dict(spans[run_span].attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "t-1",
        "threadhand.run_id": "r-1",
        "threadhand.state": "completed",
    }
    assert dict(spans["chat gemini/m"].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini/m",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 90,
        "threadhand.first_token_seconds": 0.25,
    }
    assert dict(spans["execute_tool ask"].attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ask",
    }
    assert {name: span.kind for name, span in spans.items() if span.kind != SpanKind.INTERNAL} == {
        "chat gemini/m": SpanKind.CLIENT
    }


async def test_a_failed_step_tells_its_kind_and_not_what_was_said(
    tracing: RunTracing, kept: InMemorySpanExporter
) -> None:
    with pytest.raises(ToolError), tracing.time_step("tool", tool="ask"):
        raise ToolError("what somebody wrote")
    (span,) = kept.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == (span.attributes or {})["error.type"] == "ToolError"
    assert "what somebody wrote" not in span.to_json()


@pytest.fixture
async def collector() -> AsyncGenerator[tuple[str, list[str]]]:
    """A collector's address, and the names of the spans that it was sent."""
    names: list[str] = []

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        sent = ExportTraceServiceRequest.FromString(body)
        names.extend(span.name for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans)
        return web.Response(content_type="application/x-protobuf")

    async with serve_http(take) as url:
        yield url, names


async def test_spans_reach_a_collector_before_the_program_ends(
    collector: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    address, names = collector
    async with open_tracing(f"{address}/", Metrics()) as figures:
        with figures.time_step("run", run_id="r-1"):
            pass
    assert names == ["invoke_agent threadhand"]


def test_the_endpoint_of_traces_is_read_under_both_names(tmp_path: Path) -> None:
    plain = {"THREADHAND_DATA_DIR": os.fspath(tmp_path)}
    assert load_settings(plain, None).otel_endpoint == ""
    named = {**plain, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert load_settings(named, None).otel_endpoint == "http://collector:4318"
    ours = {**named, "THREADHAND_OTEL_ENDPOINT": "http://other:4318"}
    assert load_settings(ours, None).otel_endpoint == "http://other:4318"
