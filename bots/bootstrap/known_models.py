"""What is known about the models of the settings: how much they take in, and what they cost."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from bots.settings import Settings
from core.context.window import ContextPolicy
from core.domain.budget import Price, PriceOf
from core.domain.errors import ConfigurationError
from core.llm.model_table import load_model_table

TELLS_COST = "openrouter"
"""Says with each answer what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModels:
    """`lacks` are sentences for the operator."""

    context_policy: ContextPolicy
    price_of: PriceOf
    lacks: tuple[str, ...] = ()


async def known_models(settings: Settings) -> KnownModels:
    """The settings' own word first, then the table of known models. Raises ConfigurationError."""
    window, answer = settings.context_tokens, settings.answer_tokens
    if window is not None and answer is not None and answer >= window:
        raise ConfigurationError(
            "THREADHAND_ANSWER_TOKENS is a part of THREADHAND_CONTEXT_TOKENS and must be smaller."
        )
    own, table = _own_price(settings), await asyncio.to_thread(load_model_table)

    def price_of(model: str) -> Price | None:
        # an endpoint of somebody's own has prices of its own, whatever its models are called
        listed = None if settings.llm_base_url else table.prices.get(model)
        # the price that is set is that of models that write; vectors cost a fraction of it
        return listed if model == settings.embedding_model else own or listed

    return KnownModels(
        context_policy=ContextPolicy(
            limits=table.limits, window_tokens=window, answer_tokens=answer
        ),
        price_of=price_of,
        lacks=_lacks(settings, price_of),
    )


def _own_price(settings: Settings) -> Price | None:
    read, written = settings.price_input_per_million_usd, settings.price_output_per_million_usd
    if read is None and written is None:
        return None
    if read is None or written is None:
        raise ConfigurationError(
            "A price has two parts: set both THREADHAND_PRICE_INPUT_PER_MILLION_USD and"
            " THREADHAND_PRICE_OUTPUT_PER_MILLION_USD."
        )
    return Price(
        input_per_million_usd=read,
        cached_per_million_usd=read,
        output_per_million_usd=written,
        is_set=True,
    )


def _lacks(settings: Settings, price_of: PriceOf) -> tuple[str, ...]:
    if not settings.budget.is_in_dollars:
        return ()
    return tuple(
        f"A budget in US dollars is set, but it is not known what {model} costs, so its calls count as free: set"
        " THREADHAND_PRICE_INPUT_PER_MILLION_USD and THREADHAND_PRICE_OUTPUT_PER_MILLION_USD, or a budget in tokens."
        for model in dict.fromkeys((settings.model, *settings.fallback_models))
        if model and price_of(model) is None and not _tells_cost(model, settings)
    )


def _tells_cost(model: str, settings: Settings) -> bool:
    if settings.llm_base_url:
        return TELLS_COST in (urlsplit(settings.llm_base_url).hostname or "")
    return model.startswith(f"{TELLS_COST}/")
