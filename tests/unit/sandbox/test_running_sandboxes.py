"""What is remembered of threads that have no sandbox."""

import pytest

from core.domain.errors import SandboxesBusy
from sandbox import running_sandboxes
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes


async def test_threads_that_no_longer_ask_for_a_sandbox_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(_thread_id: str) -> RunningSandbox:
        raise SandboxesBusy("All are in use.")

    monkeypatch.setattr(running_sandboxes, "GIVEN_UP_SECONDS", -1.0)
    sandboxes = RunningSandboxes(start)
    for number in range(5):
        with pytest.raises(SandboxesBusy):
            await sandboxes.open(f"thread-{number}", fence=1)
        await sandboxes.stop(f"thread-{number}")
    waiting = [name for name in vars(sandboxes) if "wait" in name or "refused" in name]
    assert [len(vars(sandboxes)[name]) for name in waiting] == [1] * len(waiting)
    assert len(sandboxes._locks) == 0
