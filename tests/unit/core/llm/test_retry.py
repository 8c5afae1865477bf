"""A model that fails, stalls or only shows signs of life, in virtual time."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from core.domain.errors import AnswerRejected, ContextOverflow, ModelError, ModelRejected, ModelUnavailable
from core.domain.model_options import ModelOptions
from core.llm.error_mapping import parse_retry_after
from core.llm.retry import stream_with_retries
from core.ports import ModelDelta, ModelFinished, ModelRequest, ModelRetried, TextDelta
from core.tasks import cancel, spawn
from tests.histories.virtual_time import in_virtual_time

OPTIONS = ModelOptions(effort="low", answer_tokens=32_000, tool_choice="required")
REQUEST = ModelRequest(model="first", messages=(), options=OPTIONS)
FINISHED = ModelFinished(finish_reason="stop")
DOWN = ModelUnavailable("Down.")
SIGN = "a part of the response without content"
SIGNS = [0.03, SIGN] * 4


@dataclass
class FakeLLM:
    """Plays one list of deltas, errors, signs of life and seconds of silence per call, and keeps the models it was
    asked for. After the last list, it is silent."""

    plays: list[Sequence[ModelDelta | ModelError | float | str]]
    asked: list[str] = field(default_factory=list)
    options: list[ModelOptions | None] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.asked.append(request.model)
        self.options.append(request.options)
        for item in self.plays.pop(0) if self.plays else [999.0]:
            if isinstance(item, ModelError):
                raise item
            if isinstance(item, float | int):
                await asyncio.sleep(item)
            elif isinstance(item, str):
                request.on_received()
            else:
                yield item


async def read(llm: FakeLLM, *fallbacks: str, **limits: float) -> list[ModelDelta]:
    """Returns the deltas, with a last one if the model's error ends the answer."""
    got: list[ModelDelta] = []
    given = {"first_seconds": 0.1, "deadline_seconds": 5.0, "scale_seconds": 0.001, **limits}
    try:
        async for delta in stream_with_retries(llm, REQUEST, fallbacks=fallbacks, **given):
            got.append(delta)  # noqa: PERF401 - what came before an error counts
    except ModelUnavailable as error:
        got.append(TextDelta(text=f"error: {error}"))
    return got


@in_virtual_time
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


@in_virtual_time
async def test_after_the_last_attempt_the_fallbacks_are_asked_and_then_the_error_is_raised():
    llm = FakeLLM([[DOWN]] * 4)
    with pytest.raises(ModelUnavailable, match="Down"):
        async for _ in stream_with_retries(llm, REQUEST, fallbacks=("second",), attempts_max=2, scale_seconds=0.001):
            pass
    assert llm.asked == ["first", "first", "second", "second"]
    assert llm.options == [*[OPTIONS] * 2, *[ModelOptions(tool_choice="required")] * 2]


@pytest.mark.parametrize("error", [ModelRejected("No."), ContextOverflow("Too long.")])
@pytest.mark.parametrize("begun", [[], [TextDelta(text="Hi")]])
@in_virtual_time
async def test_a_refused_request_goes_to_the_fallback_at_once(begun: list[ModelDelta], error: ModelError) -> None:
    llm = FakeLLM([[*begun, error], [FINISHED]])
    told = ModelRetried(text="first refuses the request: trying second")
    assert await read(llm, "second") == [*begun, told, replace(FINISHED, model="second")]
    assert llm.asked == ["first", "second"]


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([ModelRejected("No."), DOWN], "No."),
        ([ContextOverflow("Too long."), ModelRejected("No.")], "Too long."),
        ([DOWN, ContextOverflow("Too long.")], "Too long."),
        ([ModelRejected("No."), ModelRejected("Never.")], "No."),
    ],
)
@in_virtual_time
async def test_if_no_model_answers_the_most_useful_error_is_raised(errors: list[ModelError], raised: str) -> None:
    llm = FakeLLM([[one] for one in errors])
    with pytest.raises(ModelError, match=raised):
        async for _ in stream_with_retries(llm, REQUEST, fallbacks=("second",), attempts_max=1):
            pass
    assert llm.asked == ["first", "second"]


