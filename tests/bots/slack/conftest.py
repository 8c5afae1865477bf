"""A Slack on this machine, and the app against it with a `receive` that remembers what it was given."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from bots.inbound import Inbound, Outcome
from bots.simulator.slack import SlackSimulator
from bots.slack.app import SlackApp

WAIT_SECONDS = 15.0


async def eventually(is_so: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> None:
    """Waits until the condition holds; fails the test where it never does."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.01)


@dataclass(slots=True)
class Desk:
    """Takes what comes in. A key counts once, as in the store; `failures` is how often it breaks before it takes."""

    outcome: Outcome = field(default_factory=Outcome)
    failures: int = 0
    taken: list[Inbound] = field(default_factory=list[Inbound])
    calls: int = 0

    async def receive(self, inbound: Inbound) -> Outcome:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the store is away")
        if any(one.dedupe_key == inbound.dedupe_key for one in self.taken):
            return Outcome(is_ignored=True)
        self.taken.append(inbound)
        return self.outcome


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


@pytest.fixture
async def app(slack: SlackSimulator, desk: Desk) -> AsyncIterator[SlackApp]:
    app = SlackApp(
        bot_token=slack.settings.bot_token,
        app_token=slack.settings.app_token,
        api_url=slack.api_url,
        receive=desk.receive,
    )
    await app.start()
    yield app
    await app.close()
