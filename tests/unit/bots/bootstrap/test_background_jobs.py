"""What is done from time to time, however much of it has come together."""

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

import pytest

from bots.bootstrap.background_jobs import delete_in_batches, repeat_job
from core.domain.errors import StorageUnavailable
from core.tasks import cancel, spawn


@dataclass
class Log:
    """An audit log with that many old entries, of which a sweep takes ten at most."""

    old: int
    is_away: bool = False
    error: Exception = field(default_factory=lambda: StorageUnavailable("no database"))
    asked_for: list[float] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def sweep(self, *, older_than_days: float) -> int:
        self.asked_for.append(older_than_days)
        if self.is_away:
            self.answered.set()
            raise self.error
        swept = min(10, self.old)
        self.old -= swept
        if not swept:
            self.answered.set()
        return swept


async def test_the_audit_log_is_swept_until_nothing_old_is_left() -> None:
    log = Log(old=25)
    await delete_in_batches(partial(log.sweep, older_than_days=30))
    assert (log.old, log.asked_for) == (0, [30] * 4)


@pytest.mark.parametrize("error", [StorageUnavailable("no database"), PermissionError(13, "no")])
async def test_an_error_ends_no_job(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    log = Log(old=25, is_away=True, error=error)
    with caplog.at_level(logging.WARNING):
        chore = spawn(repeat_job("the sweep", 3600, partial(log.sweep, older_than_days=30)), name="sweeper")
        try:
            await asyncio.wait_for(log.answered.wait(), 30)
            await asyncio.sleep(0)
            assert not chore.done()
            assert "the sweep failed" in caplog.text
        finally:
            await cancel(chore)
