"""The doctor at the tool servers: each is tried as a run would, and told in one line without its secrets."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bots.setup.doctor import run_checks
from bots.setup.findings import Finding
from core.tools.catalogue import all_tools
from tests.fakes.preloaded import command_of
from tests.paths import FAKES
from tests.support.mcp_servers import http_fake
from tests.support.settings import no_settings as no_settings

SECRET = "hush-4711-nobody-hears"


def stdio(program: str, *arguments: str, **more: object) -> dict[str, object]:
    start = command_of(str(FAKES / program), *arguments)
    return {"command": start[0], "args": start[1:], **more}


async def found(folder: Path, servers: Mapping[str, object] | str) -> tuple[Finding, ...]:
    config = folder / "mcp.json"
    config.write_text(servers if isinstance(servers, str) else json.dumps({"servers": servers}))
    settings = {"DATA_DIR": folder / "data", "SANDBOX": "none", "HTTP_PORT": 0, "MCP_CONFIG": config}
    env_file = folder / ".env"
    env_file.write_text("\n".join(f"THREADHAND_{name}={text}" for name, text in settings.items()))
    return await run_checks(env_file)


async def of_servers(folder: Path, servers: Mapping[str, object] | str) -> list[Finding]:
    return [one for one in await found(folder, servers) if one.subject == "mcp"]


async def test_each_server_is_connected_to_and_its_tools_are_named(tmp_path: Path) -> None:
    async with http_fake("http") as web:
        first, second = await of_servers(
            tmp_path, {"child": stdio("mcp_server.py", enabled_tools=["e*", "who_am_i"]), "web": {"url": web.url}}
        )
    assert str(first) == "ok    mcp       child answers with 2 tools: echo, who_am_i."
    assert second.state == "ok"
    assert second.fact.startswith("web answers with ")
    assert second.fact.endswith(" more.")


async def test_a_server_that_is_not_there_says_what_to_do_beside_one_that_is(tmp_path: Path) -> None:
    gone = {"url": f"http://127.0.0.1:1/mcp?key={SECRET}", "headers": {"Authorization": f"Bearer {SECRET}"}}
    nowhere = {"command": "/no/such/program", "env": {"API_TOKEN": SECRET}}
    servers = {"gone": gone, "nowhere": nowhere, "child": stdio("mcp_server.py")}
    lost, absent, there = await of_servers(tmp_path, servers)
    remedy = f"Start it, or correct it in {tmp_path / 'mcp.json'}."
    assert str(lost) == f"fail  mcp       gone: no connection could be made. {remedy}"
    assert (absent.state, absent.remedy) == ("fail", remedy)
    assert absent.fact == "nowhere: its command (or its folder) does not exist."
    assert there.state == "ok"
    assert SECRET not in f"{lost}{absent}{there}"


async def test_what_a_server_says_with_its_secret_is_told_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    talker = stdio("mcp_hostile.py", "refuse", env={"SERVICE_TOKEN": SECRET})
    (finding,) = await of_servers(tmp_path, {"talker": talker})
    assert finding.state == "fail"
    assert "401 for key [secret]" in finding.fact
    assert "\n" not in str(finding)
    assert SECRET not in "".join(capfd.readouterr())


async def test_a_file_that_cannot_be_used_is_one_finding(tmp_path: Path) -> None:
    findings = await found(tmp_path, "servers: {one: {command: x, urll: y}}")
    failed = [one for one in findings if one.state == "fail"]
    assert [one.subject for one in failed] == ["mcp", "model"]
    assert "In the MCP settings, one: urll" in failed[0].fact


async def test_a_server_whose_tools_nobody_gets_is_a_note(tmp_path: Path) -> None:
    (finding,) = await of_servers(tmp_path, {"child": stdio("mcp_server.py", enabled_tools=["nothing_*"])})
    assert finding.state == "note"
    assert finding.fact.startswith("child answers, but none of its ")
    assert "enabled_tools" in finding.remedy


async def test_more_tools_than_a_model_can_have_are_counted(tmp_path: Path) -> None:
    (finding,) = await of_servers(tmp_path, {"child": stdio("mcp_hostile.py", "many")})
    assert finding.state == "ok"
    own = len(all_tools())
    counted = f"{128 - own} of its 1000 tools can be used, left out: {own} in runs with all own tools"
    assert f"{counted}: a model accepts 128" in finding.fact


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    mute = {"command": "sleep", "args": ["600"], "connect_timeout_seconds": 0.5}
    async with asyncio.timeout(60):
        (finding,) = await of_servers(tmp_path, {"mute": mute})
    assert (finding.state, finding.fact) == ("fail", "mute: it did not answer within 0.5 s.")
