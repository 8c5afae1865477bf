"""Short questions to a model."""

import pytest

from core.domain.errors import ModelUnavailable
from core.domain.threads import Usage
from core.knowledge.query_expansion import build_model_asker
from core.ports import ModelFinished, TextDelta, ThinkingDelta
from tests.fakes.streamed_model import USAGE, StreamedModel, text


async def test_the_whole_answer_comes_back_without_thoughts_and_its_usage_is_told() -> None:
    told: list[tuple[str, Usage]] = []
    model = StreamedModel([[ThinkingDelta(text="hm"), *text(" It ", "is. ")]])
    ask = build_model_asker(model.stream, "m", output_tokens_max=7, on_usage=lambda *one: told.append(one))

    assert await ask("What is it?") == "It is."
    assert told == [("m", USAGE)]
    (request,) = model.requests
    assert request.messages == ({"role": "user", "content": "What is it?"},)
    assert (request.model, request.output_tokens_max, request.tools) == ("m", 7, ())


async def test_an_error_of_the_model_is_told_as_it_is() -> None:
    error = ModelUnavailable("busy")
    with pytest.raises(ModelUnavailable) as caught:
        await build_model_asker(StreamedModel([[error]]).stream, "m")("What?")
    assert caught.value is error


async def test_an_answer_that_breaks_off_or_whose_cost_is_not_told_is_estimated() -> None:
    told: list[tuple[str, Usage]] = []
    words = "word " * 100
    model = StreamedModel(
        [
            [TextDelta(text=words, model="other"), ModelUnavailable("away")],
            [TextDelta(text=words), ModelFinished(finish_reason="stop")],
        ]
    )
    ask = build_model_asker(model.stream, "m", on_usage=lambda *one: told.append(one))
    with pytest.raises(ModelUnavailable):
        await ask("What is it?")
    await ask("What is it?")

    assert [name for name, _ in told] == ["other", "m"]
    assert all(80 <= usage.output_tokens <= 200 for _, usage in told)
