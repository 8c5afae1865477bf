"""What providers answer, streamed and whole, through the direct client and through litellm.

`litellm_loses` in a fixture names what litellm itself drops: the usage of streams that is not at the top (it estimates
one instead), and the signatures of OpenRouter, whose models the program therefore calls directly.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import pytest

from core.dialects.dialect import CallComplete, DisplayText, ToolSpec
from core.dialects.native import NativeDialect
from core.domain.errors import AnswerRejected, ContextOverflow, ModelError, ModelRejected, ModelUnavailable
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, ToolCall
from core.llm import error_mapping
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIChatClient
from core.ports import (
    LLM,
    ModelDelta,
    ModelFinished,
    ModelRequest,
    ReasoningSnapshot,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from tests.fakes.recorded_providers import KEY, NAMES, RecordedProvider, holds, load_fixture, serve_provider
from tests.support.closing import close_after
from tests.support.narrow import require, require_type

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")

FIXTURES = {name: load_fixture(name) for name in NAMES}
PLAYS = [(name, kind) for name, one in FIXTURES.items() for kind in one["clients"]]
ERRORS = [(name, kind, number) for name, kind in PLAYS for number in range(len(FIXTURES[name]["errors"]))]
DIALECT = NativeDialect()
TOOL = ToolSpec(
    name="look_up",
    description="Look something up.",
    parameters={"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}},
)


@asynccontextmanager
async def client_of(kind: str, url: str) -> AsyncIterator[LLM]:
    async with close_after(
        LiteLLMClient(api_key=KEY, base_url=url)
        if kind == "litellm"
        else OpenAIChatClient(url, KEY, uses_responses_api=kind == "responses")
    ) as made:
        yield made


@dataclass(frozen=True)
class Answer:
    """An answer as a turn reads it."""

    text: str
    thinking: str
    calls: Sequence[ToolCall]
    finished: ModelFinished
    reasoning: JsonObject | None

    def message(self) -> JsonObject:
        content = DIALECT.assistant_content(self.text, self.calls)
        return content if self.reasoning is None else {**content, REASONING_KEY: self.reasoning}


def read(deltas: Sequence[ModelDelta]) -> Answer:
    parser = DIALECT.parser({TOOL.name: TOOL})
    parts = [
        part
        for delta in after_thinking(deltas)
        if isinstance(delta, TextDelta | ToolCallDelta)
        for part in parser.feed(delta)
    ]
    parts += parser.close(is_whole=True)
    thinking = "".join(one.text for one in deltas if isinstance(one, ThinkingDelta))
    withdrawn = deltas[: len(deltas) - len(after_thinking(deltas))]
    finished = require_type(deltas[-1], ModelFinished)
    snapshots = [one.content for one in deltas if isinstance(one, ReasoningSnapshot)]
    return Answer(
        text="".join(one.text for one in parts if isinstance(one, DisplayText)),
        thinking="".join(one.text for one in withdrawn if isinstance(one, TextDelta)) + thinking,
        calls=[one.call for one in parts if isinstance(one, CallComplete)],
        finished=finished,
        reasoning=snapshots[-1] if snapshots else None,
    )


def after_thinking(deltas: Sequence[ModelDelta]) -> Sequence[ModelDelta]:
    """The deltas from the last one that replaces the text before it."""
    starts = [place for place, one in enumerate(deltas) if isinstance(one, TextDelta) and one.replaces_earlier]
    return deltas[starts[-1] :] if starts else deltas


def request_of(fixture: dict[str, Any], kind: str, *, is_streamed: bool) -> ModelRequest:
    return ModelRequest(
        model=fixture["clients"][kind],
        messages=({"role": "user", "content": "How is the weather in Oslo?"},),
        tools=DIALECT.request_parts([TOOL])[0],
        is_streamed=is_streamed,
    )


async def ask(llm: LLM, request: ModelRequest) -> Answer:
    return read([delta async for delta in llm.stream(request)])


def continued(request: ModelRequest, answer: Answer) -> ModelRequest:
    results: list[JsonObject] = [
        {"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": "rain"} for call in answer.calls
    ]
    return replace(request, messages=(*request.messages, answer.message(), *results))


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("name", "kind"), PLAYS)
async def test_an_answer_is_read_and_what_the_provider_wants_back_goes_back(
    name: str, kind: str, *, is_streamed: bool
) -> None:
    fixture = FIXTURES[name]
    expected = fixture["expect"]
    lost = fixture.get("litellm_loses", ()) if kind == "litellm" else ()
    provider = RecordedProvider(fixture | ({"returns": []} if "returns" in lost else {}))
    async with serve_provider(provider) as url, client_of(kind, url) as llm:
        request = request_of(fixture, kind, is_streamed=is_streamed)
        first = await ask(llm, request)
        await ask(llm, continued(request, first))

    thinking = expected["thinking"] if is_streamed else fixture.get("whole_thinking", expected["thinking"])
    assert (first.text, first.thinking) == (expected["text"], thinking)
    assert [[one.name, one.arguments] for one in first.calls] == expected["calls"]
    usage = require(first.finished.usage)
    if not (is_streamed and "usage" in lost):
        assert [usage.input_tokens, usage.cached_tokens, usage.output_tokens] == expected["usage"]
    if "cost" in expected:
        assert usage.cost_usd == expected["cost"]
    assert first.finished.finish_reason == expected["finish"]
    assert len(provider.requests) == 2
    assert len(provider.refusals) <= len(fixture.get("refuses", ()))


@pytest.mark.parametrize(("name", "kind"), PLAYS)
async def test_what_one_model_wrote_for_itself_reaches_no_other(name: str, kind: str) -> None:
    fixture = FIXTURES[name]
    provider = RecordedProvider({**fixture, "returns": []})
    async with serve_provider(provider) as url, client_of(kind, url) as llm:
        request = request_of(fixture, kind, is_streamed=True)
        first = await ask(llm, request)
        other = replace(continued(request, first), model=f"{request.model}-2")
        await ask(llm, other)
    assert not [one for one in fixture["returns"] if holds(provider.requests[-1], one)]


@pytest.mark.parametrize(("name", "kind", "number"), ERRORS)
async def test_an_error_is_told_by_what_it_says(name: str, kind: str, number: int) -> None:
    fixture = FIXTURES[name]
    error = fixture["errors"][number]
    async with serve_provider(RecordedProvider(fixture, error=error)) as url, client_of(kind, url) as llm:
        with pytest.raises(ModelError) as raised:
            await ask(llm, request_of(fixture, kind, is_streamed=True))

    told = raised.value
    sentence = error["sentence"]
    assert str(told) == getattr(error_mapping, sentence)
    assert isinstance(told, ModelUnavailable) is (sentence in ("RATE_LIMITED", "OVERLOADED"))
    assert isinstance(told, AnswerRejected) is (sentence == "UNREADABLE_CALL")
    assert isinstance(told, ContextOverflow) is (sentence == "CONTEXT_OVERFLOW")
    assert KEY not in told.detail
    if isinstance(told, ModelUnavailable) and "wait" in error:
        assert told.retry_after_seconds == error["wait"]


@pytest.mark.skipif(find_spec("google.auth") is not None, reason="Google's package is installed")
@pytest.mark.parametrize("model", ["vertex_ai/gemini-2.0-flash", "vertex_ai/claude-sonnet-4-5"])
async def test_a_missing_package_is_named_and_the_model_is_not_asked_again(model: str) -> None:
    client = LiteLLMClient()
    request = ModelRequest(model=model, messages=({"role": "user", "content": "hi"},))
    with pytest.raises(ModelRejected) as raised:
        _ = [one async for one in client.stream(request)]
    await client.close()
    assert str(raised.value) == error_mapping.NO_MODULE
    assert "litellm[google]" in raised.value.detail
