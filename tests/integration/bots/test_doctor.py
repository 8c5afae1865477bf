"""The doctor's findings."""

import json
import socket
import tempfile
from pathlib import Path

import pytest

from bots.setup.doctor import check_sandbox, run_checks
from bots.setup.findings import Finding, print_findings
from storage.redis.streams import create_redis_client
from tests.fakes.embeddings import embeddings_fake
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
        (
            "model",
            "fail",
            "Set ANTHROPIC_API_KEY, or THREADHAND_LLM_API_KEY.",
            {"MODEL": "anthropic/claude-x", "LLM_API_KEY": ""},
        ),
        ("model", "ok", "", {"MODEL": "bedrock/anthropic.claude-3", "LLM_API_KEY": ""}),
        ("meaning", "fail", "openai/e needs a key: set OPENAI_API_KEY in", {"EMBEDDING_MODEL": "openai/e"}),
        ("slack", "fail", "THREADHAND_SLACK_APP_TOKEN", {"SLACK_BOT_TOKEN": "xoxb-1"}),
        ("access", "fail", "", {"SLACK_BOT_TOKEN": "xoxb-1"}),
    ],
)
async def test_a_fault_of_the_settings_is_told_with_its_remedy(
    env_file: Path, subject: str, state: str, words: str, changes: dict[str, str]
) -> None:
    finding = (await found(env_file, is_offline=subject not in ("meaning", "slack"), **{"LLM_API_KEY": "", **changes}))[
        subject
    ]
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


async def test_a_mistake_in_the_settings_is_a_finding(env_file: Path) -> None:
    finding = (await found(env_file, HTP_PORT="1"))["settings"]
    assert finding.state == "fail"
    assert "THREADHAND_HTTP_PORT" in finding.fact


async def test_a_port_in_use_is_found(env_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = (await found(env_file, HTTP_PORT=str(taken.getsockname()[1])))["http"]
    assert finding.state == "note"
    assert "is in use" in finding.fact


async def test_an_open_api_is_found(env_file: Path) -> None:
    finding = (await found(env_file, HTTP_HOST="0.0.0.0"))["http"]  # noqa: S104 - what is tested
    assert finding.state == "fail"


async def test_a_missing_model_key_is_named(env_file: Path) -> None:
    finding = (await found(env_file, MODEL="anthropic/claude-x", LLM_API_KEY=""))["model"]
    assert (finding.state, finding.remedy) == ("fail", "Set ANTHROPIC_API_KEY, or THREADHAND_LLM_API_KEY.")


async def test_a_model_of_embeddings_without_its_key_is_found_and_none_is_no_finding(env_file: Path) -> None:
    assert "meaning" not in await found(env_file, is_offline=False, MODEL="")
    settings = {"MODEL": "", "EMBEDDING_MODEL": "openai/e", "LLM_API_KEY": ""}
    finding = (await found(env_file, is_offline=False, **settings))["meaning"]
    assert (finding.state, finding.fact) == (
        "fail",
        "The embedding model openai/e needs a key: set OPENAI_API_KEY in .env.",
    )
