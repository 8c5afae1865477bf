"""`threadhand mcp` as another MCP client meets it: a process of its own, over stdio and over HTTP."""

import asyncio
import fcntl
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from bots.bootstrap.mcp import McpSessions
from bots.bootstrap.program import run_program
from core.domain.errors import SandboxUnavailable
from core.domain.threads import Address
from core.mcp.settings import McpServerConfig
from core.run.worker_liveness import new_worker_id
from storage.sql.database import open_database
from storage.sql.stores.conversations import SqlConversations
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.integration.core.conftest import World
from tests.paths import REPOSITORY
from tests.support.closing import close_after
from tests.support.mcp_servers import Guest, MakeGuest
from tests.support.mcp_servers import guest_of as guest_of
from tests.support.narrow import require_type
from tests.support.sandboxes import local_jails, reachable_folder
from tests.support.settings import settings as settings_of
from tests.support.waiting import until
from tests.support.web import serve_http

TOKEN = "token-of-the-test"
SECONDS = 120


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    """Where the program keeps its data: a place that the user of a jail can reach."""
    async with local_jails():
        pass  # skipped where there can be none
    async with reachable_folder() as made:
        yield made


def settings(folder: Path, **more: str) -> dict[str, str]:
    given = {"PYTHONPATH": str(REPOSITORY), "THREADHAND_DATA_DIR": str(folder / "data"), "THREADHAND_API_TOKEN": TOKEN}
    return given | {f"THREADHAND_{name}": text for name, text in more.items()}


def over_stdio(folder: Path, **more: str) -> McpServerConfig:
    return McpServerConfig(
        name="own",
        transport="stdio",
        command=sys.executable,
        args=("-m", "bots", "mcp"),
        env=settings(folder, **more),
        cwd=str(folder),
        connect_timeout_seconds=SECONDS,
    )


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a child that is ended whatever happens; its log is a file beside its data."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder)}  # noqa: TID251 - a child needs its programs
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "bots", "mcp", *arguments],
            cwd=folder,
            env=kept | settings(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


async def logged(folder: Path, pattern: str) -> str:
    """The first group of the pattern, once the program's log has it."""
    found = await until(lambda: re.search(pattern, (folder / "log").read_text()))
    return found[1]


async def until_nothing_is_left(folder: Path) -> None:
    """The conversation and its workspace go with the program."""
    async with asyncio.timeout(SECONDS):
        while workspaces(folder) or threads(folder):
            await asyncio.sleep(0.05)


def workspaces(folder: Path) -> list[Path]:
    return list((folder / "data" / "sandboxes").glob("**/workspace"))


def threads(folder: Path) -> int:
    path = folder / "data" / "threadhand.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as opened:
        return opened.execute("SELECT count(*) FROM thread").fetchone()[0]


async def works(guest: Guest) -> None:
    """Files and shell sessions stay between the calls."""
    await guest.call("mcp_own_create_file", file_path="a.txt", file_contents="from afar")
    said = await guest.output("mcp_own_execute_command", command="cat a.txt", blocking=True, session_name="main")
    assert "from afar" in said


async def test_a_client_over_stdio_uses_the_agents_machine(folder: Path, guest_of: MakeGuest) -> None:
    guest = guest_of(over_stdio(folder), wait_seconds=SECONDS)
    names = {name.removeprefix("mcp_own_") for name in await guest.look()}

    assert {"execute_command", "create_file", "read_file", "search_knowledge"} <= names
    assert not names & {"ask", "complete", "planning", "expand_message", "read_chat", "ask_document"}
    assert "expose_port" not in names  # nothing serves its links: only Modal gives ports addresses
    await works(guest)
    assert "knowledge base is empty" in await guest.output("mcp_own_search_knowledge", query="x")
    assert workspaces(folder)
    await guest.servers.close()
    await until_nothing_is_left(folder)


async def test_a_client_over_http_needs_the_token(folder: Path, guest_of: MakeGuest) -> None:
    with program(folder, "--http", "0") as process:
        address = await logged(folder, r"MCP is served at (http://127\.0\.0\.1:\d+/mcp)")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        known = McpServerConfig(name="own", transport="http", url=address, headers=bearer)
        stranger = McpServerConfig(name="own", transport="http", url=address)

        guest = guest_of(known, wait_seconds=SECONDS)
        assert "mcp_own_execute_command" in await guest.look()
        await works(guest)
        assert await guest_of(stranger).look() == []
        await guest.servers.close()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, SECONDS) == 0
    assert TOKEN not in (folder / "log").read_text()
    await until_nothing_is_left(folder)


