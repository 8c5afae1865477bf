"""A bot and workers under load: real PostgreSQL and Redis, both simulated platforms and the model in this process."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography.fernet import Fernet
from sqlalchemy import text
from yarl import URL

from bots.demo.scripted_model import serve_scenario
from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings
from simulator.model.scenario import load_scenario
from simulator.model.server import ScriptedServer
from simulator.slack.events.delivery import Delivery, Transport
from simulator.slack.events.payloads import Payload
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings
from storage.sql.database import Database, migrate, open_database
from tests.chaos.program import Program
from tests.load.places import Place, discord_places, install, slack_channels, slack_places
from tests.ports import free_port
from tests.servers import postgresql, redis

WORKSPACES = 20
PATIENCE_SECONDS = 300.0


class Watched:
    """Slack's way to the app, with the time each mention waited for its acknowledgement.

    The events of the bot's own posts and reactions are left out: nothing is stored for them, so they are quick.
    """

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
        event = delivery.payload.get("event")
        if isinstance(event, dict) and event.get("type") == "app_mention":
            self.waits_ms.append((time.monotonic() - began) * 1000)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    script: ScriptedServer
    slack: SlackSimulator
    discord: DiscordSimulator
    in_slack: tuple[Place, ...]
    in_discord: tuple[Place, ...]
    acks: Watched
    bot: Program
    workers: tuple[Program, ...]
    database: Database
    redis_url: str

    async def count(self, query: str) -> int:
        return await self.database.read(lambda c: int(c.execute(text(query)).scalar_one()))

    async def until(self, query: str, wanted: int, what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while (found := await self.count(query)) < wanted:
            assert time.monotonic() < deadline, f"{found} of {wanted}: {what}"
            await asyncio.sleep(0.1)

    async def is_done(self, runs: int) -> None:
        """Until so many runs are completed and all that they left is shown."""
        await self.until("SELECT count(*) FROM run WHERE status = 'completed'", runs, "runs end")
        await self.until("SELECT count(*) FROM rendering WHERE NOT is_open", runs, "answers are posted")

    def cpu_seconds(self) -> dict[str, float]:
        """What each part has used: the bot, the workers, this process with platforms and model, the servers."""
        used = {"bot": _cpu(self.bot.pid), "platforms and model": _cpu(None)}
        for number, worker in enumerate(self.workers):
            used[f"worker {number}"] = _cpu(worker.pid)
        return {**used, **_servers_cpu()}


def _cpu(pid: int | None) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _servers_cpu() -> dict[str, float]:
    used = {"postgres": 0.0, "redis": 0.0}
    for process in psutil.Process().children(recursive=True):
        # one that ends meanwhile has nothing to tell
        with suppress(psutil.Error):
            for name in used:
                if process.name().startswith(name):
                    used[name] += _cpu(process.pid)
    return used


@asynccontextmanager
async def fleet(
    scenario: str, *, workers: int, workspaces: int = WORKSPACES, channels: int = 0
) -> AsyncGenerator[Fleet, None]:
    """One bot and so many workers, connected, for as many Slack workspaces that have installed the bot as Discord
    servers. The platforms set no rate limits. With `channels` there is one workspace and one server with so many
    channels each, and the limits are on."""
    async with AsyncExitStack() as stack:
        url_of = stack.enter_context(postgresql())
        redis_url = stack.enter_context(redis())
        await migrate(url_of("postgres"))
        database = await open_database(url_of("postgres"))
        stack.push_async_callback(database.close)
        script = await stack.enter_async_context(serve_scenario(load_scenario(scenario)))
        names = ("general", *(f"quiet{number}" for number in range(1, channels)))
        slack, acks = await _slack(stack, names, rate_scale=float(channels > 0))
        discord = await stack.enter_async_context(
            DiscordSimulator(settings=DiscordSettings(rate_limit_scale=float(channels > 0)), channels=names)
        )
        if channels:
            in_slack, in_discord = slack_channels(slack, names), discord_places(discord, 1)
        else:
            in_slack, in_discord = (slack_places(slack, workspaces), discord_places(discord, workspaces))
        folder = Path(tempfile.mkdtemp(prefix="threadhand-load-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        # the page for installing has to know its address before anybody has connected
        port = free_port()
        settings = {
            "llm_base_url": script.base_url,
            "data_dir": str(folder / "data"),
            "http_port": "0",
            "public_url": f"http://127.0.0.1:{port}",
            "database_url": url_of("postgres"),
            "redis_url": redis_url,
            **_settings(slack, discord),
        }
        bot = Program(folder, {f"THREADHAND_{name.upper()}": one for name, one in settings.items()})
        workers_started = tuple(bot.beside(f"worker{number}") for number in range(workers))
        bot.change(http_port=port)
        for program in (bot, *workers_started):
            stack.callback(program.kill)
            if channels:
                program.wrapped_in = (sys.executable, "-m", "tests.load.paced")
        bot.start(arguments=("up", "--no-worker"))
        for worker in workers_started:
            worker.start(arguments=("worker",))
        await _until(lambda: slack.view().is_bot_connected and discord.view().is_bot_connected, bot)
        await install(URL(settings["public_url"]), in_slack[:1] if channels else in_slack)
        yield Fleet(
            script=script,
            slack=slack,
            discord=discord,
            in_slack=in_slack,
            in_discord=in_discord,
            acks=acks,
            bot=bot,
            workers=workers_started,
            database=database,
            redis_url=redis_url,
        )


async def _slack(
    stack: AsyncExitStack, channels: tuple[str, ...], *, rate_scale: float
) -> tuple[SlackSimulator, Watched]:
    settings = SlackSettings(rate_scale=rate_scale, retry_seconds=(0.1, 60.0, 300.0), channels=channels)
    slack = await stack.enter_async_context(SlackSimulator(settings=settings))
    acks = slack.outbox.transport = Watched(slack.outbox.transport)
    return slack, acks


def _settings(slack: SlackSimulator, discord: DiscordSimulator) -> dict[str, str]:
    return {
        "model": "threadhand/scripted",
        "llm_api_key": "scripted",
        "sandbox": "none",
        "allowed_workspaces": "*",
        "slack_client_id": slack.oauth.client_id,
        "slack_client_secret": slack.oauth.client_secret,
        "slack_app_token": slack.settings.app_token,
        "slack_api_url": slack.api_url,
        "encryption_keys": Fernet.generate_key().decode(),
        "discord_token": discord.token,
        "discord_api_url": discord.api_url,
        "drain_seconds": "0",
    }


async def _until(holds: Callable[[], bool], program: Program) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert program.is_running, program.log()
        assert time.monotonic() < deadline, program.log()
        await asyncio.sleep(0.05)
