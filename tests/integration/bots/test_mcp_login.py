"""`threadhand mcp-login`: the consent of a person for a tool server."""

import asyncio
import json
import re
import socket
from pathlib import Path

import httpx2
import pytest

from bots.bootstrap.mcp import build_mcp_tools
from bots.mcp.login import log_in
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError
from core.tasks import spawn
from tests.integration.core.mcp.test_oauth import authorizing_server
from tests.support.closing import close_after


def settings_of(folder: Path, server: dict[str, object]) -> Settings:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"servers": {"tickets": server}}))
    names = {"MCP_CONFIG": file, "DATA_DIR": folder / "data"}
    return load_settings({f"THREADHAND_{name}": str(one) for name, one in names.items()}, None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_a_person_agrees_in_the_browser_and_runs_have_the_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with authorizing_server() as server, asyncio.timeout(60):
        redirect = f"http://127.0.0.1:{free_port()}/callback"
        settings = settings_of(tmp_path, {"url": server.url, "oauth": {"redirect_uri": redirect}})
        logging_in = spawn(log_in(settings, "tickets"), name="login")
        printed = ""
        while not (link := re.search(r"http://\S+/consent\?\S+", printed)):
            assert not logging_in.done(), logging_in
            await asyncio.sleep(0.01)
            printed += capsys.readouterr().out
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            assert "You can close this page" in (await browser.get(link[0])).text
        assert await logging_in == ("tickets is authorized and offers 1 tools. Runs use it from now on.")
        async with close_after(build_mcp_tools(settings)) as tools:
            assert [tool.name for tool in await tools.tools()] == ["mcp_tickets_echo"]


async def test_a_server_without_oauth_needs_no_consent(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, {"url": "http://127.0.0.1:1/mcp"})
    for name in ("tickets", "other"):
        with pytest.raises(ConfigurationError, match=f"{name} is no MCP server with `oauth`"):
            await log_in(settings, name)
