"""Which runs are shown, until when, and under which name in the log."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from bots.delivery import run_delivery
from bots.delivery.run_delivery import SWEEP_SECONDS, RunDelivery
from core.observability import get_log_context
from tests.histories.virtual_time import in_virtual_time
from tests.unit.bots.test_what_actions_touch import SLACK, snapshot


@in_virtual_time
async def test_forgotten_runs_are_shown_until_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = list[Mapping[str, str]]()

    async def open_runs(*, for_worker: str) -> tuple[str, ...]:
        return (for_worker,)

    async def claim(_run_id: str, _worker_id: str, *, platforms: object) -> Any:
        return SimpleNamespace(run=snapshot(SLACK).active_run, address=SLACK)

    async def follow(*_arguments: object, **_others: object) -> AsyncGenerator[Any]:
        followed.append(get_log_context())
        raise ValueError
        yield

    monkeypatch.setattr(run_delivery, "follow_events", follow)
    deps: Any = SimpleNamespace(
        worker_id="w",
        deliveries=SimpleNamespace(open_runs=open_runs, claim=claim),
        conversations=None,
        bus=None,
        surfaces={"slack": SimpleNamespace()},
        metrics=None,
        status_after_seconds=0,
    )
    delivery = RunDelivery(deps)
    delivery.start()
    await asyncio.sleep(1.5 * SWEEP_SECONDS)
    await delivery.close()
    await asyncio.sleep(10 * SWEEP_SECONDS)
    assert followed == [{"run_id": "w", "thread_id": "t", "worker": "w"}] * 2
