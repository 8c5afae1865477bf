"""The doctor's findings."""

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from grpclib import Status

from bots.settings import load_process_settings
from bots.setup.check_runner import CANCEL_SECONDS, REPORT_SECONDS, Check, run_in_parallel
from bots.setup.doctor import check_sandbox, check_services, run_checks
from bots.setup.findings import Finding, exit_code, print_findings
from storage.redis.streams import create_redis_client
from tests.fakes.embeddings import embeddings_fake
from tests.integration.bots.test_modal_queue import APP, POSTGRESQL, REDIS, deployed
from tests.servers import redis
from tests.support.settings import no_settings as no_settings
from tests.support.settings import settings


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


async def found(env_file: Path, *, is_offline: bool = True, **settings: str) -> dict[str, Finding]:
    usual = {
        "DATA_DIR": str(env_file.parent / "data"),
        "SANDBOX": "none",
        "HTTP_PORT": "0",
        "MODEL": "m",
        "LLM_API_KEY": "k",
    }
    lines = [f"THREADHAND_{name}={value}" for name, value in {**usual, **settings}.items()]
    env_file.write_text("\n".join(lines))
    findings = await run_checks(env_file, is_offline=is_offline)
    assert [one for one in findings if one.state == "fail" and not one.remedy] == []
    return {finding.subject: finding for finding in findings}


