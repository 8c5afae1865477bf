"""A trivial run, from the mention to the tick, traced: how many transactions and product files it passes."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal

import pytest

from bots.bootstrap import program
from bots.bootstrap.program import run_program
from bots.delivery import next_step
from bots.delivery.poster import Poster
from bots.delivery.reactions import Reactions
from bots.demo.scripted_model import serve_scenario
from bots.settings import load_settings
from bots.slack.events import handler, transports
from core.run import execute, recorder
from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings
from simulator.model.scenario import load_scenario
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings
from simulator.view import PlatformView
from storage.sql.database import LimitedDatabase
from storage.sql.sqlite import SqliteDatabase
from tests.paths import REPOSITORY
from tests.support.platforms import environment_of
from tests.support.waiting import until

TRANSACTIONS_MAX = 18
FILES_MAX = 125
PLATFORM_CALLS_MAX = {"slack": 4, "discord": 5}
"""Eyes, answer, tick, eyes taken away, and in Discord the thread. Slack allows about 20 removals a minute."""
SCENARIO = 'conversations: [{name: hi, steps: [{text: "Hi", usage: {input_tokens: 9, output_tokens: 1}}]}]'
PRODUCT = ("bots", "core", "sandbox", "storage")
NOT_OF_THE_RUN = {
    "SqlRunClaims.heartbeat",  # every second, whatever happens
    "SqlRunClaims.held_leases",  # with the next
    "SqlRunClaims.claimable_runs",  # the worker's sweep, every second
    "SqlDeliveries.open_runs",  # the delivery's sweep, every second
    "SqlAgentVersions.find_or_add_version",  # once for each version of an agent: the roster remembers it
}
"""Statements of jobs that run on a timer or once. They belong to the process, not to the run."""
LIMITS_OF_QUICK_RUNS = (
    (execute, "STOP_LOOK_SECONDS"),
    (recorder, "FLUSH_SECONDS"),
    (next_step, "QUEUED_AFTER_SECONDS"),
    (next_step, "TYPING_AFTER_SECONDS"),
    (handler, "SECOND_COPY_SECONDS_MAX"),
    (handler, "ROOT_SECONDS"),
    (transports, "PING_SECONDS"),
    (program, "LOOK_SECONDS"),
)
"""A run that takes longer does more, and so do jobs on a timer beside it. It takes long when traced, and on a slow
machine."""
DONE = ("white_check_mark", "✅")
SETTLED_SECONDS = 0.7
PATIENCE_SECONDS = 30.0
_TRANSACTIONS = {SqliteDatabase.write.__code__, SqliteDatabase.read.__code__}
_DATABASE_FILES = {inspect.getfile(SqliteDatabase), inspect.getfile(LimitedDatabase)}


@dataclass
class Trace:
    """`transactions`: the store methods that ran one, in order. `files`: product files of which a function ran.
    `platform_calls`: what the platform was asked."""

    is_on: bool = False
    transactions: list[str] = field(default_factory=list[str])
    platform_calls: list[str] = field(default_factory=list[str])
    files: set[str] = field(default_factory=set[str])
    _seen: set[FrameType] = field(default_factory=set[FrameType])

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.is_on or event != "call":
            return
        name = frame.f_code.co_filename
        if _is_product(name) and frame.f_code.co_name != "<module>":  # imported once a process
            self.files.add(name)
        # a coroutine is called again each time it goes on
        if frame.f_code in _TRANSACTIONS and frame not in self._seen:
            self._seen.add(frame)
            self._note(frame)

    def of_the_run(self) -> list[str]:
        return [name for name in self.transactions if name not in NOT_OF_THE_RUN]

    async def until_quiet(self) -> None:
        """Waits for the end of what a start does once, and forgets it. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            is_quiet = False
            while not is_quiet:
                await asyncio.sleep(SETTLED_SECONDS)
                running = {task.get_name() for task in asyncio.all_tasks()}
                is_quiet = not self.of_the_run() and "slack catch-up" not in running
                self.transactions.clear()
                self.files.clear()

    def __str__(self) -> str:
        root = f"{REPOSITORY}/"
        files = sorted(name.removeprefix(root) for name in self.files)
        lines = [f"{len(self.of_the_run())} transactions:", *self.of_the_run()]
        return "\n  ".join([*lines, "", f"{len(files)} product files:", *files])

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename in _DATABASE_FILES:
            if "store" in frame.f_locals:  # a decorator of a store's method
                self.transactions.append(frame.f_locals["work"].__qualname__)
                return
            frame = frame.f_back
        self.transactions.append(frame.f_code.co_qualname if frame else "?")


