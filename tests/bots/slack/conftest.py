"""A Slack on this machine, and the app against it."""

from collections.abc import AsyncIterator

import pytest

from bots.simulator.slack import SlackSimulator
from bots.slack.app import SlackApp
from tests.bots.slack.scene import Desk, running


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


@pytest.fixture
async def app(slack: SlackSimulator, desk: Desk) -> AsyncIterator[SlackApp]:
    async with running(slack, desk) as app:
        yield app
