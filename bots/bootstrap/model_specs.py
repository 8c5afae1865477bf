"""Looks up the limits and prices of the models, and warns about those that are unknown."""

import asyncio
import difflib
from dataclasses import dataclass
from urllib.parse import urlsplit

from bots.settings import Settings
from bots.settings.models import provider_key_name
from core.context.limits import limits_by_bare_name
from core.context.window import ContextPolicy
from core.domain.budget import UNPRICED_PER_MILLION_USD, Price, PriceOf
from core.domain.errors import ConfigurationError
from core.llm.model_table import ModelTable, load_model_table

COST_REPORTING_PROVIDER = "openrouter"
"""The provider that reports the cost of each call in its response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpecs:
    """Token limits and prices of models. Warnings are sentences that name models with an unknown price."""

    context_policy: ContextPolicy
    price_of: PriceOf
    warnings: tuple[str, ...] = ()


async def load_model_specs(settings: Settings) -> ModelSpecs:
    """Returns limits and prices of models. Values in the settings override the table of known models.

    Raises ConfigurationError if the settings for limits or prices contradict each other."""
    table = await asyncio.to_thread(load_model_table)
    _check_model_names(settings, table)
    window, answer = settings.context_tokens, settings.answer_tokens
    if window is not None and answer is not None and answer >= window:
        raise ConfigurationError("THREADHAND_ANSWER_TOKENS is a part of THREADHAND_CONTEXT_TOKENS and must be smaller.")
    own = _own_price(settings)

    def price_of(model: str) -> Price | None:
        # a custom endpoint has its own prices, even if its models share their names with known models
        listed = None if settings.llm_base_url else table.prices.get(model)
        # the configured price is for language models, but embeddings are much cheaper and pictures more expensive
        has_own_price = model in (settings.embedding_model, settings.image_model)
        return listed if has_own_price else own or listed

    limits = {**limits_by_bare_name(table.limits), **table.limits}
    policy = ContextPolicy(limits=limits, window_tokens=window, answer_tokens=answer)
    return ModelSpecs(context_policy=policy, price_of=price_of, warnings=_warnings(settings, price_of))


def _check_model_names(settings: Settings, table: ModelTable) -> None:
    """Raises ConfigurationError for a name that belongs to no provider, because each of its calls would fail."""
    if settings.llm_base_url or not table.limits:
        return
    for model in settings.models:
        is_known = "/" in model or model in table.limits or provider_key_name(model)
        if not is_known:
            near = difflib.get_close_matches(model, table.limits, n=1)
            hint = f"; did you mean {near[0]}?" if near else ", such as anthropic/claude-sonnet-4-5."
            raise ConfigurationError(f"No provider has the model {model}: write <provider>/<model>{hint}")


def _own_price(settings: Settings) -> Price | None:
    input_price, output_price = (settings.price_input_per_million_usd, settings.price_output_per_million_usd)
    if input_price is None and output_price is None:
        return None
    if input_price is None or output_price is None:
        raise ConfigurationError(
            "A price has two parts: set both THREADHAND_PRICE_INPUT_PER_MILLION_USD and"
            " THREADHAND_PRICE_OUTPUT_PER_MILLION_USD."
        )
    return Price(
        input_per_million_usd=input_price,
        cached_per_million_usd=input_price,
        output_per_million_usd=output_price,
        is_set=True,
    )


def _warnings(settings: Settings, price_of: PriceOf) -> tuple[str, ...]:
    if all(limit.usd is None for limit in settings.budget.limits.values()):
        return ()
    return tuple(
        f"The price of {model} is unknown, so a million of its tokens count {UNPRICED_PER_MILLION_USD:g} US dollars"
        " against budgets: set THREADHAND_PRICE_INPUT_PER_MILLION_USD and THREADHAND_PRICE_OUTPUT_PER_MILLION_USD."
        for model in settings.models
        if price_of(model) is None and not _reports_cost(model, settings)
    )


def _reports_cost(model: str, settings: Settings) -> bool:
    if settings.llm_base_url:
        return COST_REPORTING_PROVIDER in (urlsplit(settings.llm_base_url).hostname or "")
    return model.startswith(f"{COST_REPORTING_PROVIDER}/")
