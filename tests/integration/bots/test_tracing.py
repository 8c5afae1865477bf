"""Traces: spans below each other, with ids and words of ours alone; a clear sentence where the extra is missing."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from bots.observability.metrics import Metrics
from bots.observability.tracing import RunTracing, open_tracing
from bots.settings import load_settings
from core.domain.errors import ToolError
from core.domain.threads import Usage
from tests.support.web import serve_http


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
