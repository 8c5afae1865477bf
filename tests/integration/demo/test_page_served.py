"""`threadhand demo` with its page: the address, the end by Ctrl-C, a port that is taken."""

import asyncio
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.paths import REPOSITORY
from tests.support.narrow import require

PATIENCE_SECONDS = 120


@asynccontextmanager
async def demo(folder: Path, *arguments: str) -> AsyncGenerator[Process, None]:
    environ = {
        "PATH": os.environ["PATH"],  # noqa: TID251 - tests have no settings
        "HOME": str(folder),
        "PYTHONPATH": str(REPOSITORY),
        "THREADHAND_SANDBOX": "unsafe-process",
    }
    command = [sys.executable, "-m", "bots", "demo", *arguments]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environ, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_address_is_printed_and_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        line = ""
        while "http://" not in line:
            line = (await require(process.stdout).readline()).decode()
            assert line, "it ended without an address"
        found = require(re.search(r"http://127\.0\.0\.1:\d+/", line))
        async with aiohttp.ClientSession() as session, session.get(found.group()) as page:
            assert page.status == 200
            assert "Threadhand" in await page.text()
        process.send_signal(signal.SIGINT)
        _, complaints = await process.communicate()
        assert process.returncode == 130
        assert complaints == b""


async def test_a_port_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with demo(tmp_path, "--port", str(port)) as process:
            _, complaints = await process.communicate()
            assert process.returncode == 2
            told = complaints.decode()
            assert f"Port {port}" in told
            assert "Traceback" not in told
