"""Another process puts a Modal sandbox away at the very moment when this one wants it: its files are there."""

from collections.abc import Awaitable, Callable

from core.domain.sandbox_records import SandboxRecord
from sandbox.memory_records import MemorySandboxRecords
from sandbox.modal.provider import ModalSandboxProvider
from tests.integration.sandbox.modal_stage import PLAN, modal_stage
from tests.integration.sandbox.providers import content, pieces


class Overtaken(MemorySandboxRecords):
    """Once, something else happens after a look and before its answer is used."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None:
        found = await super().find(provider, thread_id)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_what_was_stopped_since_the_look_is_restored_as_it_was_stopped() -> None:
    async with modal_stage() as stage:
        records = Overtaken()
        leaving, other = (ModalSandboxProvider(PLAN, records, now=stage.clock) for _ in range(2))
        stage.workers += [leaving, other]
        sandbox = await leaving.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"saved"))
        leaving.end_hold("thread")
        await sandbox.files.write("file", pieces(b"as it was stopped"))
        records.meanwhile = leaving.close
        again = await other.open("thread", fence=2)
        assert await content(again, "file") == b"as it was stopped"


async def test_a_snapshot_that_was_replaced_since_the_look_is_no_loss() -> None:
    async with modal_stage() as stage:
        records = Overtaken()
        first, second, other = (ModalSandboxProvider(PLAN, records, now=stage.clock) for _ in range(3))
        stage.workers += [first, second, other]
        sandbox = await first.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"one"))
        await first.close()

        async def used_meanwhile() -> None:
            sandbox = await second.open("thread", fence=2)
            await sandbox.files.write("file", pieces(b"two"))
            await second.close()

        records.meanwhile = used_meanwhile
        again = await other.open("thread", fence=3)
        assert await content(again, "file") == b"two"
