"""A conversation that is held within the window, without holding up anybody else."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from core.context.limits import ASSUMED, WINDOW_MIN, ContextLimit, ObservedWindows, find_context_limit, with_overrides
from core.context.message_text import TIME_ZONE_KEY, format_for_model
from core.context.summary import find_summary_boundary, newest_summary_and_later, write_transcript
from core.context.tokens import count_message
from core.context.truncation import EXPAND_TOOL
from core.context.untrusted_text import wrap_message
from core.context.window import ContextPolicy, ContextWindow, stored_cuts
from core.dialects.native import NativeDialect
from core.domain.errors import ContextOverflow, ModelRejected
from core.domain.events import AgentEvent, MessageAdded
from core.domain.messages import Message, ToolCall
from core.domain.threads import Usage
from core.ports import ModelRequest, ResponseText
from tests.bench.prompt import prefix_share
from tests.support.conversations import answered, call_and_result, long_thread, message, said, words

BLANK = ModelRequest(model="m", messages=({"role": "system", "content": "s"},))
STALL_SECONDS_MAX = 0.02
TRIES = 8


async def no_summary(request: ModelRequest) -> str:
    raise AssertionError("no summary was wanted")


async def refused_summary(request: ModelRequest) -> str:
    raise ModelRejected("no")


def window(
    room: int,
    *,
    complete: Callable[[ModelRequest], Awaitable[str | ResponseText]] = no_summary,
    told: list[AgentEvent] | None = None,
    summary_tokens: int = 10_000_000,
    reserved: int = 0,
    overhead: int = 0,
    source: str = "known for this model",
    observed: ObservedWindows | None = None,
) -> ContextWindow:
    limits = {"m": ContextLimit(window=room, reserved=reserved, source=source)}

    async def respond(request: ModelRequest) -> ResponseText:
        written = await complete(request)
        return ResponseText(written) if isinstance(written, str) else written

    return ContextWindow(
        model="m",
        run_id="run",
        policy=ContextPolicy(
            limits=limits, summary_tokens=summary_tokens, kept_tokens=5000, observed=observed or ObservedWindows()
        ),
        overhead_tokens=overhead,
        complete=respond,
        emit=(told if told is not None else []).append,
    )


@pytest.mark.parametrize(
    ("window_tokens", "reserved", "expected"),
    [
        (None, None, (200_000, 64_000)),
        (32_000, None, (32_000, 10_666)),
        (400_000, None, (400_000, 64_000)),
        (None, 8_000, (200_000, 8_000)),
        (32_000, 30_000, (32_000, 30_000)),
        (None, 500_000, (200_000, 199_999)),
    ],
)
def test_the_operators_word_goes_before_what_is_known(
    window_tokens: int | None, reserved: int | None, expected: tuple[int, int]
) -> None:
    found = with_overrides(find_context_limit("claude"), window=window_tokens, reserved=reserved)
    assert (found.window, found.reserved) == expected
    assert found.room >= 1


async def longest_stall(work: Callable[[], Awaitable[object]]) -> float:
    """How long the loop did not get to anything else while the work was going on."""
    longest, is_over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        while not is_over:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)
            await asyncio.sleep(0.001)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await work()
    is_over = True
    await ticking
    return longest


async def test_shortening_a_very_long_conversation_holds_nobody_up() -> None:
    history = long_thread(200, words_each=1475)

    async def shorten() -> None:
        held = window(136_000, complete=refused_summary)
        await held.load(history)
        request = await held.request(BLANK, ())
        assert len(request.messages) == 402

    # what the machine does beside the test makes single tries late; code that blocks is late in each
    assert min([await longest_stall(shorten) for _ in range(TRIES)]) < STALL_SECONDS_MAX


async def test_summing_up_a_very_long_conversation_holds_nobody_up() -> None:
    history = long_thread(200, words_each=1475)

    async def short(request: ModelRequest) -> str:
        return "# Facts\nnone"

    async def shorten() -> None:
        held = window(136_000, complete=short, summary_tokens=120_000)
        await held.load(history)
        request = await held.request(BLANK, ())
        assert len(request.messages) < 20

    assert min([await longest_stall(shorten) for _ in range(TRIES)]) < STALL_SECONDS_MAX


@pytest.mark.parametrize(("size", "reserved"), [(8_192, 2_048), (16_385, 4_096), (128_000, 4_096)])
async def test_a_request_for_a_summary_fits_the_model_with_its_answer(size: int, reserved: int) -> None:
    asked: list[ModelRequest] = []

    async def short(request: ModelRequest) -> str:
        asked.append(request)
        return "# Facts\nnone"

    held = window(size, complete=short, summary_tokens=size // 2, reserved=reserved)
    await held.load(long_thread(12, words_each=size // 10))
    await held.request(BLANK, ())
    (request,) = asked
    assert request.output_tokens_max is not None
    assert 0 < request.output_tokens_max <= reserved
    tokens = sum(count_message(one) for one in request.messages)
    assert tokens + request.output_tokens_max <= size


async def test_cuts_are_told_once_and_taken_up_by_the_next_window() -> None:
    history = list(long_thread(10, words_each=2000))
    first = window(20_000, complete=refused_summary)
    await first.load(history)
    sent = await first.request(BLANK, ())
    notes = first.take_cut_notes()
    assert notes
    assert first.take_cut_notes() == {}
    reply = message("assistant", {"role": "assistant", "content": "ok"})
    reply.metadata.update(notes)
    second = window(20_000, complete=refused_summary)
    await second.load([*history, reply])
    again = await second.request(BLANK, ())
    assert again.messages[: len(sent.messages)] == sent.messages
    assert second.take_cut_notes() == {}


def test_cuts_that_cannot_be_read_are_passed_over() -> None:
    one = answered("ok")
    one.metadata["cuts"] = {"a": "nonsense", "b": [300, True], "c": [1]}
    assert list(stored_cuts([one])) == ["b"]


async def test_the_smaller_request_keeps_what_stands_around_the_conversation() -> None:
    held = window(50_000)
    await held.load([said("go"), *call_and_result(1, argument="ls", output=words(9000))])
    request = await held.request(BLANK, ["a note"])
    smaller = await held.shorten(request)
    assert smaller.messages[0] == BLANK.messages[0]
    assert "a note" in str(smaller.messages[-1]["content"])
    assert len(smaller.messages) == len(request.messages)
    assert len(str(smaller.messages)) < 0.8 * len(str(request.messages))


@pytest.mark.parametrize("summary", ["# Facts\nforty pictures", ModelRejected("no")])
async def test_a_single_message_that_cannot_fit_gives_way_to_a_summary_or_a_note(summary: str | ModelRejected) -> None:
    async def sum_up(request: ModelRequest) -> str:
        if isinstance(summary, ModelRejected):
            raise summary
        return summary

    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    words_of_person = {"type": "text", "text": "count them"}
    held = window(3000, complete=sum_up)
    await held.load([message("user", {"role": "user", "content": [words_of_person, *[image] * 40]})])
    (_, only) = (await held.request(BLANK, ())).messages
    assert "count them" in str(only)
    expected = "forty pictures" if isinstance(summary, str) else "are left out because"
    assert expected in str(only)


async def summaries_of_a_long_run(
    answers: Callable[[int], str | ResponseText], *, turns: int = 60, request: Message | None = None
) -> tuple[list[ModelRequest], list[Message]]:
    """Returns the requests for summaries in a run that outgrows its window, and the summaries that were stored."""
    asked: list[ModelRequest] = []
    told: list[AgentEvent] = []

    async def sum_up(request: ModelRequest) -> str | ResponseText:
        asked.append(request)
        return answers(len(asked))

    held = window(12_000, complete=sum_up, told=told, reserved=3_000, summary_tokens=8_000)
    await held.load([request or said("go")])
    for number in range(turns):
        await held.request(BLANK)
        held.add(call_and_result(number, argument="ls", output=words(900, seed=number)))
    added = [one.message for one in told if isinstance(one, MessageAdded)]
    return asked, [one for one in added if one.type == "summary"]


async def test_empty_summaries_are_soon_given_up() -> None:
    asked, stored = await summaries_of_a_long_run(lambda _: ResponseText("", is_cut_off=True))
    assert not stored
    assert 3 <= len(asked) <= 9
    thinking = [one.output_tokens_max or 0 for one in asked]
    assert thinking[0] < thinking[1] <= 3_000


async def test_a_summary_that_was_cut_off_is_asked_for_again_and_shorter() -> None:
    def answer(number: int) -> str | ResponseText:
        return ResponseText("# Facts\n\nhalf", is_cut_off=True) if number == 1 else "# Facts\n\nall"

    asked, stored = await summaries_of_a_long_run(answer, turns=12)
    targets = [re.findall(r"Write ([\d,]+) words", str(one.messages[0])) for one in asked[:2]]
    (first,), (second,) = targets
    assert int(second.replace(",", "")) < int(first.replace(",", ""))
    assert "all" in str(stored[0].content)
    assert "half" not in str(stored[0].content)


async def test_a_summary_that_is_cut_off_again_ends_with_its_last_whole_paragraph() -> None:
    cut_off = ResponseText("# Facts\n\nThe sky is blue.\n\n# Results\n\nThe pa", is_cut_off=True)
    asked, stored = await summaries_of_a_long_run(lambda _: cut_off, turns=12)
    assert len(asked) == len(stored) + 1
    text = str(stored[0].content["content"])
    assert "The sky is blue." in text
    assert "What should follow is missing" in text
    assert "# Results" not in text
    assert "The pa" not in text


async def test_every_summary_has_the_end_of_a_long_request_and_says_what_is_left_out() -> None:
    request = said(wrap_message(f"{words(4_000)} Leave the prices as they are.", author="Ada"))
    _, stored = await summaries_of_a_long_run(lambda _: "# Facts", turns=30, request=request)
    assert len(stored) > 1
    for summary in stored:
        text = str(summary.content["content"])
        assert "Leave the prices as they are.\n</message mark=" in text
        assert f'{EXPAND_TOOL} with message_id "{request.message_id}" shows the whole message' in text


async def test_a_summary_in_a_language_of_many_tokens_fits_a_small_window() -> None:
    async def sum_up(request: ModelRequest) -> str:
        return "\u4e8b\u5b9e" * 9000

    held = window(3000, complete=sum_up)
    await held.load([said("\u8bf7" * 5000), *long_thread(30, words_each=300)])
    request = await held.request(BLANK, ())
    assert sum(count_message(one) for one in request.messages) < 3000


@pytest.mark.parametrize(
    ("room", "overhead", "reserved", "part"),
    [
        (41_000, 40_000, 500, "40,000 are for the instructions and the tools"),
        (41_000, 5_608, 39_000, "39,000 are for the response"),
    ],
)
async def test_without_room_the_error_names_the_largest_part_and_the_window(
    room: int, overhead: int, reserved: int, part: str
) -> None:
    held = window(room, overhead=overhead, reserved=reserved)
    await held.load([said("go")])
    with pytest.raises(ContextOverflow) as raised:
        await held.request(BLANK, ())
    assert part in str(raised.value)
    assert "41,000 tokens (a size that is known for this model)" in str(raised.value)
    assert "THREADHAND_CONTEXT_TOKENS" in raised.value.detail


@pytest.mark.parametrize("is_final", [True, False])
async def test_a_refused_request_is_reported_with_its_size_and_the_source_of_the_limit(*, is_final: bool) -> None:
    held = window(41_000, overhead=5_608, source=ASSUMED)
    await held.load([said("hello")])
    request = await held.request(BLANK, ())
    if is_final:
        error = held.build_overflow_error(ContextOverflow("too long", detail="the service's words"))
        assert "the service's words" in error.detail
    else:
        with pytest.raises(ContextOverflow) as raised:
            await held.shorten(request)
        error = raised.value
    assert "m refuses the conversation as too long" in str(error)
    assert "about 5,6" in str(error)
    assert "41,000 tokens (a size that is assumed, because the model is unknown)" in str(error)
    assert "THREADHAND_CONTEXT_TOKENS" in error.detail


async def test_a_conversation_is_shortened_once_its_service_was_seen_to_cut_it() -> None:
    async def sum_up(request: ModelRequest) -> str:
        return "# Facts"

    observed = ObservedWindows()
    held = window(100_000, complete=sum_up, reserved=5_000, observed=observed)
    await held.load([said(words(10_000)), answered("Yes."), said(words(10_000))])
    observed.observe(await held.request(BLANK), Usage(input_tokens=2_048))
    shorter = await held.request(BLANK)
    assert sum(map(count_message, shorter.messages)) < WINDOW_MIN


async def test_the_newest_browser_stands_behind_everything_that_stays() -> None:
    held = window(50_000)
    first, second = (message("browser_state", {"url": f"https://example.org/{n}"}, is_llm=False) for n in "ab")
    call, result = call_and_result(1, argument="ls", output="ok")
    await held.load([said("one"), first, answered("two"), said("three"), call])
    held.add([second, result])
    contents = [str(one["content"]) for one in (await held.request(BLANK, ())).messages]
    assert [index for index, one in enumerate(contents) if "example.org" in one] == [5]
    assert "example.org/b" in contents[5]
    assert contents[5].startswith("ok")
    assert contents[3] == "three"
    held.add(call_and_result(2, argument="ls", output="ok"))
    held.add([call_and_result(n, argument="ls", output="ok")[1] for n in (3, 4, 5)])
    assert "example.org/b" in str((await held.request(BLANK)).messages)
    held.add([answered("a")])
    assert "example.org" not in str((await held.request(BLANK)).messages)


async def test_pictures_leave_less_room_for_the_conversation() -> None:
    def sent(request: ModelRequest) -> int:
        return sum(count_message(one) for one in request.messages)

    old = [one for n in range(20) for one in call_and_result(n, argument="ls", output=words(400))]
    pictures = [
        message(
            "image_context", {"mime_type": "image/png", "base64": "iVBORw0KGgo=", "file_path": f"{n}.png"}, is_llm=False
        )
        for n in range(3)
    ]
    histories = list[int]()
    for shown in ([], pictures[:1], pictures):
        held = window(9_000, complete=refused_summary)
        await held.load([said("go"), *old])
        held.add(shown)
        request = await held.request(BLANK, ())
        assert sent(request) <= 9_000
        histories.append(sum(count_message(one) for one in request.messages[: request.stable_messages]))
        assert str(request.messages).count("data:image/png") == len(shown)
    assert histories[0] > histories[1] > histories[2]


async def test_a_summary_is_told_and_stands_first() -> None:
    told: list[AgentEvent] = []
    asked: list[ModelRequest] = []

    async def sum_up(request: ModelRequest) -> str:
        asked.append(request)
        return "# Facts\nthe sky is blue"

    request_of_alice = replace(said("find out"), metadata={TIME_ZONE_KEY: "Asia/Tokyo"})
    history = [request_of_alice, *long_thread(20, words_each=900)]
    held = window(100_000, complete=sum_up, told=told, summary_tokens=20_000)
    await held.load(history)
    request = await held.request(BLANK, ())
    (added,) = [one for one in told if isinstance(one, MessageAdded)]
    assert added.message.type == "summary"
    assert request.messages[1] == added.message.content
    assert "the sky is blue" in str(request.messages[1])
    assert request.messages[2]["role"] == "assistant"
    assert len(asked) == 1
    picture = message("image_context", {"file_path": "a.png"}, is_llm=False)
    assert newest_summary_and_later([picture, *history, added.message])[1] == picture
    stored = newest_summary_and_later([*history, added.message])
    sent = [format_for_model(one, is_native=True).content for one in stored]
    assert sent == list(request.messages[1:])
    later = window(100_000)
    await later.load([*history, added.message])
    assert later.time_zone == held.time_zone == "Asia/Tokyo"


def test_what_stays_begins_with_a_whole_turn() -> None:
    messages = list(long_thread(10, words_each=300))
    for kept in range(0, 9000, 500):
        place = find_summary_boundary(messages, kept, {})
        assert messages[place].type != "tool"
        assert 0 < place < len(messages)
    assert find_summary_boundary(messages, 10_000_000, {}) == 0
    assert find_summary_boundary(messages[:1], 0, {}) == 0


def test_a_result_stays_with_the_state_that_is_told_with_it() -> None:
    state = message("status", {"role": "user", "content": "state"})
    messages = [*long_thread(3, words_each=300), state]
    for kept in range(0, 3000, 100):
        assert messages[find_summary_boundary(messages, kept, {})].type in ("user", "assistant")


def test_the_record_keeps_the_newest_and_fits() -> None:
    history: list[Message] = [*long_thread(300, words_each=300), said("the very last words")]
    text = write_transcript(history, 20_000)
    assert "the very last words" in text
    assert text.startswith("[What came before is left out")
    assert len(text) < 120_000


@pytest.mark.parametrize(
    ("size", "reserved", "turns", "share"), [(41_000, 10_000, 150, 0.85), (128_000, 28_000, 300, 0.9)]
)
async def test_a_full_window_rarely_changes_the_beginning_of_its_requests(
    size: int, reserved: int, turns: int, share: float
) -> None:
    told: list[AgentEvent] = []

    async def sum_up(request: ModelRequest) -> str:
        return "# Facts\n" + words(400)

    held = window(size, complete=sum_up, told=told, summary_tokens=120_000, reserved=reserved)
    await held.load([said("go")])
    requests = list[ModelRequest]()
    for number in range(turns):
        requests.append(await held.request(BLANK))
        output = words(2_000 if number % 4 == 0 else 500, seed=-number)
        held.add(call_and_result(number, argument=words(60, seed=number), output=output))
    summaries = sum(isinstance(one, MessageAdded) for one in told)
    breaks = [after.messages[: len(before.messages)] != before.messages for before, after in pairwise(requests)]
    assert 1 <= summaries <= sum(breaks) <= 6 * summaries
    assert sum(breaks) <= turns // 8
    assert prefix_share(requests) >= share


async def test_pictures_that_are_no_longer_shown_are_named_once() -> None:
    content = {"mime_type": "image/png", "base64": "iVBORw0KGgo=", "file_path": "uploads/a.png"}
    picture = message("image_context", content, is_llm=False)
    told: list[AgentEvent] = []
    held = window(100_000, told=told)
    await held.load([said("what is on it?"), picture])
    texts = list[str]()
    for number in range(20):
        request = await held.request(BLANK)
        texts.append(str(request.messages[-1]["content"]))
        held.add(call_and_result(number, argument="ls", output="ok"))
    shown = ["image_url" in text for text in texts]
    gone = ["no longer shown: uploads/a.png" in text for text in texts]
    assert shown == [True] * shown.count(True) + [False] * shown.count(False)
    assert gone.index(True) == shown.index(False)
    assert gone.count(True) == 1
    (added,) = [one.message for one in told if isinstance(one, MessageAdded)]
    assert added.type == "status"


async def test_a_long_todo_list_in_a_summary_says_what_is_left_out() -> None:
    async def sum_up(request: ModelRequest) -> str:
        return "# Facts"

    call = ToolCall(
        name="create_file", arguments={"file_path": "todo.md", "file_contents": "- [ ] step\n" * 500}, call_id="c"
    )
    dialect, result = NativeDialect(), {"success": True, "output": "ok", "error": None}
    written = replace(
        message("tool", dialect.result_content(call, dict(result))),
        metadata={"parsing_details": dialect.parsing_details(call)},
    )
    held = window(100_000, complete=sum_up, summary_tokens=1_000)
    await held.load([said("go"), message("assistant", dialect.assistant_content("", [call]))])
    held.add([written, *call_and_result(2, argument="ls", output=words(4_000))])
    summary = str((await held.request(BLANK)).messages[1]["content"])
    assert "# todo.md as the file tools last wrote it; what commands have changed in it since is not shown" in summary
    assert "[The last 1500 characters are left out; read_file shows them.]" in summary
