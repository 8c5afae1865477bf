"""The program as a child process, with the platforms and the model in this one: what it costs is its own."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bots.demo.scripted_model import serve_scenario
from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings
from simulator.model.scenario import Conversation, Scenario, Step
from simulator.model.server import ScriptedServer
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings
from tests.chaos.program import Program as ChildProgram
from tests.paths import REPOSITORY
from tests.support.platforms import environment_of

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(REPOSITORY),
}
PERSON = "alice"
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01
SILENCE = Scenario(conversations=(Conversation(name="silence", steps=(Step(text="-"),)),))


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
        child = ChildProgram(folder, {f"THREADHAND_{name.upper()}": text for name, text in chosen.items()})
        child.is_forked = False
        child.environment |= ENVIRONMENT
        one = other = None
        if slack:
            one = SlackSimulator(settings=SlackSettings(rate_scale=0, calls_kept=100_000))
            await stack.enter_async_context(one)
            child.settings |= environment_of(one)
        if discord:
            other = DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0))
            await stack.enter_async_context(other)
            child.settings |= environment_of(other)
        started = time.perf_counter()
        child.start()
        stack.push_async_callback(_end, child)
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


async def until(holds: Callable[[], object], what: str, *, child: ChildProgram | None = None) -> None:
    """Raises AssertionError where it does not come true in time, or the child ends meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"this did not happen in time: {what}"
        assert child is None or child.is_running, f"the program ended before: {what}"
        await asyncio.sleep(POLL_SECONDS)


@contextmanager
def passable_folder() -> Generator[Path]:
    """A temporary folder that the user of a jail may pass through."""
    with tempfile.TemporaryDirectory(prefix="threadhand-bench-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        yield folder


async def _end(child: ChildProgram) -> None:
    if child.is_running:
        child.terminate()
        await child.ended()


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
