"""The functions at Modal, as this machine can run them: on a shared database, against the simulated Modal."""

import asyncio
from functools import partial

import pytest

from bots import modal_worker
from bots.bootstrap.background_jobs import repeat_job
from bots.bootstrap.sandboxes import build_modal_plan
from bots.demo.scripted_model import serve_scenario
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError
from core.run.worker import HEARTBEAT_SECONDS
from core.tasks import cancel, spawn
from sandbox.modal.config import HOME_TAG
from sandbox.modal.provider import ModalSandboxProvider
from simulator.model.scenario import load_scenario
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.sandboxes import SqlSandboxRecords
from tests.contracts.stores import ADDRESS, stores_over
from tests.databases import opened
from tests.databases import postgresql_url as postgresql_url
from tests.support.modal_stage import modal_stage
from tests.support.narrow import require

STORY = """
conversations:
  - name: keep
    when: {user: {contains: "hello"}}
    steps:
      - calls: [{name: create_file, arguments: {file_path: kept.txt, file_contents: "by a function"}}]
      - text: "It is kept."
"""


def settings(url: str, folder: object, **more: str) -> Settings:
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
    monkeypatch.setattr(modal_worker, "load_process_settings", lambda: settings("", tmp_path))
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        modal_worker._load_settings()


async def test_the_janitor_stops_what_is_idle_and_ends_what_nobody_remembers(
    postgresql_url: str, tmp_path: object
) -> None:
    chosen = settings(postgresql_url, tmp_path)
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
        chosen = settings(
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
            await modal_worker.execute_run(receipt.run_id, settings(postgresql_url, tmp_path))
        assert await claims.held_leases("other") == (lease,)
        await cancel(beating)
