"""Answers as people get them: read while the model writes them, whole and once, with the files of the run."""

import asyncio
import csv
import io
import json
from dataclasses import dataclass, field

import pytest

from bots.delivery import answer_stream
from bots.delivery.answer_stream import STREAM_AFTER_CHARACTERS
from bots.delivery.content import AnswerPart, AskPrompt, Notice
from bots.delivery.poster import AnswerStreams
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Address
from core.ports import Precondition, TextDelta, ThinkingDelta
from core.stores import Delivery
from tests.fakes.streamed_model import Played, calls, text
from tests.fakes.surface import Failure, FakeSurface, Posted
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.support.waiting import until

FIRST = "The first half of the answer. " * 8
SECOND = "The second half of it. " * 8
assert len(FIRST) > STREAM_AFTER_CHARACTERS


@dataclass
class GrowingSurface(FakeSurface):
    """A platform with messages that grow. `written` is the text of its streams, `appends` each piece."""

    written: dict[str, str] = field(default_factory=dict)
    appends: list[str] = field(default_factory=list)
    is_finished: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    async def find_streams(self, address: Address) -> AnswerStreams | None:
        return self

    async def start(self, address: Address, *, delivery_id: str, precondition: Precondition) -> str:
        def carry_out() -> str:
            ref = f"m{next(self._numbers)}"
            self.posted.append(Posted(ref, delivery_id, address))
            self.written[ref] = ""
            return ref

        return await self._do("start", carry_out, precondition)

    async def append(self, address: Address, stream: Delivery, markdown: str, *, precondition: Precondition) -> None:
        def carry_out() -> None:
            assert not self.is_finished
            self.appends.append(markdown)
            self.written[stream.message_ref or ""] += markdown

        await self._do("append", carry_out, precondition)

    async def finish(
        self, address: Address, stream: Delivery, content: AnswerPart | None, *, precondition: Precondition
    ) -> None:
        def carry_out() -> None:
            self.is_finished = True
            (found,) = [one for one in self.posted if one.message_ref == stream.message_ref]
            if content is not None:
                found.contents.append(content)

        await self._do("finish", carry_out, precondition)


@pytest.fixture
async def growing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> GrowingSurface:
    monkeypatch.setattr(answer_stream, "APPEND_SECONDS", 0.01)
    monkeypatch.setattr(answer_stream, "KEEP_ALIVE_SECONDS", 0.02)
    stage.surface = surface = GrowingSurface()
    await stage.use_status_after(60)
    return surface


async def played(stage: Stage, surface: GrowingSurface, *turns: Played, gate: asyncio.Event) -> None:
    """Plays the turns, and opens the gate once the first half is shown."""
    stage.world.model.turns = list(turns)
    _, running = await stage.start_followed()
    await until(lambda: FIRST in "".join(surface.written.values()))
    gate.set()
    await running
    await stage.shown()


def answers(surface: FakeSurface) -> list[str]:
    newest = [one.newest for one in surface.posted if one.contents]
    return [one.markdown.strip() for one in newest if isinstance(one, AnswerPart)]


async def test_an_answer_is_shown_in_whole_words_while_the_model_thinks_and_writes(
    stage: Stage, growing: GrowingSurface
) -> None:
    gate, thinking = asyncio.Event(), ThinkingDelta(text="Hm.")
    pieces = [TextDelta(text=FIRST[at : at + 7]) for at in range(0, len(FIRST), 7)]
    await played(stage, growing, [thinking, *pieces, gate, *text(SECOND)], gate=gate)
    assert answers(growing) == [f"{FIRST}{SECOND}".strip()]
    assert len(growing.posted) == 1
    assert all(one.endswith(" ") for one in growing.appends if one)


@pytest.mark.parametrize("operation", ["start", "append", "finish"])
@pytest.mark.parametrize(
    "error",
    [
        SurfaceRefused("no", code="feature_not_enabled"),
        SurfaceUnclear("silence"),
        SurfaceRateLimited("slowly", retry_after_seconds=0.01),
    ],
    ids=["refused", "unclear", "limited"],
)
async def test_the_answer_is_there_once_if_the_stream_fails(
    stage: Stage, growing: GrowingSurface, operation: str, error: SurfaceError
) -> None:
    growing.failures.append(Failure(operation, error))
    stage.world.model.turns = [[TextDelta(text=FIRST), gate := asyncio.Event(), *text(SECOND)]]
    _, running = await stage.start_followed()
    if operation == "finish":
        await until(lambda: FIRST in growing.written.values())
    else:
        await until(lambda: not growing.failures)
    gate.set()
    await running
    await stage.shown()
    assert not growing.failures
    assert answers(growing) == [f"{FIRST}{SECOND}".strip()]


