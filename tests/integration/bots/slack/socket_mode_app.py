"""What the tests of a whole conversation share: a patient look, and a receiver that takes what comes in."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bots.inbound.actions import Outcome, UserAction
from bots.slack.app import SlackApp
from core.domain.actions import IncomingMessage
from core.domain.threads import Address, IncomingFile
from simulator.slack import SlackSimulator
from simulator.view import SeenChannel, SentFile
from tests.support.closing import close_after
from tests.support.narrow import require_type
from tests.support.waiting import until

WAIT_SECONDS = 30.0


@dataclass(slots=True)
class RecordingReceiver:
    """Takes what comes in. A key counts once, as in the store; `failures` is how often it breaks before it takes."""

    outcome: Outcome = field(default_factory=Outcome)
    failures: int = 0
    taken: list[UserAction] = field(default_factory=list[UserAction])
    calls: int = 0

    async def receive(self, inbound: UserAction) -> Outcome:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the store is away")
        if any(one.dedupe_key == inbound.dedupe_key for one in self.taken):
            return Outcome(is_ignored=True)
        self.taken.append(inbound)
        return self.outcome

    async def message(self) -> IncomingMessage:
        """The one thing that has come in, once it is there: a message."""
        await until(lambda: self.taken)
        (message,) = self.taken
        return require_type(message, IncomingMessage)


def general(slack: SlackSimulator) -> SeenChannel:
    """The one public channel."""
    return next(one for one in slack.view().channels if not one.is_direct)


def channel_of(slack: SlackSimulator) -> str:
    return general(slack).channel_id


def replies(slack: SlackSimulator) -> int:
    """How many messages stand in the threads of the channel."""
    return sum(len(thread.messages) - 1 for thread in general(slack).threads)


@asynccontextmanager
async def started(slack: SlackSimulator, **options: Any) -> AsyncIterator[SlackApp]:
    """The app against the simulated Slack; without more options it only speaks, as a worker's does."""
    app = SlackApp(bot_token=slack.settings.bot_token, api_url=slack.api_url, **options)
    async with close_after(app):
        await app.start()
        yield app


def running(
    slack: SlackSimulator, receiver: RecordingReceiver, **options: Any
) -> AbstractAsyncContextManager[SlackApp]:
    """The app by Socket Mode."""
    return started(slack, app_token=slack.settings.app_token, receive=receiver.receive, **options)


async def mention(slack: SlackSimulator, receiver: RecordingReceiver, words: str, **more: Any) -> IncomingMessage:
    """Alice mentions the agent in the channel. Returns what has come in of it."""
    await slack.say("alice", channel_of(slack), f"@threadhand {words}", **more)
    return await receiver.message()


def thread_in(slack: SlackSimulator, ts: str) -> Address:
    """The address of a thread in the channel."""
    return Address(platform="slack", workspace_id=slack.workspace.team_id, channel_id=channel_of(slack), thread_key=ts)


async def attached(slack: SlackSimulator, receiver: RecordingReceiver, content: bytes) -> IncomingFile:
    """A file that somebody has sent with a mention, as it came in."""
    message = await mention(slack, receiver, "read", files=[SentFile(name="a.bin", content=content)])
    return message.files[0]


async def read(app: SlackApp, file: IncomingFile, *, bytes_max: int = 10**9) -> bytes:
    """What the program reads of it from the platform."""
    return b"".join([piece async for piece in app.files.open(file, bytes_max=bytes_max)])
