"""What sessions of MCP clients leave that were killed, and who clears it away."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bots.bootstrap.mcp import McpSessions
from bots.bootstrap.program import run_program
from bots.settings import load_settings
from core.domain.errors import SandboxUnavailable
from core.domain.threads import Address
from core.run.worker_liveness import new_worker_id
from storage.sql.database import open_database
from storage.sql.stores.conversations import SqlConversations
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world
from tests.support.closing import close_after


@dataclass
class Destroyed(MemorySandboxes):
    """Sandboxes that remember which were destroyed, and may be unable to."""

    is_away: bool = False
    gone: list[str] = field(default_factory=list)

    async def destroy(self, thread_id: str) -> None:
        if self.is_away:
            raise SandboxUnavailable("away")
        self.gone.append(thread_id)


@pytest.fixture
def sessions(world: World, tmp_path: Path) -> McpSessions:
    folder = tmp_path / "mcp"
    folder.mkdir()
    return McpSessions(folder=folder, conversations=SqlConversations(world.database), sandboxes=Destroyed())


def place(name: str) -> Address:
    return Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)


async def left(sessions: McpSessions, name: str) -> str:
    """The thread of a session that was killed."""
    (sessions.folder / name).touch()
    return (await sessions.conversations.create(place(name))).thread_id


async def is_there(sessions: McpSessions, thread_id: str) -> bool:
    return await sessions.conversations.snapshot(thread_id) is not None


def destroyed(sessions: McpSessions) -> list[str]:
    assert isinstance(sessions.sandboxes, Destroyed)
    return sessions.sandboxes.gone


@contextmanager
def alive(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


async def test_a_session_leaves_nothing_behind(sessions: McpSessions) -> None:
    async with sessions.open_session() as thread_id:
        assert await is_there(sessions, thread_id)
        assert len(list(sessions.folder.iterdir())) == 1
    assert not await is_there(sessions, thread_id)
    assert destroyed(sessions) == [thread_id]
    assert list(sessions.folder.iterdir()) == []


async def test_the_next_session_clears_away_what_a_killed_one_left(sessions: McpSessions) -> None:
    thread_id = await left(sessions, new_worker_id())
    async with sessions.open_session() as own:
        assert destroyed(sessions) == [thread_id]
        assert not await is_there(sessions, thread_id)
        assert await is_there(sessions, own)


async def test_sessions_before_the_machine_started_anew_are_cleared_away(sessions: McpSessions) -> None:
    host, _, pid, last = new_worker_id().rsplit("-", 3)
    thread_id = await left(sessions, f"{host}-00000000-{pid}-{last}")
    await sessions.delete_dead()
    assert not await is_there(sessions, thread_id)


async def test_sessions_that_live_and_those_of_other_machines_are_left_alone(sessions: McpSessions) -> None:
    foreign = await left(sessions, "elsewhere-00000000-1-abcdef")
    longer = await left(sessions, f"x{new_worker_id()}")
    async with sessions.open_session() as own:
        other = new_worker_id()
        thread_id = await left(sessions, other)
        with alive(sessions.folder / other):
            await sessions.delete_dead()
        for one in (foreign, longer, own, thread_id):
            assert await is_there(sessions, one)
    assert destroyed(sessions) == [own]


async def test_what_cannot_be_deleted_now_is_deleted_later(
    sessions: McpSessions, caplog: pytest.LogCaptureFixture
) -> None:
    name = new_worker_id()
    thread_id = await left(sessions, name)
    assert isinstance(sessions.sandboxes, Destroyed)
    sessions.sandboxes.is_away = True
    await sessions.delete_dead()
    assert await is_there(sessions, thread_id)
    assert "was not deleted: away" in caplog.text
    sessions.sandboxes.is_away = False
    await sessions.delete_dead()
    assert not await is_there(sessions, thread_id)


async def test_without_a_folder_for_locks_a_session_works_all_the_same(
    sessions: McpSessions, caplog: pytest.LogCaptureFixture
) -> None:
    (sessions.folder.parent / "file").touch()
    async with replace(sessions, folder=sessions.folder.parent / "file").open_session() as thread_id:
        assert await is_there(sessions, thread_id)
    assert not await is_there(sessions, thread_id)
    assert "will not be deleted" in caplog.text


async def test_the_program_clears_away_what_a_killed_session_left(tmp_path: Path) -> None:
    variables = {"DATA_DIR": str(tmp_path), "SANDBOX": "none", "HTTP_PORT": "0"}
    variables |= {"MODEL": "m", "LLM_BASE_URL": "http://127.0.0.1:1/v1"}
    settings = load_settings({f"THREADHAND_{name}": text for name, text in variables.items()}, None)
    async with close_after(await open_database(settings.storage_url)) as database:
        conversations = SqlConversations(database)
        folder = tmp_path / "mcp"
        folder.mkdir()
        thread_id = await left(McpSessions(folder=folder, conversations=conversations, sandboxes=None), new_worker_id())
        async with run_program(settings), asyncio.timeout(30):
            while await conversations.snapshot(thread_id) is not None or any(folder.iterdir()):
                await asyncio.sleep(0.02)