async def test_text_before_a_tool_call_stays_whole_and_the_answer_follows(
    stage: Stage, growing: GrowingSurface
) -> None:
    gate = asyncio.Event()
    call = calls(("echo", '{"text": "a"}'))
    first = [TextDelta(text=FIRST), gate, TextDelta(text="To the end"), *call]
    await played(stage, growing, first, text(SECOND), gate=gate)
    assert list(growing.written.values()) == [f"{FIRST}To the end"]
    assert answers(growing) == [SECOND.strip()]


async def test_a_stream_that_waits_out_a_rate_limit_does_not_hold_up_a_close(
    stage: Stage, growing: GrowingSurface
) -> None:
    limited = Failure("finish", SurfaceRateLimited("slowly", retry_after_seconds=300))
    growing.failures.append(limited)
    stage.world.model.turns = [[TextDelta(text=FIRST), *calls(("echo", '{"text": "a"}'))], text(SECOND)]
    _, running = await stage.start_followed()
    await running
    await until(lambda: not growing.failures)
    async with asyncio.timeout(30):
        await stage.delivery.close()


async def test_a_long_answer_comes_in_parts_and_a_very_long_one_as_a_file(stage: Stage) -> None:
    paragraphs = "\n\n".join(f"Paragraph {n} " + "word " * 55 for n in range(8))
    stage.world.model.turns = [text(paragraphs)]
    await stage.run()
    parts = [one.newest for one in stage.of(AnswerPart)]
    assert [part.part for part in parts if isinstance(part, AnswerPart)] == [1, 2, 3]
    stage.world.model.turns = [text("\n\n".join([paragraphs] * 5))]
    await stage.run("again")
    (file,) = [one for one in stage.surface.posted if one.file_name]
    assert file.file_name == "answer.md"
    assert file.file_bytes.decode().count("Paragraph 3") == 5
    beginning = stage.of(AnswerPart)[-1].newest
    assert isinstance(beginning, AnswerPart)
    assert beginning.markdown.startswith("Paragraph 0")
    assert beginning.markdown.endswith("The whole answer is in the file `answer.md`._")
    assert len(beginning.markdown) <= stage.surface.answer_limit


def notices(stage: Stage) -> list[str]:
    return [one.newest.markdown for one in stage.of(Notice) if isinstance(one.newest, Notice)]


def table(rows: int, columns: int = 2, cell: str = "1") -> str:
    line = f"| {' | '.join([cell] * columns)} |\n"
    return "| a " * columns + "|\n" + "|---" * columns + "|\n" + line * rows


async def test_a_large_table_also_comes_as_a_csv_file(stage: Stage) -> None:
    stage.surface.answer_limit = 10_000
    answer = "\n".join([table(101, cell="-1,5"), table(1, 21, cell='=**x**"'), table(100, 20)])
    stage.world.model.turns = [text(answer)]
    run_id = await stage.run()
    files = [(one.file_name, one.file_bytes) for one in stage.surface.posted if one.file_name]
    assert all(content.startswith(b"\xef\xbb\xbf") for _, content in files)  # else Excel reads another encoding
    many, wide = (list(csv.reader(io.StringIO(content.decode("utf-8-sig")))) for _, content in files)
    assert [name for name, _ in files] == ["table-1.csv", "table-2.csv"]
    assert many == [["a", "a"], *[["-1,5", "-1,5"]] * 101]
    assert wide == [["a"] * 21, ["'=x\""] * 21]
    stage.delivery.wake(run_id)
    await stage.shown()
    assert len([one for one in stage.surface.posted if one.file_name]) == 2


