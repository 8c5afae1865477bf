"""No line of the log repeats what people or the model wrote, whoever puts it into an error."""

import errno
import io
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bots.bootstrap.mcp import build_mcp_servers
from bots.observability.log_redaction import format_traceback, redact_library_message
from bots.observability.logs import JsonFormatter, TextFormatter, configure_logging
from bots.settings import load_settings
from core.domain.errors import RunError, StorageUnavailable, ToolError
from core.mcp.secrets import secret_values
from core.mcp.settings import McpServerConfig, parse_servers
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.paths import FAKES, REPOSITORY
from tests.support.closing import close_after

PROMPT = "my-private-prompt"

BREAKING = """
import asyncio, gc, logging, sys, threading, warnings
from bots.__main__ import _load_settings
from core.tasks import spawn

PROMPT = "-".join(("my", "private", "prompt"))
_load_settings()
library = logging.getLogger("slack_bolt.App")

def broken(*_):
    raise ValueError(PROMPT)

async def chained():
    try:
        broken()
    except ValueError as error:
        raise KeyError(PROMPT) from error

async def grouped():
    async with asyncio.TaskGroup() as group:
        group.create_task(chained())

class Dying:
    def __del__(self):
        broken()

async def main():
    loop = asyncio.get_running_loop()
    for work in (chained(), grouped()):
        await asyncio.wait([spawn(work, name="work")])
    await asyncio.wait([loop.create_task(chained())])
    loop.create_future().set_exception(ValueError(PROMPT))
    loop.call_soon(broken, PROMPT)
    await asyncio.sleep(0)
    gc.collect()
    try:
        broken()
    except ValueError as error:
        library.error(f"Failed to run listener function (error: {error})")
        library.error("Failed: %r", error)
        library.exception("Failed")
    library.error("%d of them", PROMPT)
    warnings.warn(f"unexpected value {PROMPT}")
    thread = threading.Thread(target=broken)
    thread.start()
    await asyncio.to_thread(thread.join)
    Dying()

asyncio.run(main())
broken()
"""


def broken_program(folder: Path, **variables: str) -> str:
    """What the program writes to stderr while everything breaks that can."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # noqa: TID251 - for a child
    given = {f"THREADHAND_{name}": text for name, text in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", BREAKING],
        cwd=folder,
        env={**kept, **given, "PYTHONPATH": str(REPOSITORY), "THREADHAND_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_of_a_program_in_which_everything_breaks_has_no_word_of_it(tmp_path: Path, log_format: str) -> None:
    told = broken_program(tmp_path, LOG_FORMAT=log_format)
    assert PROMPT not in told
    lines = told.splitlines()
    if log_format == "json":
        lines = [f"{entry['message']} {entry.get('trace', '')}" for entry in map(json.loads, lines)]
    for said in (
        "the task work failed",
        "Task exception was never retrieved",
        "Future exception was never retrieved",
        "Exception in callback broken(...)",
        "Failed to run listener function (error: ValueError)",
        "Failed: ValueError",
        "UserWarning",
        "an entry of the log was lost (TypeError), made at ",
        "a thread broke",
        "an error could not be raised",
        "the program broke",
    ):
        assert any(said in line for line in lines), (said, told)
    assert sum("in broken" in line for line in lines) >= 7
    assert sum("KeyError: (19 characters left out)" in line for line in lines) >= 3


def test_whoever_sets_the_level_to_debug_sees_it(tmp_path: Path) -> None:
    assert PROMPT in broken_program(tmp_path, LOG_LEVEL="DEBUG")


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "headline"),
    [
        (StorageUnavailable("disk I/O error"), "core.domain.errors.StorageUnavailable: disk I/O error"),
        (RunError("The model is away."), "core.domain.errors.RunError: The model is away."),
        (ToolError(PROMPT), "core.domain.errors.ToolError: (17 characters left out)"),
        (ValueError(PROMPT), "ValueError: (17 characters left out)"),
        (ValueError(), "ValueError"),
        (FileNotFoundError(errno.ENOENT, PROMPT, PROMPT), "FileNotFoundError: [Errno 2] No such file or directory"),
        (OSError(PROMPT), "OSError: (17 characters left out)"),
        (socket.gaierror(-2, PROMPT), "socket.gaierror: ("),
        (ssl.SSLError(1, PROMPT), "ssl.SSLError: ("),
        (ExceptionGroup(PROMPT, [ValueError(PROMPT)]), "ExceptionGroup: 1 inside"),
        (json.JSONDecodeError(PROMPT, PROMPT, 0), "json.decoder.JSONDecodeError: ("),
    ],
)
def test_of_an_error_its_kind_and_place_are_told_and_our_own_words(error: Exception, headline: str) -> None:
    told = format_traceback(caught(error))
    assert "in caught\n    raise error from cause\n" in told
    assert headline in told
    assert PROMPT not in told


def test_errors_that_name_each_other_are_told_once() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert format_traceback(first).count("ValueError") == 1


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(PROMPT)

    __repr__ = __str__


def test_an_error_that_cannot_say_what_it_is_spoils_no_line() -> None:
    error = caught(Unspeakable())
    assert format_traceback(error).endswith("Unspeakable")
    assert redact_library_message("library", "it broke", error) == "it broke"


def logged(how: Callable[[logging.Logger, Exception], None], name: str) -> list[str]:
    """The lines of a logger that is handed an error in each format."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(form.format(record) for form in (TextFormatter(), JsonFormatter()))

    logger, kept = logging.getLogger(name), Kept()
    logger.addHandler(kept)
    try:
        raise ValueError(PROMPT)
    except ValueError as error:
        how(logger, error)
    finally:
        logger.removeHandler(kept)
    return lines


