"""What is known about models, read from the table that litellm brings."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from core.context.limits import ContextLimit
from core.domain.budget import price_usage
from core.domain.threads import Usage
from core.llm.model_table import FILE_BYTES_MAX, ModelTable, load_model_table

ROW = {
    "mode": "chat",
    "litellm_provider": "maker",
    "max_input_tokens": 100_000,
    "max_output_tokens": 8_000,
    "input_cost_per_token": 2e-06,
    "output_cost_per_token": 1e-05,
}


def table(folder: Path, rows: object) -> ModelTable:
    file = folder / "table.json"
    file.write_text(json.dumps(rows))
    return load_model_table(file)


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("anthropic/claude-sonnet-4-5", ContextLimit(window=200_000, reserved=64_000)),
        ("openai/gpt-4o", ContextLimit(window=128_000, reserved=16_384)),
        ("gpt-4o", ContextLimit(window=128_000, reserved=16_384)),
        ("gemini/gemini-2.5-pro", ContextLimit(window=1_048_576, reserved=65_536)),
    ],
)
async def test_the_installed_table_knows_windows_and_prices(model: str, limit: ContextLimit) -> None:
    known = await asyncio.to_thread(load_model_table)
    assert known.limits[model] == limit
    assert known.prices[model].output_per_million_usd > known.prices[model].input_per_million_usd


def test_the_price_of_long_prompts_and_of_what_is_written_to_the_cache_is_known(tmp_path: Path) -> None:
    long = {
        "cache_creation_input_token_cost": 2.5e-6,
        "input_cost_per_token_above_200k_tokens": 4e-6,
        "output_cost_per_token_above_200k_tokens": 20e-6,
        "input_cost_per_token_above_200k_tokens_batches": 1e-6,
    }
    price = table(tmp_path, {"clever": ROW | long}).prices["clever"]
    short = Usage(input_tokens=200_000, cached_tokens=50_000, written_tokens=100_000)
    assert price_usage(short, price).cost_usd == pytest.approx(0.1 + 0.1 + 0.25)
    long_usage = Usage(input_tokens=200_001, output_tokens=1_000)
    assert price_usage(long_usage, price).cost_usd == pytest.approx(0.800004 + 0.02)


def test_an_answer_never_takes_most_of_the_window(tmp_path: Path) -> None:
    known = table(tmp_path, {"a": ROW | {"max_output_tokens": 100_000}})
    assert known.limits["a"].reserved == 33_333


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "image_generation"},
        {"max_input_tokens": "many", "input_cost_per_token": "little"},
        {"max_input_tokens": -1, "input_cost_per_token": -1},
        {"max_input_tokens": None, "output_cost_per_token": None},
        {"max_input_tokens": 0, "input_cost_per_token": 0, "output_cost_per_token": 0},
    ],
)
def test_what_a_row_does_not_say_is_not_known(tmp_path: Path, wrong: dict[str, object]) -> None:
    known = table(tmp_path, {"a": ROW | wrong, "b": ["no row"]})
    assert known == ModelTable()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1'])
def test_a_table_that_cannot_be_read_is_told_and_empty(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "table.json"
    file.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert load_model_table(file) == ModelTable()
        assert load_model_table(tmp_path / "none.json") == ModelTable()
    assert len(caplog.records) == 2
    assert caplog.records[0].getMessage().startswith("no table of models")


def test_a_table_of_another_size_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    with file.open("wb") as opened:
        opened.truncate(FILE_BYTES_MAX + 1)
    assert load_model_table(file) == ModelTable()