@in_virtual_time
async def test_a_request_that_can_be_shortened_is_not_sent_to_the_fallback() -> None:
    request = replace(REQUEST, can_be_shortened=True)
    llm = FakeLLM([[ContextOverflow("Too long.")], [HI, ContextOverflow("Too long.")], [FINISHED]])
    with pytest.raises(ContextOverflow):
        async for _ in stream_with_retries(llm, request, fallbacks=("second",)):
            pass
    assert llm.asked == ["first"]
    # an answer that has begun cannot be asked for again
    async for _ in stream_with_retries(llm, request, fallbacks=("second",)):
        pass
    assert llm.asked == ["first", "first", "second"]


@in_virtual_time
async def test_an_answer_that_the_service_cannot_read_is_left_to_its_model() -> None:
    llm = FakeLLM([[AnswerRejected("No.")], [FINISHED]])
    with pytest.raises(AnswerRejected):
        async for _ in stream_with_retries(llm, REQUEST, fallbacks=("second",), scale_seconds=0.001):
            pass
    assert llm.asked == ["first"]


@in_virtual_time
async def test_a_wait_that_the_service_names_is_kept():
    llm = FakeLLM([[ModelUnavailable("Slow down.", retry_after_seconds=0.05)], [FINISHED]])
    start = time.monotonic()
    async for _ in stream_with_retries(llm, REQUEST, scale_seconds=0.001):
        pass
    assert time.monotonic() - start >= 0.05


@in_virtual_time
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


HI = TextDelta(text="Hi")
BROKEN = ModelRetried(text="The model stopped answering in the middle: attempt 2 of 6, 0 s")
NEXT_MODEL = ModelRetried(text="first stopped answering in the middle: trying second")


@in_virtual_time
async def test_an_answer_that_breaks_off_starts_over_and_the_fallback_follows_the_second_one() -> None:
    llm = FakeLLM([[HI, DOWN], [HI, DOWN], [HI, FINISHED]])
    got = await read(llm, "second")
    second = [replace(HI, model="second"), replace(FINISHED, model="second")]
    assert got == [HI, BROKEN, HI, NEXT_MODEL, *second]
    assert llm.asked == ["first", "first", "second"]


@in_virtual_time
async def test_without_a_fallback_the_third_broken_answer_is_the_last() -> None:
    llm = FakeLLM([[HI, DOWN]] * 9)
    *_, last = await read(llm)
    assert (last, llm.asked) == (TextDelta(text="error: Down."), ["first"] * 3)


@pytest.mark.parametrize("fallbacks", [(), ("second",)])
@in_virtual_time
async def test_an_answer_that_stalls_ends_by_the_deadline(fallbacks: tuple[str, ...]) -> None:
    """If there is a fallback, the first model stalls until only the fallback's share is left."""
    llm, start = FakeLLM([[HI, 999.0]] * 9), time.monotonic()
    got = await read(llm, *fallbacks, deadline_seconds=1.0)
    assert 0.9 <= time.monotonic() - start < 1.1
    assert llm.asked == ["first", *fallbacks]
    assert (got[1] == NEXT_MODEL) == bool(fallbacks)
    last = "error: The model's service did not answer in time. Try again in a while."
    assert got[-1] == TextDelta(text=last)


@in_virtual_time
async def test_the_time_in_which_an_answer_streams_is_not_waiting() -> None:
    slow = [HI, 0.1] * 8
    llm = FakeLLM([[*slow, DOWN], [*slow, FINISHED]])
    got = await read(llm, deadline_seconds=0.5, first_seconds=0.3)
    assert (got[-1], llm.asked) == (FINISHED, ["first"] * 2)


@in_virtual_time
async def test_an_answer_that_begins_late_may_pause() -> None:
    llm = FakeLLM([[*SIGNS, HI, 0.1, FINISHED]])
    got = await read(llm, deadline_seconds=0.2, first_seconds=0.15)
    assert (got, llm.asked) == ([HI, FINISHED], ["first"])


