"""What an endpoint says that a call has used, however it says it."""

import pytest

from core.domain.threads import Usage
from core.llm.openai_answer import parse_usage


def test_tokens_and_a_cost_are_read() -> None:
    told = {"prompt_tokens": 7, "completion_tokens": 3.0, "cost": 0.5}
    told["prompt_tokens_details"] = {"cached_tokens": 2}
    assert parse_usage(told) == Usage(input_tokens=7, cached_tokens=2, output_tokens=3, cost_usd=0.5)


@pytest.mark.parametrize("figure", [float("inf"), float("nan"), -1, 10**30, "7", None, [7], True])
def test_a_figure_that_cannot_be_one_counts_as_not_told(figure: object) -> None:
    told = {"prompt_tokens": figure, "prompt_cache_hit_tokens": figure, "completion_tokens": figure}
    assert parse_usage(told) == Usage()


@pytest.mark.parametrize("cost", [float("inf"), float("nan"), -1, 10**400, "1", True])
def test_a_cost_that_cannot_be_one_counts_as_not_told(cost: object) -> None:
    assert parse_usage({"cost": cost}) == Usage()
