"""Uses Modal itself, for owners of an account: shows what the simulated Modal cannot."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import modal
import modal.exception
from aiohttp import ClientSession

from core.domain.errors import RunError, ToolError
from core.ports import Sandbox
from sandbox.memory_records import MemorySandboxRecords
from sandbox.modal.config import ModalConfig
from sandbox.modal.provider import ModalSandboxProvider
from sandbox.modal.snapshots import PROVIDER

APP = "threadhand-live"
BUILD_SECONDS = 1800.0
ResultT = TypeVar("ResultT")
WORD = b"kept by a snapshot"
FILES = 5
SERVER = (
    'python3 -c \'import http.server as h; s = h.HTTPServer(("", 0), h.SimpleHTTPRequestHandler);'
    ' open("port", "w").write(str(s.server_port)); s.serve_forever()\''
)
"""Serves the workspace on a port that it writes to the file `port`."""


async def run_smoke_test() -> None:
    """Raises AssertionError, RunError or ToolError at the first failure."""
    plan = ModalConfig(app=APP, start_seconds=BUILD_SECONDS, snapshot_days=1)
    records = MemorySandboxRecords()
    provider = ModalSandboxProvider(plan, records)
    thread_id = f"live-{secrets.token_hex(6)}"
    try:
        probed = await provider.probe()
        _expect(probed.ok, f"the account answers ({probed.reason} {probed.remedy})")
        sandbox = await _time("first sandbox, with its image", provider.open(thread_id, fence=1))
        said = await _time("first command", _run_command(sandbox, "uname -a; python3 -V; node -v"))
        _print_line(said)
        for command, wanted in CHECKS:
            said = await _run_command(sandbox, command)
            _expect(wanted in said, f"{command!r} says {wanted!r} (it says {said[-200:]!r})")
        again = await _check_snapshot_chain(provider, records, thread_id, sandbox)
        walls = [await _milliseconds(lambda: _run_command(again, "true")) for _ in range(20)]
        _print_line(f"a command takes {sorted(walls)[10]:.0f} ms")
        await _check_port_address(replace(plan, egress=("*",)), f"{thread_id}-web")
    finally:
        await provider.destroy(thread_id)
        await provider.close()


async def _check_snapshot_chain(
    provider: ModalSandboxProvider, records: MemorySandboxRecords, thread_id: str, sandbox: Sandbox
) -> Sandbox:
    """Saves, restores, saves again, which deletes the first snapshot, reads files that this life has not touched, and
    restores once more: a snapshot must not depend on the one that it was started from."""
    for number in range(FILES):
        await sandbox.files.write(f"cold/{number}", _pieces(WORD * (number + 1)))
    await _time("saved and stopped", sandbox.close())
    first_snapshot = await _snapshot_ref(records, thread_id)
    second = await _time("restored", provider.open(thread_id, fence=2))
    await second.files.write("second", _pieces(WORD))
    provider.release(thread_id)
    await _time("saved again, and the first snapshot deleted", provider.wait_for_saves())
    _expect(await _snapshot_ref(records, thread_id) != first_snapshot, "there is a second snapshot")
    _expect(not await _has_image(first_snapshot), "the first snapshot is gone")
    for number in range(FILES):
        read = await _read(second, f"cold/{number}")
        _expect(read == WORD * (number + 1), f"cold file {number} is there")
    await _time("saved and stopped", second.close())
    third = await _time("restored from the second snapshot", provider.open(thread_id, fence=3))
    for number in range(FILES):
        read = await _read(third, f"cold/{number}")
        _expect(read == WORD * (number + 1), f"the file came back: {number}")
    _expect(await _read(third, "second") == WORD, "the file of the second life came back")
    return third


async def _snapshot_ref(records: MemorySandboxRecords, thread_id: str) -> str:
    record = await records.find(PROVIDER, thread_id)
    _expect(record is not None and bool(record.snapshot_ref), "the snapshot is recorded")
    return str(record and record.snapshot_ref)


async def _has_image(image_id: str) -> bool:
    app = await modal.App.lookup.aio(APP)
    try:
        await modal.Image.from_id(image_id).build.aio(app)
    except modal.exception.NotFoundError:
        return False
    return True


async def _read(sandbox: Sandbox, path: str) -> bytes:
    return b"".join([piece async for piece in sandbox.files.read(path)])


CHECKS = (
    ("command -v chromium pandoc jq rg weasyprint antiword unrtf catdoc | wc -l", "8"),
    ("node -v", "v24."),
    ("python3 -c 'import matplotlib, pandas, playwright; print(\"packages\")'", "packages"),
    ("curl -sS -m 5 https://example.com >/dev/null 2>&1 || echo closed", "closed"),
    ("env | grep -ci -e token -e secret -e api_key || true", "0"),
    ("fc-list | grep -ci -e 'cjk' -e 'emoji' | awk '{print ($1 > 0) ? \"fonts\" : \"none\"}'", "fonts"),
)


async def _check_port_address(plan: ModalConfig, thread_id: str) -> None:
    """Opens the address of a web server inside, as a user's browser does."""
    provider = ModalSandboxProvider(plan, MemorySandboxRecords())
    try:
        sandbox = await provider.open(thread_id, fence=1)
        await sandbox.shell.execute(SERVER, session="web", folder=None, timeout_seconds=0)
        port = int(await _run_command(sandbox, "until [ -s port ]; do sleep 0.1; done; cat port"))
        address = await sandbox.find_port_url(port)
        _expect(address is not None, "Modal gives a port an address")
        async with ClientSession() as browser, browser.get(str(address)) as answer:
            _expect("port" in await answer.text(), f"it leads inside (status {answer.status})")
        async with ClientSession() as stranger, stranger.get(str(address).split("?")[0]) as answer:
            _expect(answer.status in {401, 403}, "the address needs its token")
    finally:
        await provider.destroy(thread_id)
        await provider.close()


async def _run_command(sandbox: Sandbox, command: str) -> str:
    done = await sandbox.shell.execute(command, session="live", folder=None, timeout_seconds=60)
    return done.output.strip()


async def _time(what: str, work: Awaitable[ResultT]) -> ResultT:
    started = time.monotonic()
    result = await work
    _print_line(f"{what}: {time.monotonic() - started:.1f} s")
    return result


async def _milliseconds(work: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await work()
    return (time.monotonic() - started) * 1000


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
    _print_line(f"ok: {what}")


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    try:
        asyncio.run(run_smoke_test())
    except (AssertionError, RunError, ToolError) as error:
        detail = error.detail if isinstance(error, RunError) else ""
        sys.exit(f"FAILED: {error} {detail}")


if __name__ == "__main__":
    main()
