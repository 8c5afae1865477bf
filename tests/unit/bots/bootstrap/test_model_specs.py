"""Windows and prices as the settings have them, and what the operator is told at the start."""

import pytest

from bots.bootstrap.model_clients import build_provider_client
from bots.bootstrap.model_specs import load_model_specs
from core.context.limits import ContextLimit
from core.domain.budget import Price
from core.domain.errors import ConfigurationError
from core.llm.openai_client import OpenAIChatClient
from core.llm.retry import FALLBACK_PERCENT
from tests.support.narrow import require
from tests.support.settings import settings

OWN = {"LLM_BASE_URL": "http://127.0.0.1:1/v1"}
PRICES = {"PRICE_INPUT_PER_MILLION_USD": "1", "PRICE_OUTPUT_PER_MILLION_USD": "4"}


@pytest.mark.parametrize(
    ("variables", "model", "limit"),
    [
        ({}, "openai/gpt-4o", (128_000, 16_384)),
        ({}, "nobody/knows-this-one", (41_000, 10_000)),
        (OWN, "Kimi-K2", (131_072, 16_384)),
        (OWN, "unsloth/gpt-oss-120b-Q4_K_M.gguf", (131_072, 43_690)),
        (OWN, "qwen9:1b", (32_768, 8_192)),
        ({"CONTEXT_TOKENS": "50000"}, "openai/gpt-4o", (50_000, 16_384)),
        ({"CONTEXT_TOKENS": "8000"}, "nobody/knows-this-one", (8_000, 2_666)),
        ({"ANSWER_TOKENS": "4000"}, "openai/gpt-4o", (128_000, 4_000)),
        ({"CONTEXT_TOKENS": "8000", "ANSWER_TOKENS": "1000"}, "who/knows", (8_000, 1_000)),
    ],
)
async def test_a_window_is_the_operators_word_or_what_is_known(
    variables: dict[str, str], model: str, limit: tuple[int, int]
) -> None:
    policy = (await load_model_specs(settings(MODEL=model, **variables))).context_policy
    assert policy.limit_of(model) == ContextLimit(window=limit[0], reserved=limit[1])


async def test_a_price_is_the_operators_word_or_what_is_known() -> None:
    set_price = Price(input_per_million_usd=1, cached_per_million_usd=1, output_per_million_usd=4, is_set=True)
    listed = (await load_model_specs(settings())).price_of("openai/gpt-4o")
    assert not require(listed).is_set
    assert (await load_model_specs(settings(**PRICES))).price_of("openai/gpt-4o") == set_price
    assert (await load_model_specs(settings(**OWN))).price_of("gpt-4o") is None
    assert (await load_model_specs(settings(**OWN, **PRICES))).price_of("gpt-4o") == set_price


async def test_vectors_have_the_price_that_is_known_and_never_that_of_answers() -> None:
    meaning = {"EMBEDDING_MODEL": "openai/text-embedding-3-small"}
    name = meaning["EMBEDDING_MODEL"]
    listed = (await load_model_specs(settings(**meaning, **PRICES))).price_of(name)
    assert 0 < require(listed).input_per_million_usd < 0.1
    assert (await load_model_specs(settings(**meaning, **OWN, **PRICES))).price_of(name) is None


@pytest.mark.parametrize(
    ("variables", "unknown"),
    [
        ({"MODEL": "mine", **OWN}, ["mine"]),
        ({"MODEL": "who/knows", "FALLBACK_MODELS": "openai/gpt-4o,who/else"}, ["who/knows", "who/else"]),
        ({"MODEL": "mine", **OWN, **PRICES}, []),
        ({"MODEL": "openai/gpt-4o"}, []),
        ({"MODEL": "openrouter/who/knows"}, []),
        ({"MODEL": "who/knows", "LLM_BASE_URL": "https://openrouter.ai/api/v1"}, []),
    ],
)
async def test_a_budget_in_dollars_without_a_price_is_told(variables: dict[str, str], unknown: list[str]) -> None:
    known = await load_model_specs(settings(BUDGET_RUN_USD="1", **variables))
    assert [sentence.split(" is unknown")[0].split()[-1] for sentence in known.warnings] == unknown
    assert all("THREADHAND_PRICE_INPUT_PER_MILLION_USD" in one for one in known.warnings)


@pytest.mark.parametrize("model", ["openai/gpt-5", "openrouter/who/knows"])
def test_providers_whose_reasoning_litellm_would_lose_are_called_directly(model: str) -> None:
    client = build_provider_client(model, settings(MODEL=model, LLM_API_KEY="key"))
    assert isinstance(client, OpenAIChatClient)


def test_a_silent_model_is_given_up_within_two_minutes_by_default() -> None:
    chosen = settings()
    assert (chosen.model_first_seconds, chosen.model_deadline_seconds) == (60, 300)
    assert chosen.model_deadline_seconds * FALLBACK_PERCENT / 100 < 120
    assert chosen.model_fallback_seconds < 120


async def test_a_budget_in_tokens_needs_no_price() -> None:
    off = {"BUDGET_USER_DAY_USD": "none", "BUDGET_WORKSPACE_DAY_USD": "0"}
    known = await load_model_specs(settings(BUDGET_RUN_TOKENS="1", MODEL="mine", **OWN, **off))
    assert known.warnings == ()


@pytest.mark.parametrize(
    "variables",
    [
        {"PRICE_INPUT_PER_MILLION_USD": "1"},
        {"PRICE_OUTPUT_PER_MILLION_USD": "1"},
        {"CONTEXT_TOKENS": "5000", "ANSWER_TOKENS": "5000"},
    ],
)
async def test_halves_and_contradictions_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_"):
        await load_model_specs(settings(**variables))
