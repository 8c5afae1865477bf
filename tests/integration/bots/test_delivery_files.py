"""What a run leaves besides its words: long answers, files, and what is said where a file cannot be posted."""

import asyncio

import pytest

from bots.delivery.content import AnswerPart, Notice
from core.domain.errors import SurfaceRefused
from core.run.execute import execute
from tests.fakes.played_model import calls, text
from tests.fakes.surface import Failure
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world


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


async def test_a_file_that_is_not_there_is_said_so(stage: Stage) -> None:
    stage.world.model.turns = [
        calls(("complete", '{"text": "Done.", "attachments": "none.txt, ../../etc/passwd"}'))
    ]
    await stage.run()
    said = [one.newest.markdown for one in stage.of(Notice) if isinstance(one.newest, Notice)]
    assert len(said) == 2
    assert "none.txt" in said[0]
    assert "climbs" in said[1]


async def test_a_file_that_is_too_large_becomes_a_link(stage: Stage) -> None:
    stage.surface.file_bytes_max = 3
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "big.bin"}')),
    ]
    run_id = await stage.world.say("go")
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    async with asyncio.timeout(5):
        await stage.world.bench.has_started("x").wait()
    await stage.put_file(run_id, "big.bin", b"12345")
    stage.world.bench.gate("x").set()
    await running
    stage.delivery.wake(run_id)
    await stage.shown()
    (notice,) = [one.newest for one in stage.of(Notice)]
    assert isinstance(notice, Notice)
    assert "https://links.test/big.bin" in notice.markdown


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("too_large", "is too large to post here"),
        ("empty_file", "is empty"),
        ("missing_scope", "could not be posted here"),
    ],
)
async def test_a_refused_file_is_told_with_the_reason(stage: Stage, code: str, words: str) -> None:
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "a.txt"}')),
    ]
    run_id = await stage.world.say("go")
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    async with asyncio.timeout(5):
        await stage.world.bench.has_started("x").wait()
    await stage.put_file(run_id, "a.txt", b"content")
    stage.surface.failures.append(Failure("upload", SurfaceRefused("no", code=code)))
    stage.world.bench.gate("x").set()
    await running
    stage.delivery.wake(run_id)
    await stage.shown()
    (notice,) = [one.newest for one in stage.of(Notice)]
    assert isinstance(notice, Notice)
    assert words in notice.markdown
