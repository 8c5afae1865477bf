"""The doctor's report ends in time and completely, whatever hangs or breaks."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bots.settings import load_process_settings
from bots.setup.check_runner import CANCEL_SECONDS, REPORT_SECONDS, Check, run_in_parallel
from bots.setup.doctor import check_services
from bots.setup.findings import Finding, exit_code
from tests.support.settings import no_settings as no_settings

SECONDS = 3
SLACK = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1-A1-1-x"}


@asynccontextmanager
async def mute_server() -> AsyncGenerator[int, None]:
    """Context manager: a port where connections are accepted and nothing is ever said."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(1 << 16):
                pass
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def report(folder: Path, port: int) -> tuple[Finding, ...]:
    url = f"http://127.0.0.1:{port}"
    servers = {"mute": {"url": f"{url}/mcp"}, "child": {"command": "sleep", "args": ["600"]}}
    (folder / "mcp.json").write_text(json.dumps({"servers": servers}))
    settings = {
        **SLACK,
        "SLACK_API_URL": url,
        "DISCORD_TOKEN": "MTA.a.b",
        "DISCORD_API_URL": url,
        "ALLOWED_WORKSPACES": "*",
        "DATA_DIR": folder / "data",
        "SANDBOX": "none",
        "HTTP_PORT": 0,
        "MODEL": "small",
        "FALLBACK_MODELS": "large,other",
        "LLM_BASE_URL": url,
        "LLM_API_KEY": "k",
        "EMBEDDING_MODEL": "vectors",
        "DATABASE_URL": f"postgresql+asyncpg://u:p@127.0.0.1:{port}/x",
        "REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "MCP_CONFIG": folder / "mcp.json",
        "TAVILY_API_KEY": "t",
        "TAVILY_API_URL": url,
        "FIRECRAWL_API_KEY": "t",
        "FIRECRAWL_API_URL": url,
        "PUBLIC_URL": url,
    }
    file = folder / ".env"
    file.write_text("".join(f"THREADHAND_{name}={text}\n" for name, text in settings.items()))
    return await check_services(load_process_settings(file), seconds=SECONDS)


async def test_servers_that_hang_are_each_named_within_the_one_deadline(tmp_path: Path) -> None:
    async with mute_server() as port:
        before = time.monotonic()
        findings = await report(tmp_path, port)
        elapsed = time.monotonic() - before
    failed = [one for one in findings if one.state == "fail"]
    assert [one.subject for one in failed] == [
        *("database", "redis", "mcp", "mcp", "slack", "discord"),
        *("model", "model", "model", "meaning", "outside", "outside", "public"),
    ]
    lines = [str(one) for one in failed]
    assert lines[0].startswith("fail  database  PostgreSQL did not answer in 3 s. Check THREADH")
    assert lines[2].startswith("fail  mcp       mute did not answer in 3 s. Start it, or corre")
    assert lines[3].startswith("fail  mcp       child did not answer in 3 s. Start it, or corr")
    assert lines[4].startswith("fail  slack     Slack did not answer in 3 s. Check the network")
    assert lines[7].startswith("fail  model     large did not answer in 3 s. Try again, or cho")
    assert all(one.remedy and one.is_untested for one in failed)
    assert exit_code(findings) == 1
    assert elapsed < 30 < len(failed) * SECONDS, "they are tried one after the other"
    assert REPORT_SECONDS + CANCEL_SECONDS < 18


async def test_a_check_that_breaks_is_one_failed_line_without_its_message() -> None:
    async def breaks() -> tuple[Finding, ...]:
        raise ValueError("the key sk-secret is bad")

    async def works() -> tuple[Finding, ...]:
        return (Finding("ok", "redis", "answers."),)

    found = await run_in_parallel([Check("model", breaks, "small"), Check("redis", works)])
    assert [str(one) for one in found] == [
        "fail  model     cannot be checked: ValueError. Compare its settings with docs/operators/settings.md,"
        " above all those of small.",
        "ok    redis     answers.",
    ]
