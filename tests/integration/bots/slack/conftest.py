"""A Slack on this machine, and the app against it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.slack.app import SlackApp
from core.domain.threads import Address
from simulator.slack import SlackSimulator
from storage.sql.database import Database
from storage.sql.stores.inbox import SqlInbox
from tests.databases import open_sqlite
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, running, started, thread_in
from tests.integration.bots.slack.storing_app import StoringReceiver


@pytest.fixture
def receiver() -> RecordingReceiver:
    return RecordingReceiver()


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


@pytest.fixture
async def app(slack: SlackSimulator, receiver: RecordingReceiver) -> AsyncIterator[SlackApp]:
    async with running(slack, receiver) as app:
        yield app


@pytest.fixture
async def speaker(slack: SlackSimulator) -> AsyncIterator[SlackApp]:
    """An app that only speaks, as a worker's does."""
    async with started(slack) as app:
        yield app


@pytest.fixture
async def address(slack: SlackSimulator) -> Address:
    return thread_in(slack, await slack.say("alice", channel_of(slack), "a thread"))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_sqlite(tmp_path / "test.db")
    yield database
    await database.close()


@pytest.fixture
def storing_receiver(database: Database) -> StoringReceiver:
    return StoringReceiver(SqlInbox(database))
