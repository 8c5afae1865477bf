"""A bot and workers under load: real PostgreSQL and Redis, both simulated platforms and the model in this process."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import text

from bots.simulator.discord.server import DiscordSimulator
from bots.simulator.discord.settings import DiscordSettings
from bots.simulator.slack.deliveries import Delivery, Transport
from bots.simulator.slack.payloads import Payload
from bots.simulator.slack.server import SlackSimulator
from bots.simulator.slack.settings import SlackSettings
from core.llm.scripted import load_scenario
from core.llm.scripted_server import ScriptedServer, serve
from storage.database import Database
from storage.opening import migrate, open_database
from tests.chaos.program import Program
from tests.servers import postgresql, redis

PERSON = "alice"
PATIENCE_SECONDS = 300.0


class Watched:
    """Slack's way to the app, with the time each event waited for its acknowledgement."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.waits_ms: list[float] = []

    def is_connected(self) -> bool:
        return self._transport.is_connected()

    async def wait_until_connected(self, seconds: float) -> bool:
        return await self._transport.wait_until_connected(seconds)

    async def send(self, delivery: Delivery, *, ack_seconds: float) -> Payload | None:
        began = time.monotonic()
        answer = await self._transport.send(delivery, ack_seconds=ack_seconds)
        self.waits_ms.append((time.monotonic() - began) * 1000)
        return answer


@dataclass(frozen=True, slots=True)
class Place:
    """Where people talk on a platform. Looked up once: a look at all that was said costs more the more there is."""

    bot_name: str
    channels: tuple[str, ...]


def place_in(platform: SlackSimulator | DiscordSimulator) -> Place:
    seen = platform.view()
    return Place(seen.bot_name, tuple(one.channel_id for one in seen.channels if not one.is_direct))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    script: ScriptedServer
    slack: SlackSimulator
    discord: DiscordSimulator
    in_slack: Place
    in_discord: Place
    acks: Watched
    bot: Program
    workers: tuple[Program, ...]
    database: Database
    redis_url: str

    async def count(self, query: str) -> int:
        return await self.database.read(lambda c: int(c.execute(text(query)).scalar_one()))

    async def until(
        self, query: str, wanted: int, what: str, *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        deadline = time.monotonic() + seconds
        while (found := await self.count(query)) < wanted:
            assert time.monotonic() < deadline, f"{found} of {wanted}: {what}"
            await asyncio.sleep(0.1)

    async def is_done(self, runs: int) -> None:
        """Until so many runs are completed and all that they left is shown."""
        await self.until("SELECT count(*) FROM run WHERE status = 'completed'", runs, "runs end")
        await self.until(
            "SELECT count(*) FROM rendering WHERE NOT is_open", runs, "answers are posted"
        )

    def cpu_seconds(self) -> dict[str, float]:
        """What each part has used: the bot, the workers, and this process with platforms and model."""
        used = {"bot": _cpu(self.bot.pid), "platforms and model": _cpu(None)}
        for number, worker in enumerate(self.workers):
            used[f"worker {number}"] = _cpu(worker.pid)
        return used


def _cpu(pid: int | None) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@asynccontextmanager
async def fleet(scenario: str, *, workers: int, channels: int = 20) -> AsyncGenerator[Fleet, None]:
    """One bot and so many workers, connected. The platforms set no rate limits."""
    names = tuple(f"channel{number}" for number in range(channels))
    async with AsyncExitStack() as stack:
        url_of = stack.enter_context(postgresql())
        redis_url = stack.enter_context(redis())
        await migrate(url_of("postgres"))
        database = await open_database(url_of("postgres"))
        stack.push_async_callback(database.close)
        script = await stack.enter_async_context(serve(load_scenario(scenario)))
        slack = await stack.enter_async_context(
            SlackSimulator(
                settings=SlackSettings(
                    rate_scale=0, channels=names, retry_seconds=(0.1, 60.0, 300.0)
                )
            )
        )
        acks = Watched(slack.outbox.transport)
        slack.outbox.transport = acks
        discord = await stack.enter_async_context(
            DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0), channels=names)
        )
        folder = Path(tempfile.mkdtemp(prefix="threadhand-load-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        settings = {
            "model": "threadhand/scripted",
            "llm_base_url": script.base_url,
            "llm_api_key": "scripted",
            "data_dir": str(folder / "data"),
            "http_port": "0",
            "sandbox": "none",
            "allowed_workspaces": "*",
            "database_url": url_of("postgres"),
            "redis_url": redis_url,
            "slack_bot_token": slack.settings.bot_token,
            "slack_app_token": slack.settings.app_token,
            "slack_api_url": slack.api_url,
            "discord_token": discord.token,
            "discord_api_url": discord.api_url,
            "drain_seconds": "0",
        }
        bot = Program(folder, {f"THREADHAND_{name.upper()}": one for name, one in settings.items()})
        crowd = tuple(bot.beside(f"worker{number}") for number in range(workers))
        for program in (bot, *crowd):
            stack.callback(program.kill)
        bot.start(arguments=("up", "--no-worker"))
        for worker in crowd:
            worker.start(arguments=("worker",))
        await _until(lambda: slack.view().is_bot_connected and discord.view().is_bot_connected, bot)
        yield Fleet(
            script=script,
            slack=slack,
            discord=discord,
            in_slack=place_in(slack),
            in_discord=place_in(discord),
            acks=acks,
            bot=bot,
            workers=crowd,
            database=database,
            redis_url=redis_url,
        )


async def _until(holds: Callable[[], bool], program: Program) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert program.is_running, program.log()
        assert time.monotonic() < deadline, program.log()
        await asyncio.sleep(0.05)