def test_over_http_a_token_must_be_set(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bots", "mcp", "--http", "0"],
        cwd=tmp_path,
        env=settings(tmp_path) | {"THREADHAND_API_TOKEN": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "set THREADHAND_API_TOKEN" in result.stderr
    assert not (tmp_path / "data").exists()


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
    (folder := tmp_path / "mcp").mkdir()
    return McpSessions(folder=folder, conversations=SqlConversations(world.database), sandboxes=Destroyed())


async def left(sessions: McpSessions, name: str) -> str:
    """The thread of a session that was killed."""
    (sessions.folder / name).touch()
    address = Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)
    return (await sessions.conversations.create(address)).thread_id


async def is_there(sessions: McpSessions, thread_id: str) -> bool:
    return await sessions.conversations.snapshot(thread_id) is not None


@contextmanager
def alive(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


async def test_sessions_that_live_and_those_of_other_machines_are_left_alone(sessions: McpSessions) -> None:
    foreign = await left(sessions, "elsewhere-00000000-1-abcdef")
    longer = await left(sessions, f"x{new_worker_id()}")
    async with sessions.open_session() as own:
        other = new_worker_id()
        thread_id = await left(sessions, other)
        with alive(sessions.folder / other):
            await sessions.delete_dead_sessions()
        for one in (foreign, longer, own, thread_id):
            assert await is_there(sessions, one)
    assert require_type(sessions.sandboxes, Destroyed).gone == [own]


async def test_the_program_clears_away_what_a_killed_session_left(tmp_path: Path) -> None:
    variables = {"SANDBOX": "none", "HTTP_PORT": "0", "MODEL": "m", "LLM_BASE_URL": "http://127.0.0.1:1/v1"}
    chosen = settings_of(DATA_DIR=str(tmp_path), **variables)
    async with close_after(await open_database(chosen.storage_url)) as database:
        conversations = SqlConversations(database)
        folder = tmp_path / "mcp"
        folder.mkdir()
        thread_id = await left(McpSessions(folder=folder, conversations=conversations, sandboxes=None), new_worker_id())
        async with run_program(chosen), asyncio.timeout(30):
            while await conversations.snapshot(thread_id) is not None or any(folder.iterdir()):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def readers() -> AsyncIterator[str]:
    """The base URL of an endpoint whose model answers every question in one word."""

    async def answer(_request: web.Request) -> web.Response:
        choice = {"message": {"content": "Paris"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 90, "completion_tokens": 10}
        return web.json_response({"choices": [choice], "usage": usage})

    async with serve_http(answer) as url:
        yield f"{url}/v1"


async def test_with_a_model_documents_can_be_asked_about_within_the_budget_of_a_run(
    folder: Path, guest_of: MakeGuest
) -> None:
    async with readers() as base_url:
        model = {"MODEL": "m", "LLM_BASE_URL": base_url, "BUDGET_RUN_TOKENS": "450"}
        guest = guest_of(over_stdio(folder, **model), wait_seconds=SECONDS)
        await guest.look()
        await guest.call("mcp_own_create_file", file_path="a.txt", file_contents="It is Paris.")
        asked = {"file_path": "a.txt", "question": "Which city?"}

        assert "Paris" in await guest.output("mcp_own_ask_document", **asked)
        answers = [await guest.call("mcp_own_ask_document", **asked) for _ in range(5)]
        assert "used up the budget of a run" in str(answers[-1].result["output"])


async def test_what_cannot_be_deleted_now_is_deleted_later(
    sessions: McpSessions, caplog: pytest.LogCaptureFixture
) -> None:
    name = new_worker_id()
    thread_id = await left(sessions, name)
    sandboxes = require_type(sessions.sandboxes, Destroyed)
    sandboxes.is_away = True
    await sessions.delete_dead_sessions()
    assert await is_there(sessions, thread_id)
    assert "was not deleted: away" in caplog.text
    sandboxes.is_away = False
    await sessions.delete_dead_sessions()
    assert not await is_there(sessions, thread_id)


async def test_without_a_folder_for_locks_a_session_works_all_the_same(
    sessions: McpSessions, caplog: pytest.LogCaptureFixture
) -> None:
    (sessions.folder.parent / "file").touch()
    async with replace(sessions, folder=sessions.folder.parent / "file").open_session() as thread_id:
        assert await is_there(sessions, thread_id)
    assert not await is_there(sessions, thread_id)
    assert "will not be deleted" in caplog.text
