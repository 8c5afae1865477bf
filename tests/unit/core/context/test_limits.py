"""The context windows of models: known, of their family, assumed, or seen to be smaller."""

import pytest

from core.context.limits import WINDOW_MIN, ContextLimit, bare_name, find_context_limit, limits_by_bare_name
from core.context.window import ContextPolicy
from core.domain.threads import Usage
from core.ports import ModelRequest


def test_limits_are_those_of_the_table_unless_set() -> None:
    assert find_context_limit("anthropic/claude-sonnet-4").room == 136_000
    assert find_context_limit("openai/gpt-4o").room == 100_000
    assert find_context_limit("gemini/gemini-2.5-pro").room == 700_000
    assert find_context_limit("deepseek-chat").room == 100_000
    assert find_context_limit("some/model").room == 31_000
    assert find_context_limit("gpt-4").room < 8_192
    own = ContextLimit(window=10, reserved=4)
    assert find_context_limit("gpt-4o", {"gpt-4o": own}).room == 6


@pytest.mark.parametrize(
    ("model", "bare"),
    [
        ("openrouter/moonshotai/Kimi-K2-0905:free", "kimi-k2"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b-instruct"),
        ("unsloth/Qwen3-30B-A3B-Q4_K_M.gguf", "qwen3-30b-a3b"),
        ("llama3.1:8b-instruct-q4_K_M", "llama3.1"),
        ("gpt-4.1-2025-04-14", "gpt-4.1"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("2024", "2024"),
        ("x" + "-q1" * 100_000, "x"),
    ],
)
def test_a_bare_name_has_no_provider_date_or_quantisation(model: str, bare: str) -> None:
    assert bare_name(model) == bare


def test_a_bare_name_has_a_small_window_of_its_providers() -> None:
    sizes = {"a/m": 8_192, "b/m": 64_000, "c/m": 128_000, "d/m-fp8": 1_000_000}
    limits = {name: ContextLimit(window=size, reserved=1_000) for name, size in sizes.items()}
    assert limits_by_bare_name(limits) == {"m": ContextLimit(window=64_000, reserved=1_000)}


@pytest.mark.parametrize(
    ("text", "usage", "window"),
    [
        ("word " * 15_000, Usage(input_tokens=100), WINDOW_MIN),
        ("word " * 60_000, Usage(input_tokens=20_000), 20_000),
        ("word " * 15_000, Usage(input_tokens=15_000), 41_000),
        ("word " * 15_000, Usage(input_tokens=100, cached_tokens=14_900), 41_000),
        ("word " * 15_000, Usage(), 41_000),
        ("=" * 75_000, Usage(input_tokens=100), 41_000),
        (" " * 75_000, Usage(input_tokens=100), 41_000),
        ("word " * 800, Usage(input_tokens=100), 41_000),
    ],
)
def test_a_service_that_cuts_requests_has_the_window_that_it_reads(
    text: str, usage: Usage, window: int, caplog: pytest.LogCaptureFixture
) -> None:
    policy = ContextPolicy()
    for _ in range(2):
        policy.observed.observe(ModelRequest(model="m", messages=({"role": "user", "content": text},)), usage)
    assert policy.limit_of("m").window == window
    assert policy.limit_of("another").window == 41_000
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (window != 41_000)
    assert all("num_ctx" in one and "THREADHAND_CONTEXT_TOKENS" in one for one in warnings)
