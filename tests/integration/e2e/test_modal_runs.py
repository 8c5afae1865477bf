"""A bot without a worker, whose runs functions at the simulated Modal execute with the code that was deployed."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import pytest

from bots.bootstrap.sandboxes import build_modal_plan
from bots.settings import load_settings
from sandbox.modal.provider import ModalSandboxProvider
from simulator.modal.calls import FunctionCall
from simulator.modal.server import ModalSimulator
from storage.redis.streams import create_redis_client
from storage.sql.stores.sandboxes import SqlSandboxRecords
from tests.chaos.cluster import NO_WORKER, Cluster, open_cluster
from tests.chaos.invariants import settle_and_check
from tests.chaos.program import REPOSITORY
from tests.integration.sandbox.test_modal_app import deployed
from tests.support.modal_stage import environment_of, modal_stage

OF_THE_FUNCTIONS = (
    "DATABASE_URL",
    "REDIS_URL",
    "SANDBOX",
    "MODEL",
    "LLM_BASE_URL",
    "LLM_API_KEY",
    "SLACK_BOT_TOKEN",
    "SLACK_APP_TOKEN",
    "SLACK_API_URL",
    "ALLOWED_WORKSPACES",
)
OF_A_DEPLOYMENT = ("apps", "deployed", "images", "mounted_files", "published")
DEPLOYMENT: dict[str, object] = {}
"""What a deployment has left at Modal, by the names of `OF_A_DEPLOYMENT`."""


@dataclass(kw_only=True)
class Account:
    """A bot, and the functions that it hands its runs to."""

    cluster: Cluster
    modal: ModalSimulator
    redis_url: str

    @property
    def calls(self) -> list[FunctionCall]:
        return self.modal.world.function_calls.made

    def are_over(self) -> bool:
        return not any(call.is_running for call in self.calls)

    async def a_minute_passes(self) -> bool:
        """For what was handed over; whether there was anything."""
        client = create_redis_client(self.redis_url)
        open_ones = [await client.delete(key) for key in await client.keys("threadhand:handover:*")]
        await client.aclose()
        return bool(open_ones)

    async def settle_and_check(self) -> None:
        try:
            await settle_and_check(self.cluster)
            await self.cluster.until(self.are_over, "the functions end")
        except AssertionError as error:
            logs = [f"--- call of {call.args}\n{call.log()[-3000:]}" for call in self.calls]
            raise AssertionError("\n".join((str(error), *logs))) from None


@pytest.fixture
async def account(postgresql_url: str, redis_url: str) -> AsyncGenerator[Account, None]:
    async with staged_account(postgresql_url, redis_url) as found:
        yield found


@asynccontextmanager
async def staged_account(url: str, redis_url: str) -> AsyncGenerator[Account, None]:
    async with (
        modal_stage() as at_modal,
        open_cluster("slack", url, redis_url, workers=0, sandbox="modal", modal_worker_app="threadhand") as cluster,
    ):
        world, program = at_modal.modal.world, cluster.stage.program
        if not DEPLOYMENT:  # by the real command, which takes seconds; the same for each account
            await deployed(at_modal)
            DEPLOYMENT.update({name: copy(getattr(world, name)) for name in OF_A_DEPLOYMENT})
        for name, value in DEPLOYMENT.items():
            setattr(world, name, copy(value))
        program.environment |= environment_of(at_modal.modal)
        world.secrets["threadhand"] = {
            **{name: program.settings[name] for name in map("THREADHAND_{}".format, OF_THE_FUNCTIONS)},
            "THREADHAND_DATA_DIR": str(program.folder / "function"),
        }
        mounted = program.folder / "mounted"
        for path in world.mounted_files - {"/root/modal_app.py"}:
            source = Path(path).relative_to("/root")
            (mounted / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, mounted / source)
        world.function_calls.execute(REPOSITORY / "sandbox" / "modal_app.py", mounted)
        yield Account(cluster=cluster, modal=at_modal.modal, redis_url=redis_url)


async def test_a_function_answers_what_a_bot_took_in(account: Account) -> None:
    await account.cluster.start()
    await account.cluster.say("Work", "a1")
    await account.settle_and_check()
    (run_id,) = [run for (run,) in await account.cluster.rows("SELECT run_id FROM run")]
    assert [(call.function, call.args) for call in account.calls] == [("execute_run", (run_id,))]
    (process,) = [call.process for call in account.calls]
    assert process is not None
    assert process.returncode == 0
    assert not await account.a_minute_passes()  # the function has ended it: an approval would go on at once


STARTED_AFTER_CALLS_MAX = {"first": 8, "warm": 7, "restored": 6}
"""As docs/admins/modal.md lists them."""


async def test_runs_of_a_thread_use_one_sandbox_until_it_is_stopped(account: Account) -> None:
    await account.cluster.start()
    first = await account.cluster.say("Work", "a1")
    await account.settle_and_check()
    assert account.modal.calls.count("FunctionMap") == 1
    assert calls_to_start(account.modal.calls) <= STARTED_AFTER_CALLS_MAX["first"]
    for token in ("a2", "a3"):
        begun = len(account.modal.calls)
        await account.cluster.say("Work", token, thread_id=first.thread_id)
        await account.settle_and_check()
        made = account.modal.calls[begun:]
        assert made.count("FunctionMap") == 1
        # the program is started for the function, not the sandbox
        assert calls_to_start(made) <= STARTED_AFTER_CALLS_MAX["warm"]
        for call in ("SandboxCreateV2", "SandboxTerminateV2", "ImageGetOrCreate"):
            assert call not in made, call
    assert account.modal.calls.count("SandboxCreateV2") == 1
    await stop_sandboxes(account)
    begun = len(account.modal.calls)
    await account.cluster.say("Work", "a4", thread_id=first.thread_id)
    await account.settle_and_check()
    made = account.modal.calls[begun:]
    assert (made.count("FunctionMap"), made.count("SandboxCreateV2")) == (1, 1)
    assert made.index("ImageFromId") < made.index("SandboxCreateV2")
    assert "ImageGetOrCreate" not in made  # its snapshot is all that it needs
    assert calls_to_start(made) <= STARTED_AFTER_CALLS_MAX["restored"]


def calls_to_start(made: list[str]) -> int:
    """The calls from handing the run over until the program in the sandbox is started. The function writes nothing
    to a program before that: what is written is the ping of the bot, which has read a file for the chat."""
    until_start = made[made.index("FunctionMap") : made.index("TaskExecStart") + 1]
    return sum(call != "TaskExecStdinWrite" for call in until_start)


async def stop_sandboxes(account: Account) -> None:
    """As the janitor does it when they have been idle."""
    plan = build_modal_plan(load_settings(account.cluster.stage.program.settings, None))
    janitor = ModalSandboxProvider(plan, SqlSandboxRecords(account.cluster.database))
    for (thread_id,) in await account.cluster.rows("SELECT thread_id FROM thread"):
        await (await janitor.open(str(thread_id), fence=0)).close()
    await janitor.close()
    assert account.modal.world.living() == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_bot_that_dies_as_it_hands_a_run_over(account: Account, when: str) -> None:
    (bot,) = account.cluster.bots
    bot.start(arguments=NO_WORKER, failpoints=f"modal.spawn.{when}:kill")
    await account.cluster.connected()
    await account.cluster.say("Hello", "a1")
    assert await bot.ended(60) == -9
    assert len(account.calls) == (when == "after")
    await account.a_minute_passes()
    bot.start(arguments=NO_WORKER)
    await account.settle_and_check()


async def test_a_stop_reaches_the_function_that_has_the_run(account: Account) -> None:
    await account.cluster.start()
    await account.cluster.say("Nap", "a1")
    await account.cluster.until(lambda: account.calls and "takes up run" in account.calls[0].log(), "it is taken up")
    await account.cluster.stage.press("Stop")
    await account.cluster.until(lambda: account.cluster.stage.shows("Stopped"), "it says so")
    await account.cluster.until(account.are_over, "the functions end")
    assert await account.cluster.runs() == ["stopped"]
