"""Files that come to a run beside the end of its worker."""

from collections.abc import AsyncIterator
from pathlib import Path

from core.domain.threads import IncomingFile
from core.run.execute import execute
from core.tasks import cancel
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.support.closing import close_after


class Source:
    """Serves the reference of a file as its content."""

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        yield file.file_ref.encode()


def table(content: str) -> tuple[IncomingFile, ...]:
    size = len(content.encode())
    return (IncomingFile(file_ref=content, name="t.csv", mime_type="text/csv", size_bytes=size),)


async def test_a_file_of_the_same_name_and_size_replaces_none_after_a_takeover(world: World, tmp_path: Path) -> None:
    async with close_after(UnsafeProcessProvider(tmp_path / "boxes")) as boxes:
        world.with_deps(sandboxes=boxes, file_sources={"api": Source()})
        world.model.turns = [calls(("wait", '{"text": "x"}')), text("compared")]
        run_id, running = await world.begin("the old prices", files=table("old,100"))
        await world.bench.until_started("x")
        await cancel(running)  # a deploy: the next worker takes the run over
        assert await world.say("and the new ones", files=table("new,200")) == run_id
        world.bench.gate("x").set()
        await execute(run_id, world.deps)
    sent = world.model.requests[-1].messages
    assert "uploads/t.csv (" in str(sent[1])
    assert "uploads/t-2.csv (" in str(sent[-1])
