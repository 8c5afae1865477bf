"""Short questions to a model, outside of any conversation."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from core.knowledge.ports import Ask
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta
from core.threads import Usage

OUTPUT_TOKENS_MAX = 2_000


def asking(
    ask_model: Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]],
    model: str,
    *,
    output_tokens_max: int = OUTPUT_TOKENS_MAX,
    on_usage: Callable[[str, Usage], None] = lambda _model, _usage: None,
) -> Ask:
    """A question becomes one user message; `on_usage` is told who gave each answer and what it cost, as far as the
    provider says."""

    async def ask(question: str) -> str:
        request = ModelRequest(
            model=model,
            messages=({"role": "user", "content": question},),
            output_tokens_max=output_tokens_max,
        )
        said: list[str] = []
        async with aclosing(ask_model(request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    said.append(delta.text)
                elif isinstance(delta, ModelFinished) and delta.usage is not None:
                    on_usage(delta.model or model, delta.usage)
        return "".join(said).strip()

    return ask