@pytest.mark.parametrize("fallbacks", [(), ("second",)])
@in_virtual_time
async def test_a_model_that_shows_signs_of_life_is_not_asked_again(fallbacks: tuple[str, ...]) -> None:
    """The signs go on for longer than a silent model has, with a fallback as well."""
    llm = FakeLLM([[*SIGNS * 3, HI, FINISHED]])
    got = await read(llm, *fallbacks, deadline_seconds=1.0)
    assert (got, llm.asked) == ([HI, FINISHED], ["first"])


@in_virtual_time
async def test_one_sign_of_life_is_enough_for_an_answer_that_takes_long() -> None:
    llm = FakeLLM([[SIGN, 0.3, HI, FINISHED]])
    assert (await read(llm), llm.asked) == ([HI, FINISHED], ["first"])


@in_virtual_time
async def test_signs_of_life_without_an_answer_end_at_the_deadline() -> None:
    llm, start = FakeLLM([[*SIGNS * 100]]), time.monotonic()
    got = await read(llm, deadline_seconds=0.5)
    assert time.monotonic() - start < 0.6
    assert len(llm.asked) == len(got) == 1
    late = "error: The model's service did not answer in time. Try again in a while."
    assert got == [TextDelta(text=late)]


@in_virtual_time
async def test_signs_of_life_without_an_answer_leave_the_fallback_its_share() -> None:
    llm = FakeLLM([[*SIGNS * 100], [HI, FINISHED]])
    got = await read(llm, "second", deadline_seconds=0.5)
    assert llm.asked == ["first", "second"]
    assert got[0] == ModelRetried(text="first does not answer after 0 s: trying second")
    assert got[-1] == replace(FINISHED, model="second")


@pytest.mark.parametrize("fallbacks", [(), ("second",)])
@in_virtual_time
async def test_signs_of_life_keep_a_fallback_waiting_no_longer_than_the_setting_says(
    fallbacks: tuple[str, ...],
) -> None:
    """An answer that has begun in time may still pause for longer."""
    llm, start = FakeLLM([[*SIGNS * 50], [*SIGNS, HI, 0.4, FINISHED]]), time.monotonic()
    got = await read(llm, *fallbacks, "third", deadline_seconds=5.0, fallback_seconds=0.25)
    assert time.monotonic() - start < 0.8
    assert llm.asked == ["first", *fallbacks, "third"][:2]
    assert isinstance(got[0], ModelRetried)
    assert got[0].text.startswith("first does not answer after 0 s: trying ")
    assert got[-1] == replace(FINISHED, model=llm.asked[1])


@in_virtual_time
async def test_without_a_fallback_signs_of_life_are_waited_for() -> None:
    llm = FakeLLM([[*SIGNS * 3, HI, FINISHED]])
    assert await read(llm, fallback_seconds=0.1) == [HI, FINISHED]


@in_virtual_time
async def test_a_reader_may_take_its_time_and_only_waiting_for_the_model_is_limited() -> None:
    llm, got = FakeLLM([[HI, HI, 0.02, FINISHED]]), list[ModelDelta]()
    limits = {"first_seconds": 0.1, "deadline_seconds": 0.2}
    async for delta in stream_with_retries(llm, REQUEST, **limits):
        got.append(delta)
        await asyncio.sleep(0.3)
    assert (got, llm.asked) == ([HI, HI, FINISHED], ["first"])


@pytest.mark.parametrize("play", [[999.0], [HI, 999.0]])
@in_virtual_time
async def test_a_cancelled_reader_is_cancelled_and_leaves_no_timer(
    play: list[ModelDelta | ModelError | float | str],
) -> None:
    async def answer() -> None:
        async for _ in stream_with_retries(FakeLLM([play]), REQUEST, first_seconds=0.2):
            pass

    reading = spawn(answer(), name="reading")
    await asyncio.sleep(0.05)
    await cancel(reading)
    assert reading.cancelled()
    await asyncio.sleep(0.3)  # a timer that was left would cancel this test


@in_virtual_time
async def test_who_asks_is_told_of_signs_of_life_too() -> None:
    told: list[str] = []
    request = replace(REQUEST, on_received=lambda: told.append(SIGN))
    async for _ in stream_with_retries(FakeLLM([[SIGN, HI, SIGN, FINISHED]]), request):
        pass
    assert len(told) == 2


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
def test_the_wait_that_a_service_asks_for_is_read(told: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(told) == seconds
