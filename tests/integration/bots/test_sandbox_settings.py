"""What is built from the settings: the sandbox, what the model is told about it, and semantic search."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.bootstrap.sandboxes import SandboxDeps, build_modal_plan, build_run_prompt, build_sandboxes
from bots.bootstrap.semantic_search import open_semantic_search
from bots.settings import Settings
from bots.setup.doctor import run_checks
from bots.setup.findings import Finding
from core.domain.errors import ConfigurationError
from core.domain.threads import Address, Usage
from sandbox.installed import PACKAGES, PROGRAMS, describe_installed
from sandbox.local.provider import LocalSandboxProvider
from sandbox.memory_records import MemorySandboxRecords
from sandbox.modal.config import NetworkRules
from sandbox.modal.provider import ModalSandboxProvider
from storage.sql.database import Database
from tests.fakes.embeddings import embeddings_fake, vector_of
from tests.integration.sandbox.egress_stage import fake_web_service
from tests.requirements_of_the_machine import lacking
from tests.support.closing import close_after
from tests.support.modal_stage import modal_stage
from tests.support.narrow import require
from tests.support.sandboxes import reachable_folder, run
from tests.support.settings import settings

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")


def told_of(found: SandboxDeps) -> str:
    """Everything that the model is told of the sandbox."""
    address = Address(platform="api", workspace_id="api", channel_id="api", thread_key="a")
    prompt = build_run_prompt(found, address, 10_000)
    return "\n".join((prompt.system, *prompt.state.values()))


def modal_settings(folder: Path, **named: str) -> Settings:
    return settings(**{"DATA_DIR": str(folder), "SANDBOX": "modal", "MODAL_APP": "threadhand-test", **named})


def test_the_settings_make_the_plan(tmp_path: Path) -> None:
    plan = build_modal_plan(
        modal_settings(
            tmp_path,
            MODAL_CPU="4",
            MODAL_CPU_MAX="1",
            MODAL_MEMORY_MEBIBYTES_MAX="8192",
            MODAL_EGRESS="*.example.com, 192.0.2.0/24",
            MODAL_SNAPSHOT_DAYS="0",
            MODAL_START_SECONDS="7",
            SANDBOX_STOP_MINUTES="30",
        )
    )
    assert plan.start_seconds == 7
    assert plan.cpu == (4, 4)  # never less at most than at least
    assert plan.memory_mebibytes == (512, 8192)
    assert plan.network() == NetworkRules(networks=["192.0.2.0/24"], names=["*.example.com"])
    assert plan.snapshot_ttl_seconds is None
    assert plan.lifecycle_policy.stop_after_seconds == 1800
    assert plan.idle_timeout_seconds > plan.lifecycle_policy.stop_after_seconds


def test_workers_of_one_database_share_a_home_whatever_its_password(tmp_path: Path) -> None:
    first, second, other = (
        build_modal_plan(modal_settings(tmp_path, DATABASE_URL=url)).home
        for url in (
            "postgresql://a:one@db.example/threads",
            "postgresql://b:two@db.example/threads",
            "postgresql://a:one@db.example/others",
        )
    )
    assert first == second != other


@asynccontextmanager
async def found_with(**named: str) -> AsyncGenerator[SandboxDeps]:
    async with reachable_folder() as folder:
        chosen = settings(DATA_DIR=str(folder), SANDBOX="local", **named)
        found = await build_sandboxes(chosen, MemorySandboxRecords())
        if found.provider is None:
            lacking("jail", found.warnings[0])
        async with close_after(found.provider):
            yield found


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("", "it reaches the internet through the HTTP proxy"),
        ("on,!example.org", "it reaches the internet through the HTTP proxy"),
        ("example.net, *.example.com", "of the internet example.net, *.example.com alone"),
        ("off", "it has no way to the internet"),
    ],
)
async def test_the_prompt_tells_the_way_out_as_it_is(setting: str, said: str) -> None:
    async with found_with(SANDBOX_EGRESS=setting) as found:
        assert said in told_of(found)
        assert ("no way to the internet" in told_of(found)) == (setting == "off")


async def test_the_prompt_tells_what_commands_find() -> None:
    async with found_with() as found:
        sandbox = await require(found.provider).open("thread", fence=1)
        which = await run(sandbox, f"for name in {' '.join(PROGRAMS)}; do command -v $name; done")
        there = [name for name in PROGRAMS if f"/{name}\n" in which.output]
        for name in PACKAGES:
            imported = await run(sandbox, f"python3 -c 'import {name}' && echo works")
            there += [name] * imported.output.endswith("works\n")
        assert there
        assert found.installed_text == describe_installed(there)
        assert found.installed_text in told_of(found)


async def test_a_place_of_the_settings_is_reached_and_no_other() -> None:
    async with fake_web_service() as good, fake_web_service() as bad:
        async with found_with(SANDBOX_EGRESS_ALLOW=f"127.0.0.1:{good.port}") as found:
            assert isinstance(found.provider, LocalSandboxProvider)
            sandbox = await found.provider.open("thread", fence=1)
            curl = "curl -s --noproxy '' http://127.0.0.1"
            assert (await run(sandbox, f"{curl}:{good.port}/")).output == "from outside\n"
            refused = await run(sandbox, f"{curl}:{bad.port}/")
        assert "not on the public internet" in refused.output
        assert bad.asked == []


async def test_docker_that_does_not_answer_turns_the_tools_off_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await build_sandboxes(settings(DATA_DIR=str(tmp_path), SANDBOX="docker"), MemorySandboxRecords())
    assert found.provider is None
    assert found.warnings == ("The sandbox tools are off: docker is not installed. Install it.",)
    assert "no sandbox" in told_of(found)


@pytest.mark.parametrize(("is_right", "state"), [(True, "ok"), (False, "fail")])
async def test_the_doctor_asks_modal(tmp_path: Path, is_right: bool, state: str) -> None:
    async with modal_stage() as stage:
        if not is_right:
            stage.modal.world.credentials = ("ak-other", "as-other")
        lines = ["SANDBOX=modal", "HTTP_PORT=0", f"DATA_DIR={tmp_path}"]
        env_file = tmp_path / ".env"
        env_file.write_text("\n".join(f"THREADHAND_{line}" for line in lines))
        findings: dict[str, Finding] = {one.subject: one for one in await run_checks(env_file)}
    assert findings["sandbox"].state == state
    assert stage.living == []


@pytest.mark.parametrize(("egress", "said"), [("*", "can reach the internet"), ("example.net", "example.net alone")])
async def test_the_network_is_told(egress: str, said: str, tmp_path: Path) -> None:
    async with modal_stage() as stage:
        found = await build_sandboxes(modal_settings(tmp_path, MODAL_EGRESS=egress), MemorySandboxRecords())
        assert isinstance(found.provider, ModalSandboxProvider)
        stage.workers.append(found.provider)
        assert said in told_of(found)
    assert f"Your sandbox has {', '.join(PROGRAMS)}." in told_of(found)
    assert f"Its Python has {', '.join(PACKAGES)}." in told_of(found)


def nobody(_model: str, _usage: Usage) -> None: ...


async def test_the_endpoint_of_the_model_is_asked_with_its_key(database: Database) -> None:
    async with embeddings_fake() as fake:
        chosen = settings(EMBEDDING_MODEL="own/e5", LLM_BASE_URL=fake.base_url, LLM_API_KEY=fake.key)
        async with open_semantic_search(chosen, database) as found:
            assert await require(found).embedder.embed(["a cat"], spent=nobody) == [vector_of("a cat")]
        assert [one["model"] for one in fake.seen] == ["own/e5"]


async def test_any_other_provider_is_reached_through_litellm(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embeddings_fake() as fake:
        fake.key = ""
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", fake.base_url)
        async with open_semantic_search(settings(EMBEDDING_MODEL="hosted_vllm/e5"), database) as found:
            assert await require(found).embedder.embed(["a cat"], spent=nobody) == [vector_of("a cat")]
        assert [one["model"] for one in fake.seen] == ["e5"]


@pytest.mark.parametrize("model", ["openai/text-embedding-3-small", "mistral/mistral-embed"])
async def test_a_model_without_its_key_is_refused_by_name(database: Database, model: str) -> None:
    with pytest.raises(ConfigurationError, match="_API_KEY in"):
        async with open_semantic_search(settings(EMBEDDING_MODEL=model), database):
            pass
