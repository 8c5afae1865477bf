"""Sandboxes on this machine as the settings have them, and what the model is told of their way to the internet."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.bootstrap.sandboxes import SandboxDeps, build_sandboxes
from bots.settings import load_settings
from core.domain.errors import ConfigurationError
from sandbox.installed import PACKAGES, PROGRAMS, describe_installed
from sandbox.local.provider import LocalSandboxProvider
from sandbox.memory_records import MemorySandboxRecords
from tests.integration.bots.test_sandbox_settings import told_of
from tests.integration.sandbox.egress_stage import fake_web_service
from tests.integration.sandbox.providers import reachable_folder, run
from tests.requirements_of_the_machine import lacking


@asynccontextmanager
async def found_with(**named: str) -> AsyncGenerator[SandboxDeps]:
    async with reachable_folder() as folder:
        chosen = {"data_dir": str(folder), "sandbox": "local", **named}
        values = {f"THREADHAND_{name.upper()}": text for name, text in chosen.items()}
        found = await build_sandboxes(load_settings(values, None), MemorySandboxRecords())
        if found.provider is None:
            lacking("jail", found.warnings[0])
        try:
            yield found
        finally:
            await found.provider.close()


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
    async with found_with(sandbox_egress=setting) as found:
        assert said in told_of(found)
        assert ("no way to the internet" in told_of(found)) == (setting == "off")


async def test_the_prompt_tells_what_commands_find() -> None:
    async with found_with() as found:
        assert found.provider is not None
        sandbox = await found.provider.open("thread", fence=1)
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
        async with found_with(sandbox_egress_allow=f"127.0.0.1:{good.port}") as found:
            assert isinstance(found.provider, LocalSandboxProvider)
            sandbox = await found.provider.open("thread", fence=1)
            curl = "curl -s --noproxy '' http://127.0.0.1"
            assert (await run(sandbox, f"{curl}:{good.port}/")).output == "from outside\n"
            refused = await run(sandbox, f"{curl}:{bad.port}/")
        assert "not on the public internet" in refused.output
        assert bad.asked == []


async def test_a_setting_that_means_nothing_is_told_in_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_SANDBOX_EGRESS: http://x is not a host name"):
        async with found_with(sandbox_egress="http://x"):
            pass


async def test_docker_that_does_not_answer_turns_the_tools_off_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    values = {"THREADHAND_DATA_DIR": str(tmp_path), "THREADHAND_SANDBOX": "docker"}
    found = await build_sandboxes(load_settings(values, None), MemorySandboxRecords())
    assert found.provider is None
    assert found.warnings == ("The sandbox tools are off: docker is not installed. Install it.",)
    assert "no sandbox" in told_of(found)
