"""A real discord.py client against the simulated Discord, with a small program behind it that remembers."""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

with warnings.catch_warnings():
    # discord.py imports audioop for voice, which Python has deprecated
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    import discord as _discord_py  # noqa: F401 - imported first, so that later imports warn no more

from bots.discord.app import DiscordApp
from bots.discord.gateway import client
from bots.inbound.actions import Outcome, UserAction
from core.domain.actions import IncomingMessage
from core.domain.errors import StorageUnavailable
from core.domain.threads import Address
from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.view import SeenChannel, SeenMessage, SeenThread
from tests.support.waiting import until


@dataclass
class Program:
    """What is behind the adapter: claims keys as the store does and answers what the test wants."""

    received: list[UserAction] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    cursor_of: dict[str, str] = field(default_factory=dict)
    answer: Callable[[UserAction], Awaitable[Outcome]] | None = None
    failures: int = 0

    async def receive(self, inbound: UserAction) -> Outcome:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the database is away")
        if inbound.dedupe_key in self.claimed:
            return Outcome(run_id="run", is_ignored=True)
        outcome = await self.answer(inbound) if self.answer else Outcome(run_id="run")
        self.claimed.add(inbound.dedupe_key)
        self.received.append(inbound)
        if isinstance(inbound, IncomingMessage) and inbound.prepare and outcome.run_id:
            await inbound.prepare()
        return outcome

    async def advance_cursors(self, platform: str, cursors: Mapping[str, str]) -> None:
        for scope, cursor in cursors.items():
            self.cursor_of[scope] = max(self.cursor_of.get(scope, "0"), cursor, key=int)

    async def cursors(self, platform: str) -> dict[str, str]:
        return dict(self.cursor_of)


@dataclass
class World:
    """The simulated Discord, the program and the client between them."""

    discord: DiscordSimulator
    program: Program
    app: DiscordApp

    @property
    def general(self) -> SeenChannel:
        return next(c for c in self.discord.view().channels if not c.is_direct)

    @property
    def direct(self) -> SeenChannel:
        return next(c for c in self.discord.view().channels if c.is_direct)

    @property
    def thread(self) -> SeenThread:
        return self.general.threads[-1]

    def message(self, message_id: str) -> SeenMessage:
        for channel in self.discord.view().channels:
            for messages in (channel.messages, *(t.messages for t in channel.threads)):
                for message in messages:
                    if message.message_id == message_id:
                        return message
        raise AssertionError(f"nobody sees a message {message_id}")

    async def say(self, text: str, **more) -> str:
        return await self.discord.say("alice", self.general.channel_id, text, **more)

    async def received(self, count: int = 1) -> UserAction:
        """The newest inbound fact, once there are so many."""
        await self.until(lambda: len(self.program.received) >= count)
        assert len(self.program.received) == count, self.program.received
        return self.program.received[-1]

    async def begin(self) -> Address:
        """Somebody asks the bot something. Returns the address of the thread that it opens."""
        await self.say("@threadhand hello")
        address = (await self.received()).address
        await self.until(lambda: self.general.threads)
        return address

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    def calls(self, method: str, ending: str) -> int:
        return sum(call.method == method and call.path.endswith(ending) for call in self.discord.calls)


def bot(discord: DiscordSimulator, program: Program, **options: Any) -> DiscordApp:
    named = {"token": discord.world.token, "api_url": discord.api_url, **options}
    return DiscordApp(receive=program.receive, cursors=program, **named)


@pytest.fixture(autouse=True)
def quickly_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits so long for further servers; the simulator sends all at once."""
    monkeypatch.setattr(client, "GUILD_READY_SECONDS", 0.1)


@pytest.fixture
async def discord() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(settings=DiscordSettings(rate_limit_scale=0)) as simulator:
        yield simulator


@pytest.fixture
async def connect(discord: DiscordSimulator) -> AsyncIterator[Callable[[Program], Awaitable[World]]]:
    """Connects a client; several times stands for restarts of the program."""
    apps: list[DiscordApp] = []

    async def connected(program: Program) -> World:
        app = bot(discord, program)
        apps.append(app)
        await app.start()
        return World(discord, program, app)

    yield connected
    for app in apps:
        await app.close()


@pytest.fixture
async def world(connect: Callable[[Program], Awaitable[World]]) -> World:
    return await connect(Program())


@pytest.fixture
def program() -> Program:
    return Program()
