"""Runs that are handed over to functions: once a minute at most, and without a wait for whoever hands them over."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import modal
import pytest
from grpclib import Status

from bots.bootstrap.background_jobs import requeue_orphaned_runs
from bots.bootstrap.program import run_program, serve, serve_worker
from bots.modal_worker import SingleRunQueue
from bots.settings import load_settings
from core.domain.errors import ConfigurationError
from core.tasks import cancel, spawn
from sandbox.modal.account import ModalAccount
from sandbox.modal.run_queue import ModalRunQueue, open_modal_run_queue
from tests.integration.simulator.modal.deployment import published
from tests.support.modal_stage import Stage, modal_stage
from tests.support.waiting import until

APP = "threadhand"


@dataclass
class Minute:
    """Handovers of a minute that ends when it is told to."""

    open: set[str] = field(default_factory=set)

    async def begin(self, run_id: str) -> bool:
        is_first = run_id not in self.open
        self.open.add(run_id)
        return is_first


@dataclass
class Claims:
    left: tuple[str, ...]

    async def claimable_runs(self) -> tuple[str, ...]:
        return self.left


@asynccontextmanager
async def deployed(*names: str) -> AsyncGenerator[Stage, None]:
    async with modal_stage() as stage:
        client = await modal.Client.from_credentials.aio(*stage.modal.world.credentials)
        await published(client, APP, "modal_app", *names)
        await client.close.aio()
        yield stage


@asynccontextmanager
async def staged() -> AsyncGenerator[tuple[ModalRunQueue, Stage, Minute], None]:
    minute = Minute()
    async with deployed("execute_run") as stage, open_modal_run_queue(ModalAccount(APP), minute) as queue:
        yield queue, stage, minute


def called(stage: Stage) -> list[object]:
    return [call.args[0] for call in stage.modal.world.function_calls.made]


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.levelname for one in caplog.records if one.name == "sandbox.modal.run_queue"]


async def test_a_run_is_handed_over_once_a_minute() -> None:
    async with staged() as (queue, stage, minute):
        for _ in range(3):
            await queue.put("a")
        await until(lambda: called(stage) == ["a"] and not queue._spawning)
        await queue.put("a")
        await until(lambda: not queue._spawning)
        assert called(stage) == ["a"]
        minute.open.clear()
        await queue.put("a")
        await until(lambda: called(stage) == ["a", "a"])


async def test_what_modal_does_not_take_is_told_once_and_put_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sandbox.modal.run_queue")
    async with staged() as (queue, stage, minute):
        stage.modal.faults.arm("FunctionMap", Status.RESOURCE_EXHAUSTED, "no room", times=2)
        await asyncio.gather(*map(queue.put, ("a", "b")))
        await until(lambda: not queue._spawning)
        assert called(stage) == []
        assert levels(caplog) == ["WARNING"]
        assert "no room" in caplog.text
        assert "end some, or raise the plan's limit" in caplog.text
        minute.open.clear()
        await requeue_orphaned_runs(Claims(("a", "b")), queue)
        await until(lambda: len(called(stage)) == 2 and not queue._spawning)
    assert levels(caplog) == ["WARNING", "INFO"]


async def test_a_start_without_the_function_is_refused() -> None:
    async with deployed("janitor"):
        for app in (APP, "nobody"):
            with pytest.raises(ConfigurationError, match="modal deploy"):
                async with open_modal_run_queue(ModalAccount(app), Minute()):
                    pass


async def test_a_modal_that_does_not_answer_delays_and_keeps_nobody_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with deployed("execute_run") as stage:
        stage.modal.faults.arm("FunctionGet", Status.RESOURCE_EXHAUSTED, "not now")
        async with open_modal_run_queue(ModalAccount(APP), Minute()) as queue:
            assert "not now" in caplog.text
            await queue.put("a")
            await until(lambda: called(stage) == ["a"])


async def test_a_function_takes_its_own_run_and_no_other() -> None:
    queue = SingleRunQueue("mine")
    for run_id in ("other", "mine", "another"):
        await queue.put(run_id)
    async with asyncio.timeout(30):
        assert await queue.get() == "mine"
    waiting = spawn(queue.get(), name="claim")
    await asyncio.sleep(0)
    assert not waiting.done()
    await cancel(waiting)


POSTGRESQL = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
REDIS = {"REDIS_URL": "redis://127.0.0.1:1"}


@pytest.mark.parametrize(
    "variables", [REDIS, {**REDIS, "DATABASE_URL": "sqlite:///x.db"}, {**REDIS, **POSTGRESQL, "SANDBOX": "local"}]
)
async def test_functions_that_could_not_work_on_the_runs_are_refused(variables: dict[str, str]) -> None:
    named = {"MODAL_WORKER_APP": APP, "SANDBOX": "modal", **variables}
    chosen = load_settings({f"THREADHAND_{name}": text for name, text in named.items()}, None)
    with pytest.raises(ConfigurationError, match="THREADHAND_MODAL_WORKER_APP"):
        await serve(chosen, with_worker=False)


async def test_a_worker_beside_the_functions_is_refused() -> None:
    named = {"MODAL_WORKER_APP": APP, "SANDBOX": "modal", **REDIS, **POSTGRESQL}
    chosen = load_settings({f"THREADHAND_{name}": text for name, text in named.items()}, None)
    for start in (serve(chosen, with_worker=True), serve_worker(chosen)):
        with pytest.raises(ConfigurationError, match="--no-worker"):
            await start
    with pytest.raises(ConfigurationError, match="--no-worker"):
        async with run_program(chosen):
            pass


async def test_an_app_that_is_deployed_anew_is_found_anew() -> None:
    async with staged() as (queue, stage, minute):
        stage.modal.faults.arm("FunctionMap", Status.NOT_FOUND, "no such function")
        await queue.put("a")
        await until(lambda: not queue._spawning)
        minute.open.clear()
        await queue.put("a")
        await until(lambda: called(stage) == ["a"])
        assert stage.modal.calls.count("FunctionGet") == 2
