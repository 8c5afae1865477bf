"""Records the usage of each response of a model exactly once: as the provider reports it, or otherwise estimated."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from core.context.tokens import count_message, count_text, count_tools
from core.domain.budget import PriceOf, price_usage
from core.domain.threads import Usage
from core.observability import RunMetrics
from core.ports import (
    ModelDelta,
    ModelFinished,
    ModelRequest,
    ModelRetried,
    ReasoningSnapshot,
    ResponseText,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


async def stream_with_charge(
    deltas: AsyncGenerator[ModelDelta, None], request: ModelRequest, charge: Callable[[str, Usage], None]
) -> AsyncGenerator[ModelDelta, None]:
    """Yields the deltas and calls `charge` once per response with the name of the model that responded and its usage.

    If the provider reports no usage, for example because the stream ends early or breaks off and starts over, the usage
    is estimated from the part of the response that was received. If nothing was received, `charge` is not called."""
    read: list[str] = []
    model = request.model
    usage: Usage | None = None
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                if isinstance(delta, ModelRetried) and read:
                    charge(model, estimate_usage(request, "".join(read)))
                    read.clear()
                model = delta.model or model
                if written := text_written_in(delta):
                    read.append(written)
                if isinstance(delta, ModelFinished):
                    usage = delta.usage
                yield delta
    finally:
        if usage is not None:
            charge(model, usage)
        elif read:
            charge(model, estimate_usage(request, "".join(read)))


def text_written_in(delta: ModelDelta) -> str:
    """Returns what the model wrote in this part of its response: text, thinking or arguments."""
    match delta:
        case TextDelta(text=text) | ThinkingDelta(text=text) | ToolCallDelta(arguments=text):
            return text
        case ModelFinished() | ReasoningSnapshot() | ModelRetried():
            return ""


async def read_text(deltas: AsyncGenerator[ModelDelta, None]) -> ResponseText:
    """Returns the text of a response, and closes the stream."""
    said: list[str] = []
    is_cut_off = False
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, ModelRetried) or (isinstance(delta, TextDelta) and delta.replaces_earlier):
                said.clear()
            if isinstance(delta, TextDelta):
                said.append(delta.text)
            if isinstance(delta, ModelFinished):
                is_cut_off = delta.finish_reason == "length"
    return ResponseText("".join(said), is_cut_off)


def build_usage_pricer(price_of: PriceOf, metrics: RunMetrics) -> Callable[[str, Usage], Usage]:
    """Returns a function that adds an estimated cost to a model's usage and reports the result to the metrics."""

    def charge(model: str, usage: Usage) -> Usage:
        dear = price_usage(usage, price_of(model))
        metrics.count_usage(model, dear)
        return dear

    return charge


def estimate_usage(request: ModelRequest, answer: str) -> Usage:
    """Returns an estimate of the call's tokens, with a cost of 0."""
    sent = sum(count_message(message) for message in request.messages)
    return Usage(input_tokens=sent + count_tools(request.tools), output_tokens=count_text(answer))