def _is_product(path: str) -> bool:
    """What serves the scripted model is not of the product. What logs is not of the run: a slow machine warns."""
    is_other = "/bots/demo/" in path or "/bots/observability/log" in path
    return not is_other and path.startswith(tuple(f"{REPOSITORY / name}/" for name in PRODUCT))


@contextmanager
def tracing() -> Generator[Trace]:
    """Profiles this thread and those that start inside the block."""
    trace = Trace()
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def emojis(view: PlatformView) -> Iterator[str]:
    for channel in view.channels:
        for message in channel.messages:
            yield from (reaction.emoji for reaction in message.reactions)


async def traced_run(platform: Literal["slack", "discord"], folder: Path) -> Trace:
    """Mentions the bot once and returns what ran until nothing was left to do."""
    async with AsyncExitStack() as stack:
        script = await stack.enter_async_context(serve_scenario(load_scenario(SCENARIO)))
        values = {
            "model": "threadhand/trivial",
            "llm_base_url": script.base_url,
            "llm_api_key": "scripted",
            "data_dir": str(folder),
            "http_port": "0",
            "allowed_workspaces": "*",
            "status_after_seconds": "60",
        }
        simulator: SlackSimulator | DiscordSimulator
        if platform == "slack":
            simulator = await stack.enter_async_context(SlackSimulator(settings=SlackSettings(rate_scale=0)))
        else:
            simulator = await stack.enter_async_context(DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0)))
        environ = {f"THREADHAND_{name.upper()}": text for name, text in values.items()} | environment_of(simulator)
        trace = stack.enter_context(tracing())
        await stack.enter_async_context(run_program(load_settings(environ, None)))
        await until(lambda: simulator.view().is_bot_connected)
        trace.is_on = True
        await trace.until_quiet()
        view = simulator.view()
        earlier = len(simulator.calls)
        channel = next(one.channel_id for one in view.channels if not one.is_direct)
        await simulator.say("alice", channel, f"@{view.bot_name} Hello")
        await until(lambda: any(one in DONE for one in emojis(simulator.view())))
        await asyncio.sleep(SETTLED_SECONDS)
        trace.is_on = False
        trace.platform_calls = [str(call) for call in [*simulator.calls][earlier:]]
        # a person's name is looked up once and kept
        trace.platform_calls = [one for one in trace.platform_calls if "users.info" not in one]
    return trace


async def no_check(_poster: Poster) -> None:
    pass


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_trivial_run_takes_few_transactions_and_files(
    platform: Literal["slack", "discord"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in LIMITS_OF_QUICK_RUNS:
        monkeypatch.setattr(module, name, 60.0)
    monkeypatch.setattr(Poster, "_check_lease", no_check)  # only after a second without a write
    monkeypatch.setattr(Reactions, "is_cache_valid", lambda reactions, message: True)
    trace = await traced_run(platform, tmp_path)
    assert len(trace.of_the_run()) <= TRANSACTIONS_MAX, str(trace)
    assert len(trace.files) <= FILES_MAX, str(trace)
    assert len(trace.platform_calls) <= PLATFORM_CALLS_MAX[platform], trace.platform_calls
