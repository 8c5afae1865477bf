"""Short questions to a model."""

import pytest

from core.errors import ModelUnavailable
from core.knowledge.asking import asking
from core.ports import ThinkingDelta
from core.threads import Usage
from tests.fakes.played_model import USAGE, PlayedModel, text


async def test_the_whole_answer_comes_back_without_thoughts_and_its_usage_is_told() -> None:
    told: list[tuple[str, Usage]] = []
    model = PlayedModel([[ThinkingDelta(text="hm"), *text(" It ", "is. ")]])
    ask = asking(model.stream, "m", output_tokens_max=7, on_usage=lambda *one: told.append(one))

    assert await ask("What is it?") == "It is."
    assert told == [("m", USAGE)]
    (request,) = model.requests
    assert request.messages == ({"role": "user", "content": "What is it?"},)
    assert (request.model, request.output_tokens_max, request.tools) == ("m", 7, ())


async def test_an_error_of_the_model_is_told_as_it_is() -> None:
    error = ModelUnavailable("busy")
    with pytest.raises(ModelUnavailable) as caught:
        await asking(PlayedModel([[error]]).stream, "m")("What?")
    assert caught.value is error
