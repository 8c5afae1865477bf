"""What the tests of a whole conversation share: a patient look, and a receiver that takes what comes in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bots.inbound.actions import Outcome, UserAction
from bots.slack.app import SlackApp
from core.domain.actions import IncomingMessage
from core.domain.threads import IncomingFile
from simulator.slack import SlackSimulator
from simulator.view import SeenChannel, SentFile
from tests.support.closing import close_after
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


def general(slack: SlackSimulator) -> SeenChannel:
    """The one public channel."""
    return next(one for one in slack.view().channels if not one.is_direct)


def channel_of(slack: SlackSimulator) -> str:
    return general(slack).channel_id


def replies(slack: SlackSimulator) -> int:
    """How many messages stand in the threads of the channel."""
    return sum(len(thread.messages) - 1 for thread in general(slack).threads)


@asynccontextmanager
async def running(
    slack: SlackSimulator, receiver: RecordingReceiver, *, admits: Callable[[UserAction], Awaitable[bool]] | None = None
) -> AsyncIterator[SlackApp]:
    """The app by Socket Mode against the simulated Slack."""
    async with close_after(
        SlackApp(
            bot_token=slack.settings.bot_token,
            app_token=slack.settings.app_token,
            api_url=slack.api_url,
            receive=receiver.receive,
            admits=admits,
        )
    ) as app:
        await app.start()
        yield app


async def attached(slack: SlackSimulator, receiver: RecordingReceiver, content: bytes) -> IncomingFile:
    """A file that somebody has sent with a mention, as it came in."""
    sent = SentFile(name="a.bin", content=content)
    await slack.say("alice", channel_of(slack), "@threadhand read", files=[sent])
    await until(lambda: receiver.taken)
    message = receiver.taken[0]
    assert isinstance(message, IncomingMessage)
    return message.files[0]


async def read(app: SlackApp, file: IncomingFile, *, bytes_max: int = 10**9) -> bytes:
    """What the program reads of it from the platform."""
    return b"".join([piece async for piece in app.files.open(file, bytes_max=bytes_max)])
