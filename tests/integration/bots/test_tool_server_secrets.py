"""What a tool server was given in confidence reaches neither the log nor the thread, even if the server repeats it."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bots.bootstrap.mcp import build_mcp_servers
from bots.observability.logs import configure_logging
from bots.settings import load_settings
from core.mcp.secrets import secret_values
from core.mcp.settings import McpServerConfig, parse_servers
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world
from tests.paths import FAKES
from tests.support.closing import close_after

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