def test_a_library_that_words_an_error_itself_is_not_repeated() -> None:
    lines = logged(lambda log, error: log.error("it broke: %s, %r", error, error), "library")
    assert [line.count("it broke: ValueError, ValueError") for line in lines] == [1, 1]


def test_what_we_say_of_an_error_stays_but_for_what_a_service_quotes() -> None:
    quoting = "400 [{'loc': ('body',), 'input': {'content': 'my-private-prompt'}}]"
    (text, as_json) = logged(lambda log, _: log.warning("it refused: %s", quoting), "core.loop.loop")
    assert PROMPT not in text + as_json
    assert "it refused: 400 [{'loc': ('body',), 'input': ..." in text


def test_of_a_long_chain_the_newest_are_told() -> None:
    newest = ValueError("0")
    error: BaseException = newest
    for number in range(2000):
        error.__context__ = error = ValueError(str(number))
    told = format_traceback(newest)
    assert 10 <= told.count("ValueError") <= 50


FAKE = FAKES / "mcp_server.py"
SECRET = "hush-4711-nobody-hears"
GONE = "word-of-a-server-that-is-gone"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """All that the program would log."""
    said, root = io.StringIO(), logging.getLogger()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", said)
    configure_logging("DEBUG")
    yield said
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)


async def test_a_server_that_echoes_its_secret_in_an_error_does_not_spread_it(
    world: World, log: io.StringIO, tmp_path: Path
) -> None:
    servers = {
        "fake": {
            "command": sys.executable,
            "args": [str(FAKE), "stdio"],
            "env": {"SERVICE_TOKEN": SECRET},
            "needs_approval": [],
        },
        "gone": {"url": f"http://127.0.0.1:1/mcp?key={GONE}", "headers": {"Authorization": f"Bearer {GONE}"}},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"servers": servers}))
    async with close_after(
        build_mcp_servers(load_settings({"THREADHAND_MCP_CONFIG": str(file)}, Path("no such file")))
    ) as held:
        held.connect_all()
        while not (tools := await held.tools()):
            pass
        world.model.turns = [calls(("mcp_fake_leak", "{}")), text("done")]
        engine = world.with_deps(toolbox=ToolSet({tool.name: tool for tool in tools}))
        run_id = await engine.run("go")

    told = " ".join(str(one.content) for one in await world.messages(run_id))
    assert "401 for https://service.example/?key=[secret]" in told
    events = str(await world.events(run_id))
    sent = str(world.model.requests)
    lines = log.getvalue()
    assert "MCP server fake: GET https://service.example/?key=" in lines
    assert "the MCP server gone cannot be reached" in lines
    for secret in (SECRET, GONE):
        assert not any(secret in one for one in (told, events, sent, lines))


def test_what_is_secret_of_a_server_is_known_by_where_it_stands() -> None:
    (server,) = parse_servers(
        """
servers:
  one:
    command: server
    args: ["--key", "${KEY}", "--home", "${HOME}"]
    env: {API_TOKEN: literal-token, LOG_LEVEL: information, SHORT_KEY: abc, KEY_FILE: /srv/key.pem}
""",
        {"KEY": "by-reference", "HOME": "/home/somebody"},
    )
    assert secret_values(server) == ("literal-token", "by-reference")


def test_of_a_header_the_whole_and_the_word_after_its_scheme_are_secret() -> None:
    server = McpServerConfig(
        name="one",
        transport="http",
        url="https://one.example/mcp",
        headers={"Authorization": "Bearer word-of-mouth", "Accept-Language": "en-GB,en;q=0.9"},
    )
    assert secret_values(server) == ("Bearer word-of-mouth", "word-of-mouth")
