"""Deployed functions at the simulated Modal: found by name, called by the real SDK, executed as processes."""

import asyncio
from pathlib import Path

import modal
import modal.exception
import pytest

from tests.integration.simulator.modal.conftest import Account
from tests.integration.simulator.modal.deployment import published

APP = """
import modal

app = modal.App("greetings")


@app.function()
async def greet(name, times=1):
    import os

    print(f"hello {name} " * times + os.environ["GREETING"], flush=True)
"""


async def deploy(account: Account, folder: Path) -> None:
    """The file as if it was deployed with its Secret."""
    entry = folder / "greetings.py"
    entry.write_text(APP)
    world = account.simulator.world
    world.secrets["words"] = {"GREETING": "to you"}
    await published(account.client, "greetings", "greetings", "greet", secret="words")
    world.function_calls.execute(entry, folder)


def found(account: Account, name: str, app: str = "greetings") -> modal.Function:
    return modal.Function.from_name(app, name, client=account.client)


async def test_a_spawned_call_is_executed_with_its_secrets(account: Account, tmp_path: Path) -> None:
    await deploy(account, tmp_path)
    await found(account, "greet").spawn.aio("alice", times=2)
    (call,) = account.simulator.world.function_calls.made
    assert call.process is not None
    async with asyncio.timeout(60):
        assert await call.process.wait() == 0
    assert call.log() == "hello alice hello alice to you\n"


async def test_finding_and_spawning_make_the_calls_that_they_are_known_for(account: Account, tmp_path: Path) -> None:
    await deploy(account, tmp_path)
    begun = len(account.simulator.calls)
    greet = found(account, "greet")
    await greet.spawn.aio("alice")
    await greet.spawn.aio("bob")
    assert account.simulator.calls[begun:] == ["FunctionGet", "FunctionMap", "FunctionMap"]


@pytest.mark.parametrize(("app", "name"), [("greetings", "leave"), ("nobody", "greet")])
async def test_what_is_not_deployed_is_not_found(account: Account, tmp_path: Path, app: str, name: str) -> None:
    await deploy(account, tmp_path)
    with pytest.raises(modal.exception.NotFoundError):
        await found(account, name, app).spawn.aio("alice")


async def test_a_deployment_that_was_not_published_is_not_found(account: Account) -> None:
    await modal.App.lookup.aio("greetings", create_if_missing=True, client=account.client)
    with pytest.raises(modal.exception.NotFoundError):
        await found(account, "greet").spawn.aio("alice")


async def test_only_plain_values_are_taken_as_arguments(account: Account, tmp_path: Path) -> None:
    await deploy(account, tmp_path)
    with pytest.raises(modal.exception.InvalidError, match="no plain value"):
        await found(account, "greet").spawn.aio(Path("x"))
    assert account.simulator.world.function_calls.made == []


async def test_a_call_that_is_waited_for_is_refused_by_name(account: Account, tmp_path: Path) -> None:
    await deploy(account, tmp_path)
    with pytest.raises(modal.exception.UnimplementedError, match="spawned"):
        await found(account, "greet").remote.aio("alice")


async def test_a_call_that_is_under_way_ends_with_the_account(account: Account, tmp_path: Path) -> None:
    await deploy(account, tmp_path)
    calls = account.simulator.world.function_calls
    await found(account, "greet").spawn.aio("x" * 1000, times=1000)
    await calls.close()
    assert not calls.made[0].is_running
