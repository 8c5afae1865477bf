"""Runs that are handed over to functions: once a minute at most, and without a wait for whoever hands them over."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import modal
import pytest
from grpclib import Status

from bots import modal_worker
from bots.bootstrap.background_jobs import repeat_job, requeue_orphaned_runs
from bots.bootstrap.program import run_program, serve, serve_worker
from bots.bootstrap.sandboxes import build_modal_plan
from bots.demo.scripted_model import serve_scenario
from bots.modal_worker import SingleRunQueue
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError
from core.run.worker import HEARTBEAT_SECONDS
from core.tasks import cancel, spawn
from sandbox.modal.account import ModalAccount
from sandbox.modal.config import HOME_TAG
from sandbox.modal.provider import ModalSandboxProvider
from sandbox.modal.run_queue import ModalRunQueue, open_modal_run_queue
from simulator.model.scenario import load_scenario
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.sandboxes import SqlSandboxRecords
from tests.contracts.stores import ADDRESS, stores_over
from tests.databases import opened
from tests.databases import postgresql_url as postgresql_url
from tests.integration.simulator.modal.deployment import published
from tests.support.modal_stage import Stage, modal_stage
from tests.support.narrow import require
from tests.support.settings import settings
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
    chosen = settings(**{"MODAL_WORKER_APP": APP, "SANDBOX": "modal", **variables})
    with pytest.raises(ConfigurationError, match="THREADHAND_MODAL_WORKER_APP"):
        await serve(chosen, with_worker=False)


async def test_a_worker_beside_the_functions_is_refused() -> None:
    chosen = settings(MODAL_WORKER_APP=APP, SANDBOX="modal", **REDIS, **POSTGRESQL)
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


STORY = """
conversations:
  - name: keep
    when: {user: {contains: "hello"}}
    steps:
      - calls: [{name: create_file, arguments: {file_path: kept.txt, file_contents: "by a function"}}]
      - text: "It is kept."
"""


def worker_settings(url: str, folder: object, **more: str) -> Settings:
    return load_settings(
        {
            **{f"THREADHAND_{name.upper()}": text for name, text in more.items()},
            "THREADHAND_DATABASE_URL": url,
            "THREADHAND_SANDBOX": "modal",
            "THREADHAND_MODAL_APP": "threadhand-test",
            "THREADHAND_DATA_DIR": str(folder),
        },
        None,
    )


def test_a_database_that_nobody_else_reaches_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(modal_worker, "load_process_settings", lambda: worker_settings("", tmp_path))
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        modal_worker._load_settings()


async def test_the_janitor_stops_what_is_idle_and_ends_what_nobody_remembers(
    postgresql_url: str, tmp_path: object
) -> None:
    chosen = worker_settings(postgresql_url, tmp_path)
    async with opened(postgresql_url) as database, modal_stage() as stage:
        conversations = SqlConversations(database)
        idle = (await conversations.create(ADDRESS)).thread_id
        records = SqlSandboxRecords(database)
        worker = ModalSandboxProvider(build_modal_plan(chosen), records)
        stage.workers.append(worker)
        await worker.open(idle, fence=1)
        stray = stage.modal.world.living()[0]
        await records.remove("modal", idle)
        stray.definition.name = "stray"
        stray.created_at -= 7200
        stray.tags["threadhand-born"] = "0"
        assert stray.tags[HOME_TAG]
        other = ModalSandboxProvider(build_modal_plan(chosen), records)
        stage.workers.append(other)
        await other.open(idle, fence=2)
        assert len(stage.living) == 2
        await modal_worker.sweep_sandboxes(chosen)
        assert stage.living == [f"thread.{idle}"]
        assert stray.is_ending
        assert stray.exit_image_id
        assert stage.exit_snapshots == []


async def test_a_function_executes_one_run_to_its_end(postgresql_url: str, tmp_path: object) -> None:
    async with (
        opened(postgresql_url) as database,
        modal_stage() as stage,
        serve_scenario(load_scenario(STORY)) as model,
    ):
        receipt = await stores_over(database).say("hello")
        assert receipt.run_id is not None
        chosen = worker_settings(
            postgresql_url, tmp_path, model="openai/scripted", llm_base_url=model.base_url, llm_api_key="scripted"
        )
        await modal_worker.execute_run(receipt.run_id, chosen)
        conversations = SqlConversations(database)
        assert require(await conversations.run(receipt.run_id)).status == "completed"
        asked = len(model.requests)
        await modal_worker.execute_run(receipt.run_id, chosen)
        assert len(model.requests) == asked
        assert stage.living == [f"thread.{receipt.thread_id}"]  # saved, and left to the janitor
        record = require(await SqlSandboxRecords(database).find("modal", receipt.thread_id))
        assert record.snapshot_ref in stage.snapshots


async def test_a_function_leaves_a_run_alone_that_a_living_worker_has(postgresql_url: str, tmp_path: object) -> None:
    async with opened(postgresql_url) as database, modal_stage():
        receipt = await stores_over(database).say("hello")
        assert receipt.run_id is not None
        claims = SqlRunClaims(database)
        await claims.heartbeat("other")
        lease = require(await claims.claim(receipt.run_id, "other"))
        beating = spawn(
            repeat_job("beat", HEARTBEAT_SECONDS, partial(claims.heartbeat, "other")), name="the other worker's heart"
        )
        async with asyncio.timeout(30):
            await modal_worker.execute_run(receipt.run_id, worker_settings(postgresql_url, tmp_path))
        assert await claims.held_leases("other") == (lease,)
        await cancel(beating)
