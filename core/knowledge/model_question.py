"""Short questions to a model, outside of any conversation."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from core.domain.threads import Usage
from core.knowledge.ports import Ask
from core.model_usage import metered
from core.ports import ModelDelta, ModelRequest, TextDelta

OUTPUT_TOKENS_MAX = 2_000


def asking(
    ask_model: Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]],
    model: str,
    *,
    output_tokens_max: int = OUTPUT_TOKENS_MAX,
    on_usage: Callable[[str, Usage], None] = lambda _model, _usage: None,
) -> Ask:
    """A question becomes one user message; `on_usage` is told who gave each answer and what it used."""

    async def ask(question: str) -> str:
        request = ModelRequest(
            model=model,
            messages=({"role": "user", "content": question},),
            output_tokens_max=output_tokens_max,
        )
        async with aclosing(metered(ask_model(request), request, on_usage)) as deltas:
            said = [delta.text async for delta in deltas if isinstance(delta, TextDelta)]
        return "".join(said).strip()

    return ask