async def test_a_file_that_is_not_there_is_said_so(stage: Stage) -> None:
    stage.world.model.turns = [calls(("complete", '{"text": "Done.", "attachments": "none.txt, ../../etc/passwd"}'))]
    await stage.run()
    said = [one.newest.markdown for one in stage.of(Notice) if isinstance(one.newest, Notice)]
    assert len(said) == 2
    assert "none.txt" in said[0]
    assert "climbs" in said[1]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("too_large", "is too large to post here"),
        ("empty_file", "is empty"),
        ("missing_scope", "`files:write`"),
        ("50013", "“Attach Files” here. It is here: https://links.test/a.txt"),
        ("unknown", "could not be posted here"),
    ],
)
async def test_a_refused_file_is_told_with_the_reason(stage: Stage, code: str, words: str) -> None:
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "a.txt"}')),
    ]
    run_id, running = await stage.world.begin("go")
    await stage.world.bench.until_started("x")
    await stage.put_file(run_id, "a.txt", b"content")
    refusal = SurfaceRefused("no", code=code)
    stage.surface.failures += [Failure("post with files", refusal), Failure("upload", refusal)]
    stage.world.bench.gate("x").set()
    await running
    stage.delivery.wake(run_id)
    await stage.shown()
    assert len(stage.of(AnswerPart)) == 1
    (notice,) = [one.newest for one in stage.of(Notice)]
    assert isinstance(notice, Notice)
    assert words in notice.markdown


async def ended_with_files(stage: Stage, *names: str, content: bytes = b"x") -> str:
    """A run that has ended with an answer and these files. Nothing of it is posted yet."""
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", json.dumps({"text": "Done.", "attachments": ", ".join(names)}))),
    ]
    run_id, running = await stage.world.begin("go")
    await stage.world.bench.until_started("x")
    for name in names:
        await stage.put_file(run_id, name, content if "empty" not in name else b"")
    stage.world.bench.gate("x").set()
    await running
    return run_id


async def test_files_that_do_not_fit_come_alone_and_what_is_wrong_is_said(stage: Stage) -> None:
    names = ("empty.txt", "a.txt", "b.txt", "c.txt")
    stage.delivery.wake(await ended_with_files(stage, *names))
    await stage.shown()
    (answer,) = stage.of(AnswerPart)
    assert [*answer.files.values()] == [("a.txt", b"x")]
    assert sorted(name for name, _ in stage.surface.all_files()) == sorted(names)


async def test_a_very_long_answer_comes_in_parts_if_its_file_is_refused(stage: Stage) -> None:
    paragraphs = [f"Paragraph {n} " + "word " * 150 for n in range(6)]
    stage.world.model.turns = [text("\n\n".join(paragraphs))]
    stage.surface.failures.append(Failure("upload", SurfaceRefused("no", code="missing_scope")))
    await stage.run()
    parts = [one.newest for one in stage.of(AnswerPart)]
    assert [one.markdown.split()[1] for one in parts if isinstance(one, AnswerPart)] == list("012345")


async def test_options_whose_file_is_refused_are_told_before_the_question(stage: Stage) -> None:
    options = [f"option {number}" for number in range(500)]
    stage.world.model.turns = [calls(("ask", json.dumps({"text": "Which?", "options": options})))]
    stage.surface.failures.append(Failure("upload", SurfaceRefused("no", code="50013")))
    await stage.run()
    (told,), (question,) = notices(stage), stage.of(AskPrompt)
    assert told.startswith("The file `options.txt` could not be attached, because I need the")
    assert stage.surface.posted[-1] is question


@pytest.mark.parametrize(("count", "length", "is_listed"), [(5, 300, True), (2, 300, False)])
async def test_options_that_a_question_cannot_show_whole_are_listed_in_a_file(
    stage: Stage, count: int, length: int, is_listed: bool
) -> None:
    options = [f"{number}".rjust(length, "x") for number in range(count)]
    stage.world.model.turns = [calls(("ask", json.dumps({"text": "Which?", "options": options})))]
    await stage.run()
    listed = "".join(f"{number}. {option}\n" for number, option in enumerate(options, 1))
    files = [(name, content.decode()) for name, content in stage.surface.all_files()]
    assert files == ([("options.txt", listed)] if is_listed else [])


async def test_a_file_that_is_too_large_is_told_with_its_size_and_the_limit(stage: Stage) -> None:
    stage.links_to = ""
    stage.surface.file_bytes_max = 3_000_000
    run_id = await ended_with_files(stage, "a.txt", content=b"x" * 3_200_000)
    stage.delivery.wake(run_id)
    await stage.shown()
    (notice,) = [one.newest for one in stage.of(Notice)]
    assert isinstance(notice, Notice)
    assert notice.markdown == (
        "The file `a.txt` is too large to post here: it has 3.2 MB, and at most 3.0 MB are accepted. "
        "Ask me to split or compress it."
    )
