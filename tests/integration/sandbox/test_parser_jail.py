"""What a document that takes over its parser finds: a jail without a network and without anybody's files."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from core.domain.errors import DocumentError
from core.knowledge.parsing.parser_process import set_child_confinement
from core.web_access.pictures import prepare_picture
from sandbox.local.jail_requirements import MissingRequirement
from sandbox.local.parser_jail import ParserJail, require_parser_jail
from sandbox.local.process_table import is_alive
from tests.fakes.made_pictures import heic, noise
from tests.fixtures.documents.make import FOLDER
from tests.integration.core.knowledge.test_document_corpus import EXPECTED, shown_text
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking
from tests.support import made_files
from tests.support.made_files import parsed


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParserJail]:
    try:
        found = require_parser_jail(tmp_path_factory.mktemp("data") / "sandboxes" / "programs")
    except MissingRequirement as missing:
        lacking("jail", str(missing))
    set_child_confinement(found.confine)
    yield found
    set_child_confinement(None)


ATTACK = """
import os, socket, subprocess, sys, threading
def attempt(name, act):
    try:
        print(name, act())
    except Exception as error:
        pass
attempt("connected", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2))
attempt("environment", lambda: os.environ.get("SECRET") or 1 / 0)
attempt("processes", lambda: [p for p in os.listdir("/proc") if p.isdigit() and int(p) > 3] or 1 / 0)
for path in sys.argv[2:]:
    attempt("read", lambda: open(path).read(1) and path)
for path in ("/", "/usr", "/dev", os.getcwd()):
    attempt("wrote", lambda: open(f"{path}/made", "w") and path)
attempt("forked", lambda: os.fork() or os._exit(0))
attempt("started", lambda: subprocess.run(["/bin/true"]))
attempt("threads", lambda: threading.Thread(target=str).start() or "start")
print("capabilities", open("/proc/self/status").read().split("CapEff:")[1].split()[0])
print("done")
"""


def test_a_parser_that_was_taken_over_finds_nothing(
    jail: ParserJail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    (tmp_path / "secret").write_text("x")
    secrets = [tmp_path / "secret", "/etc/hostname", "/etc/shadow", REPOSITORY / "pyproject.toml"]
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", ATTACK, port, *map(str, secrets)]
        confined = jail.confine(command, stack)
        done = subprocess.run(confined.arguments, capture_output=True, text=True, check=False, **confined.options)
    assert done.stdout == "threads start\ncapabilities 0000000000000000\ndone\n", done.stderr


async def test_documents_and_pictures_are_read_there(jail: ParserJail) -> None:
    document = await parsed(made_files.pdf(["Hello from a page"]), "a.pdf")
    assert "Hello from a page" in document.pages[0].text
    picture = await prepare_picture(noise((300, 200)), name="a.png")
    assert (picture.width, picture.height) == (300, 200)
    photo = await prepare_picture(heic(), name="a.heic")
    assert (photo.width, photo.height) == (48, 64)
    with pytest.raises(DocumentError, match="takes too long"):
        await parsed(made_files.pdf(["word " * 500] * 4_000), "slow.pdf", cpu_seconds_max=1)


async def test_every_kind_of_document_is_read_there(jail: ParserJail) -> None:
    """Some readers have native code, which starts threads."""
    row_of_kind = {Path(name).suffix: name for name, row in EXPECTED.items() if "shows" in row}
    for name in row_of_kind.values():
        document = await parsed((FOLDER / name).read_bytes(), name)
        assert str(EXPECTED[name]["shows"][0]) in shown_text(document), name
    assert {Path(name).suffix for name in EXPECTED} == {*row_of_kind, ".pages", ".dat", ".msg"}


async def test_a_reading_that_is_cancelled_at_any_moment_leaves_no_process(jail: ParserJail) -> None:
    content = made_files.pdf(["word " * 500] * 4_000)
    mark = f"cancelled-{os.getpid()}.pdf"
    for tenths in [*range(0, 100, 2), *range(100, 800, 50)]:
        reading = asyncio.ensure_future(parsed(content, mark))
        await asyncio.sleep(tenths / 10_000)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    async with asyncio.timeout(30):
        while readers_of(mark):  # those that are killed end a moment later
            await asyncio.sleep(0.01)


def readers_of(mark: str) -> list[int]:
    """Returns the processes whose command names the document."""
    found: list[int] = []
    for name in [one.name for one in Path("/proc").iterdir() if one.name.isdigit()]:
        with suppress(OSError):
            if mark in Path(f"/proc/{name}/cmdline").read_text() and is_alive(int(name)):
                found.append(int(name))
    return found


def test_without_bubblewrap_the_way_is_called_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bots.bootstrap.sandboxes import confine_parsers
    from bots.settings import load_settings
    from sandbox.local import jail_requirements

    monkeypatch.setattr(jail_requirements, "SYSTEM_PATH", "/nonexistent")
    monkeypatch.setattr(jail_requirements.importlib.util, "find_spec", lambda name: None)
    settings = load_settings({"THREADHAND_DATA_DIR": str(tmp_path)}, None)
    assert confine_parsers(settings).startswith("UNSAFE: documents and pictures are parsed outside")
