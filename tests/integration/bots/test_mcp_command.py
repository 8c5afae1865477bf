"""`threadhand mcp` as another MCP client meets it: a process of its own, over stdio and over HTTP."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from core.mcp.settings import McpServerConfig
from tests.fakes.drawing import DRAWING, KEY
from tests.fakes.web_service import fake_web_service
from tests.integration.core.mcp.conftest import Guest, MakeGuest
from tests.integration.core.mcp.conftest import guest_of as guest_of
from tests.integration.sandbox.providers import local_jails, reachable_folder
from tests.paths import REPOSITORY
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


async def test_the_end_of_its_input_is_its_normal_end(folder: Path) -> None:
    with program(folder) as process:
        assert process.stdin is not None
        process.stdin.close()
        code = await asyncio.to_thread(process.wait, SECONDS)
    assert code == 0
    assert "Traceback" not in (folder / "log").read_text()


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


async def test_pictures_are_drawn_within_the_budget_of_a_run(folder: Path, guest_of: MakeGuest) -> None:
    async with fake_web_service(DRAWING) as service:
        drawing = {
            "IMAGE_MODEL": "openai/gpt-image-1",
            "IMAGE_API_KEY": KEY,
            "IMAGE_API_URL": f"{service.url}/v1",
            "FETCH_ALLOW": f"127.0.0.1:{service.port}",
            "BUDGET_RUN_USD": "0.05",
        }
        guest = guest_of(over_stdio(folder, **drawing), wait_seconds=SECONDS)
        await guest.look()
        asked = {"mode": "generate", "prompt": "a blue field"}
        answers = [await guest.call("mcp_own_image_edit_or_generate", **asked) for _ in range(3)]
    assert [one.result["success"] for one in answers] == [True, True, False]
    assert "used up the budget of a run" in str(answers[-1].result["output"])
    assert len(service.asked) == 2


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


async def test_over_stdio_a_signal_ends_it_and_nothing_but_mcp_is_on_stdout(folder: Path) -> None:
    with program(folder) as process:
        await logged(folder, r"MCP is served at (stdin)")
        assert threads(folder) == 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
    await until_nothing_is_left(folder)


async def test_what_a_killed_one_left_goes_when_the_next_begins_and_those_that_live_stay(
    folder: Path, guest_of: MakeGuest
) -> None:
    with program(folder, "--http", "0") as killed:
        address = await logged(folder, r"MCP is served at (http://127\.0\.0\.1:\d+/mcp)")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        guest = guest_of(McpServerConfig(name="own", transport="http", url=address, headers=bearer))
        await guest.look()
        await works(guest)
        await guest.servers.close()
        killed.kill()
        killed.wait(SECONDS)
    assert (threads(folder), len(workspaces(folder))) == (1, 1)

    with program(folder) as next_one:
        await logged(folder, r"MCP is served at (stdin)")
        assert (threads(folder), workspaces(folder)) == (1, [])
        with program(folder) as beside:
            await logged(folder, r"MCP is served at (stdin)")
            assert threads(folder) == 2
            for process in (next_one, beside):
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, SECONDS) == 0
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
