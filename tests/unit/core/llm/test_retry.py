import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from core.domain.errors import ModelError, ModelRejected, ModelUnavailable
from core.llm.error_mapping import parse_retry_after
from core.llm.retry import stream_with_retries
from core.ports import ModelDelta, ModelFinished, ModelRequest, ModelRetried, TextDelta

REQUEST = ModelRequest(model="first", messages=())
FINISHED = ModelFinished(finish_reason="stop")
DOWN = ModelUnavailable("Down.")


@dataclass
class FakeLLM:
    """Plays one list of deltas and errors per call, and keeps the models it was asked for."""

    plays: list[Sequence[ModelDelta | ModelError]]
    asked: list[str] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.asked.append(request.model)
        for item in self.plays.pop(0):
            if isinstance(item, ModelError):
                raise item
            yield item


async def test_an_unavailable_model_is_asked_again_until_it_answers():
    llm = FakeLLM([[DOWN], [DOWN], [TextDelta(text="Hi"), FINISHED]])
    got = [one async for one in stream_with_retries(llm, REQUEST, scale_seconds=0.001)]
    assert got == [
        ModelRetried(text="The model does not answer: attempt 2 of 6, 0 s"),
        ModelRetried(text="The model does not answer: attempt 3 of 6, 0 s"),
        TextDelta(text="Hi"),
        FINISHED,
    ]
    assert llm.asked == ["first"] * 3


async def test_after_the_last_attempt_the_fallbacks_are_asked_and_then_the_error_is_raised():
    llm = FakeLLM([[DOWN]] * 4)
    with pytest.raises(ModelUnavailable, match="Down"):
        async for _ in stream_with_retries(
            llm, REQUEST, fallbacks=("second",), attempts_max=2, scale_seconds=0.001
        ):
            pass
    assert llm.asked == ["first", "first", "second", "second"]


@pytest.mark.parametrize(
    "play", [[ModelRejected("No.")], [TextDelta(text="Hi"), ModelUnavailable("Broke off.")]]
)
async def test_what_cannot_pass_or_has_begun_is_not_asked_again(
    play: list[ModelDelta | ModelError],
):
    llm = FakeLLM([play, [FINISHED]])
    with pytest.raises(ModelError):
        async for _ in stream_with_retries(
            llm, REQUEST, fallbacks=("second",), scale_seconds=0.001
        ):
            pass
    assert llm.asked == ["first"]


async def test_a_wait_that_the_service_names_is_kept():
    llm = FakeLLM([[ModelUnavailable("Slow down.", retry_after_seconds=0.05)], [FINISHED]])
    start = time.monotonic()
    async for _ in stream_with_retries(llm, REQUEST, scale_seconds=0.001):
        pass
    assert time.monotonic() - start >= 0.05


async def test_a_wait_beyond_the_deadline_goes_straight_to_the_fallback():
    llm = FakeLLM([[ModelUnavailable("Slow down.", retry_after_seconds=99)], [FINISHED]])
    got = [
        one
        async for one in stream_with_retries(
            llm, REQUEST, fallbacks=("second",), deadline_seconds=5, scale_seconds=0.001
        )
    ]
    told = ModelRetried(text="first does not answer after 0 s: trying second")
    assert (got, llm.asked) == ([told, replace(FINISHED, model="second")], ["first", "second"])


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 01 Jan 9999 00:00:00 GMT"}, 3600),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 2027 00:00:00 +99999999999999999999"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_service_asks_for_is_read(
    told: dict[str, str], seconds: float | None
) -> None:
    assert parse_retry_after(told) == seconds