async def test_a_working_configuration_has_no_failure(env_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    findings = await found(env_file)
    assert {finding.state for finding in findings.values()} <= {"ok", "note"}
    assert print_findings(tuple(findings.values()), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize(
    ("public_url", "fact"),
    [("", "is not set."), ("http://127.0.0.1:1", "http://127.0.0.1:1 is an address of this machine only.")],
)
async def test_people_in_a_live_chat_need_a_public_address(env_file: Path, public_url: str, fact: str) -> None:
    live = {"DISCORD_TOKEN": "client-secret", "ALLOWED_USERS": "*", "MODEL": ""}
    finding = (await found(env_file, is_offline=False, PUBLIC_URL=public_url, **live))["public"]
    assert (finding.state, finding.fact) == ("note", fact)
    assert "set THREADHAND_PUBLIC_URL to an address of the bot's HTTP server" in finding.remedy
    simulated = {**live, "DISCORD_API_URL": "http://127.0.0.1:1"}
    assert "public" not in await found(env_file, is_offline=False, **simulated)


@pytest.mark.parametrize(
    ("subject", "state", "words", "changes"),
    [
        ("settings", "fail", "THREADHAND_HTTP_PORT", {"HTP_PORT": "1"}),
        ("http", "fail", "", {"HTTP_HOST": "0.0.0.0"}),  # noqa: S104 - what is tested
        ("model", "fail", "Set THREADHAND_MODEL in .env.", {"MODEL": ""}),
        ("model", "fail", "Set ANTHROPIC_API_KEY, or THREADHAND_LLM_API_KEY.", {"MODEL": "anthropic/claude-x"}),
        ("model", "ok", "", {"MODEL": "bedrock/anthropic.claude-3"}),
        ("meaning", "fail", "openai/e needs a key: set OPENAI_API_KEY in .env.", {"EMBEDDING_MODEL": "openai/e"}),
        ("slack", "fail", "THREADHAND_SLACK_APP_TOKEN", {"SLACK_BOT_TOKEN": "xoxb-1"}),
        ("access", "fail", "", {"SLACK_BOT_TOKEN": "xoxb-1"}),
    ],
)
async def test_a_fault_of_the_settings_is_told_with_its_remedy(
    env_file: Path, subject: str, state: str, words: str, changes: dict[str, str]
) -> None:
    is_offline = subject not in ("meaning", "slack")
    finding = (await found(env_file, is_offline=is_offline, **{"LLM_API_KEY": "", **changes}))[subject]
    assert (finding.state, words in str(finding)) == (state, True)


async def test_a_broken_database_is_found_and_left_as_it_is(env_file: Path) -> None:
    file = env_file.parent / "x.db"
    file.write_bytes(b"no database at all, but long enough to look at")
    finding = (await found(env_file, DATABASE_URL=f"sqlite:///{file}"))["database"]
    assert (finding.state, finding.remedy[:30]) == ("fail", "Check THREADHAND_DATABASE_URL,")
    assert file.read_bytes().startswith(b"no database")


async def test_servers_that_do_not_answer_are_found(env_file: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        findings = await found(
            env_file, REDIS_URL=f"redis://127.0.0.1:{port}", DATABASE_URL=f"postgresql://u:hidden@127.0.0.1:{port}/d"
        )
    assert (findings["redis"].state, findings["database"].state) == ("fail", "fail")
    assert "hidden" not in f"{findings}"


@pytest.mark.parametrize(("policy", "state"), [("allkeys-lru", "fail"), ("noeviction", "ok")])
async def test_a_redis_that_may_delete_the_queue_is_found(env_file: Path, policy: str, state: str) -> None:
    with redis() as url:
        client = create_redis_client(url)
        await client.config_set("maxmemory", "50mb")
        await client.config_set("maxmemory-policy", policy)
        await client.aclose()
        finding = (await found(env_file, REDIS_URL=url))["redis"]
    assert finding.state == state
    assert ("noeviction" in finding.remedy) == (state == "fail")


async def test_agents_are_read_as_the_program_reads_them(env_file: Path) -> None:
    finding = (await found(env_file))["agents"]
    assert (finding.state, "research" in finding.fact) == ("ok", True)
    folder = env_file.parent / "agents"
    folder.mkdir()
    (folder / "own.yaml").write_text("name: A\ndescription: B\nmodel: anthropic/x\n")
    finding = (await found(env_file, AGENTS_DIR=str(folder), LLM_API_KEY=""))["agents"]
    assert finding.state == "fail"
    assert "agent own cannot work yet: The model anthropic/x needs a key" in finding.fact
    (folder / "own.yaml").write_text("name: A\n")
    finding = (await found(env_file, AGENTS_DIR=str(folder)))["agents"]
    assert (finding.state, finding.fact) == ("fail", "The agent file own.yaml: description: it is missing.")


async def test_the_model_of_embeddings_is_tried_with_its_key(env_file: Path) -> None:
    async with embeddings_fake() as fake:
        own = {"LLM_BASE_URL": fake.base_url, "EMBEDDING_MODEL": "e5"}
        good = (await found(env_file, is_offline=False, LLM_API_KEY=fake.key, **own))["meaning"]
        bad = (await found(env_file, is_offline=False, LLM_API_KEY="sk-secret-key", **own))["meaning"]
        fake.fault = "garbage"
        odd = (await found(env_file, is_offline=False, LLM_API_KEY=fake.key, **own))["meaning"]
    gone = (await found(env_file, is_offline=False, LLM_API_KEY=fake.key, **own))["meaning"]

    assert (good.state, good.fact) == ("ok", "e5 makes vectors of 64 numbers.")
    assert [one.state for one in (bad, odd, gone)] == ["fail"] * 3
    assert bad.fact.startswith("e5 makes no vectors: 401 ")
    assert "sk-secret-key" not in str(bad)
    assert "THREADHAND_EMBEDDING_MODEL" in gone.remedy


@pytest.mark.parametrize(
    ("egress", "fact"),
    [("off", "network (none at all)"), ("on,off", "THREADHAND_SANDBOX_EGRESS: on is not a host name")],
)
async def test_the_jail_is_described_as_it_will_run(egress: str, fact: str) -> None:
    with tempfile.TemporaryDirectory(prefix="threadhand-test-") as folder:
        Path(folder).chmod(0o711)
        findings = await check_sandbox(
            settings(SANDBOX="local", DATA_DIR=folder, SANDBOX_EGRESS=egress, SANDBOX_DISK_RESERVE_MEBIBYTES="777")
        )
    report = "\n".join(map(str, findings))
    assert fact in report
    assert ("777 MiB of disk" in report) is all(finding.state == "ok" for finding in findings)


async def test_the_services_outside_are_told_with_what_turns_them_on(env_file: Path) -> None:
    told = (await found(env_file))["outside"]
    assert (told.state, told.fact) == ("note", "searches the web without a key and reads pages by itself.")
    assert "THREADHAND_RAPIDAPI_KEY (data providers)" in told.remedy
    keys = ("TAVILY_API_KEY", "FIRECRAWL_API_KEY", "RAPIDAPI_KEY", "IMAGE_MODEL")
    more = ("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_ACCOUNT_ID")
    full = (await found(env_file, **dict.fromkeys((*keys, *more), "secret0")))["outside"]
    assert str(full) == "ok    outside   searches the web by Tavily and reads pages by Firecrawl."


async def test_a_port_in_use_is_found(env_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = (await found(env_file, HTTP_PORT=str(taken.getsockname()[1])))["http"]
    assert finding.state == "note"
    assert "is in use" in finding.fact


async def test_no_model_of_embeddings_is_no_finding(env_file: Path) -> None:
    assert "meaning" not in await found(env_file, is_offline=False, MODEL="")


WHOLE = {**POSTGRESQL, **REDIS, "SANDBOX": "none", "MODAL_WORKER_APP": APP}


async def found_of(folder: Path, **changes: str) -> list[Finding]:
    lines = {"DATA_DIR": str(folder), "HTTP_PORT": "0", **WHOLE, **changes}
    env_file = folder / ".env"
    env_file.write_text("\n".join(f"THREADHAND_{name}={text}" for name, text in lines.items()))
    return [one for one in await run_checks(env_file) if one.subject == "functions"]


async def test_a_token_that_modal_refuses_is_told_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deployed("execute_run"):
        monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-hidden-0815")
        (finding,) = await found_of(tmp_path)
    assert finding.state == "fail"
    assert "MODAL_TOKEN_ID" in finding.fact
    assert "as-hidden-0815" not in str(finding)


async def test_a_function_that_is_deployed_is_found_and_not_called(tmp_path: Path) -> None:
    async with deployed("execute_run") as stage:
        (finding,) = await found_of(tmp_path)
        assert str(finding) == f"ok    functions the app {APP} at Modal takes runs."
        assert stage.modal.world.function_calls.made == []


async def test_a_modal_that_does_not_answer_is_told(tmp_path: Path) -> None:
    async with deployed("execute_run") as stage:
        stage.modal.faults.arm("FunctionGet", Status.RESOURCE_EXHAUSTED, "not now")
        (finding,) = await found_of(tmp_path)
    assert (finding.state, "a limit of the Modal workspace" in finding.fact) == ("fail", True)


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
