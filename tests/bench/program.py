"""The program as a child process, with the platforms and the model in this one: what it costs is its own."""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bots.demo.scripted_model import serve_scenario
from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings
from simulator.model.scenario import Scenario
from simulator.model.server import ScriptedServer
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings
from tests.paths import REPOSITORY

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(REPOSITORY),
}
PERSON = "alice"
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The child while it runs, and the servers that it talks to. Platforms that were not asked for are None."""

    process: psutil.Process
    script: ScriptedServer
    slack: SlackSimulator | None
    discord: DiscordSimulator | None
    start_seconds: float
    """From the start of the process until it is connected."""

    def cpu_seconds(self) -> float:
        """What the program itself has used since its start, without the processes it has started."""
        times = self.process.cpu_times()
        return times.user + times.system

    def resident_bytes(self) -> int:
        """Of the program and everything that it has started."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(one.memory_info().rss for one in family)


@asynccontextmanager
async def program(
    scenario: Scenario,
    *,
    slack: bool = False,
    discord: bool = False,
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> AsyncGenerator[Program]:
    """`threadhand up` in an empty folder, or in `folder`, connected. The platforms set no rate limits: theirs are not
    measured."""
    async with AsyncExitStack() as stack:
        folder = folder or stack.enter_context(passable_folder())
        script = await stack.enter_async_context(serve_scenario(scenario))
        chosen = {**_common(folder, script), **(settings or {})}
        one = other = None
        if slack:
            one = SlackSimulator(settings=SlackSettings(rate_scale=0, calls_kept=100_000))
            await stack.enter_async_context(one)
            chosen |= _slack_settings(one)
        if discord:
            other = DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0))
            await stack.enter_async_context(other)
            chosen |= _discord_settings(other)
        started = time.perf_counter()
        child = await stack.enter_async_context(_child(folder, chosen))
        platforms = [platform for platform in (one, other) if platform is not None]
        await until(
            lambda: all(platform.view().is_bot_connected for platform in platforms),
            "the program is connected",
            child=child,
        )
        yield Program(
            process=psutil.Process(child.pid),
            script=script,
            slack=one,
            discord=other,
            start_seconds=time.perf_counter() - started,
        )


async def until(holds: Callable[[], object], what: str, *, child: Process | None = None) -> None:
    """Raises AssertionError where it does not come true in time, or the child ends meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"this did not happen in time: {what}"
        assert child is None or child.returncode is None, f"the program ended before: {what}"
        await asyncio.sleep(POLL_SECONDS)


@contextmanager
def passable_folder() -> Generator[Path]:
    """A temporary folder that the user of a jail may pass through."""
    with tempfile.TemporaryDirectory(prefix="threadhand-bench-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        yield folder


@asynccontextmanager
async def _child(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[Process]:
    environment = {**ENVIRONMENT, "HOME": str(folder)}
    environment |= {f"THREADHAND_{name.upper()}": text for name, text in settings.items()}
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "bots", "up", cwd=folder, env=environment)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


def _common(folder: Path, script: ScriptedServer) -> dict[str, str]:
    return {
        "model": "threadhand/bench",
        "llm_base_url": script.base_url,
        "llm_api_key": "scripted",
        "data_dir": str(folder),
        "http_port": "0",
        "allowed_workspaces": "*",
        "log_level": "WARNING",
    }


def _slack_settings(slack: SlackSimulator) -> dict[str, str]:
    return {
        "slack_bot_token": slack.settings.bot_token,
        "slack_app_token": slack.settings.app_token,
        "slack_signing_secret": slack.settings.signing_secret,
        "slack_api_url": slack.api_url,
    }


def _discord_settings(discord: DiscordSimulator) -> dict[str, str]:
    return {"discord_token": discord.token, "discord_api_url": discord.api_url}
