"""`mcp connect NAME` in the real program: a private link, the consent in a browser, and what the thread then reads."""

import json
import re
from pathlib import Path

import pytest

from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.bots.test_mcp_login import free_port
from tests.integration.bots.web.test_mcp_consent import browser
from tests.integration.core.mcp.test_oauth import authorizing_server
from tests.integration.e2e.test_access import SCENARIO, id_of, told, up


def link_in(stage: Stage) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+/mcp/connect/[\w-]+", str(stage.view()))
    return found[0] if found else ""


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_an_admin_connects_a_tool_server(platform: PlatformName, tmp_path: Path) -> None:
    async with authorizing_server() as server, staged(platform, SCENARIO) as stage:
        file, port = tmp_path / "mcp.json", str(free_port())
        file.write_text(json.dumps({"servers": {"tickets": {"url": server.url, "oauth": {}}}}))
        stage.program.change(
            mcp_config=str(file), admins=id_of(stage, PERSON), http_port=port, public_url=f"http://127.0.0.1:{port}"
        )
        await up(stage)
        words = "mcp connect tickets"
        if platform == "slack":
            await stage.platform.say("bob", stage.channel_id, f"@threadhand {words}")
            await stage.until(lambda: told(stage, "Only admins"), "he is refused")
            await stage.platform.say(PERSON, stage.channel_id, f"@threadhand {words}")
        else:
            options = {"server": "tickets"}
            await stage.platform.command("bob", stage.channel_id, "agent mcp", options)
            await stage.until(lambda: told(stage, "Only admins"), "he is refused")
            await stage.platform.command(PERSON, stage.channel_id, "agent mcp", options)
        await stage.until(lambda: link_in(stage), "she has a link")
        assert {one.visible_to for one in told(stage, "Agree that I use")} == {PERSON}
        async with browser() as person, person.post(link_in(stage)) as shown:
            assert "tickets is connected and offers 1 tools" in await shown.text()
        await stage.until(lambda: told(stage, "is connected and offers 1 tools"), "it is told")
        assert stage.runs() == []
