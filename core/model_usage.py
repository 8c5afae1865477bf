"""What a model call has used, told exactly once: as the provider says, or estimated where it could not say."""

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
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


async def record_model_usage(
    deltas: AsyncGenerator[ModelDelta, None],
    request: ModelRequest,
    charge: Callable[[str, Usage], None],
) -> AsyncGenerator[ModelDelta, None]:
    """Passes the deltas on, and charges the model that answered. An answer that is left early, stopped or broken off
    is charged by what was read of it."""
    read: list[str] = []
    model = request.model
    usage: Usage | None = None
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                model = delta.model or model
                match delta:
                    case TextDelta(text=text) | ThinkingDelta(text=text):
                        read.append(text)
                    case ToolCallDelta(arguments=arguments):
                        read.append(arguments)
                    case ModelFinished():
                        usage = delta.usage
                yield delta
    finally:
        if usage is not None:
            charge(model, usage)
        elif read:
            charge(model, estimate_usage(request, "".join(read)))


def build_usage_pricer(price_of: PriceOf, figures: RunMetrics) -> Callable[[str, Usage], Usage]:
    """Prices what a model has used, and counts it."""

    def charge(model: str, usage: Usage) -> Usage:
        dear = price_usage(usage, price_of(model))
        figures.used(model, dear)
        return dear

    return charge


def estimate_usage(request: ModelRequest, answer: str) -> Usage:
    """Tokens only: what they cost is not known here."""
    sent = sum(count_message(message) for message in request.messages)
    return Usage(input_tokens=sent + count_tools(request.tools), output_tokens=count_text(answer))
