"""The functions at Modal, as this machine can run them: on a shared database, against the simulated Modal."""

import pytest

from bots import serverless
from bots.settings import Settings, load
from core.errors import ConfigurationError
from sandbox.modal_plan import HOME_TAG
from storage.sandboxes import SqlSandboxRecords
from tests.contracts.stores import ADDRESS
from tests.sandbox.modal_stage import modal_stage
from tests.storage.databases import opened
from tests.storage.databases import postgresql_url as postgresql_url


def settings(url: str, folder: object) -> Settings:
    return load(
        {
            "THREADHAND_DATABASE_URL": url,
            "THREADHAND_SANDBOX": "modal",
            "THREADHAND_MODAL_APP": "threadhand-test",
            "THREADHAND_DATA_DIR": str(folder),
        },
        None,
    )


def test_a_database_that_nobody_else_reaches_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(serverless, "load_process", lambda: settings("", tmp_path))
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        serverless._shared()


async def test_the_janitor_stops_what_is_idle_and_ends_what_nobody_remembers(
    postgresql_url: str, tmp_path: object
) -> None:
    chosen = settings(postgresql_url, tmp_path)
    async with opened(postgresql_url) as database, modal_stage() as stage:
        from bots.machines import modal_plan
        from sandbox.modal_sandboxes import ModalSandboxes
        from storage.conversations import SqlConversations

        conversations = SqlConversations(database)
        idle = (await conversations.create(ADDRESS)).thread_id
        records = SqlSandboxRecords(database)
        worker = ModalSandboxes(modal_plan(chosen), records)
        stage.workers.append(worker)
        await worker.open(idle, fence=1)
        stray = stage.modal.world.living()[0]
        await records.remove("modal", idle)
        stray.definition.name = "stray"
        stray.created_at -= 7200
        stray.tags["threadhand-born"] = "0"
        assert stray.tags[HOME_TAG]
        other = ModalSandboxes(modal_plan(chosen), records)
        stage.workers.append(other)
        await other.open(idle, fence=2)
        assert len(stage.living) == 2
        await serverless.tidy(chosen)
        assert stage.living == [f"thread.{idle}"]
        assert stray.result is not None
