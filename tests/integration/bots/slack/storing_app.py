"""An app with a store behind it, which goes away and comes back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from bots.inbound.actions import CommandCalled, Outcome, RunButtonPressed, UserAction, decide_action
from bots.slack.app import SlackApp
from bots.slack.events.cursors import ChannelCursors
from core.domain.actions import IncomingMessage
from core.domain.errors import StorageUnavailable
from core.domain.threads import Decision, Ignore
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.message_events import posted_event, subscription_of
from storage.sql.stores.inbox import SqlInbox
from tests.integration.bots.slack.socket_mode_app import WAIT_SECONDS, channel_of, started
from tests.support.waiting import until

UNHEARD = SlackSettings(rate_scale=0, offline_seconds=0.0, channels=("general", "other"))
"""Slack gives an event up at once where nobody listens."""


@dataclass
class StoringReceiver:
    """Decides and stores as the program does; `taken` are the words that would be worked on."""

    inbox: SqlInbox
    taken: list[str] = field(default_factory=list[str])
    ignored: str = ""
    """The dedupe key of the newest message that was left alone."""
    calls: int = 0
    decision: Decision | None = None
    """Takes the place of the program's own rules."""
    is_away: bool = False
    """As if the database were."""

    async def receive(self, inbound: UserAction) -> Outcome:
        self.calls += 1
        if self.is_away:
            raise StorageUnavailable("it is away")
        assert not isinstance(inbound, CommandCalled | RunButtonPressed)
        decision = self.decision
        rule = (lambda _: decision) if decision else partial(decide_action, inbound)
        receipt = await self.inbox.accept_action(inbound, rule)
        if receipt.is_duplicate or isinstance(receipt.decision, Ignore):
            self.ignored = inbound.dedupe_key
            return Outcome(run_id=receipt.run_id, is_ignored=True)
        self.taken.append(inbound.text if isinstance(inbound, IncomingMessage) else "(stop)")
        return Outcome(run_id=receipt.run_id)

    async def marks(self) -> dict[str, str]:
        """Of channels; how long a workspace is known says nothing of what was heard."""
        cursors = await self.inbox.cursors("slack")
        return {scope: mark for scope, mark in cursors.items() if not scope.endswith(":")}

    async def marked_ignored(self) -> None:
        """Waits until it is stored that a message was left alone."""
        cursors = ChannelCursors(self.inbox)
        async with asyncio.timeout(WAIT_SECONDS):
            while not (self.ignored and await cursors.is_marked_ignored(self.ignored)):
                await asyncio.sleep(0.01)

    async def marked(self, channels: int = 1) -> None:
        """Waits until so many channels have a mark, which is made after what it stands for."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(await self.marks()) < channels:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(slack: SlackSimulator, storing_receiver: StoringReceiver) -> AsyncGenerator[SlackApp, None]:
    options = {"receive": storing_receiver.receive, "inbox": storing_receiver.inbox}
    async with started(slack, app_token=slack.settings.app_token, **options) as app:
        # an event that Slack has before it knows of the socket is given up at once
        await until(slack.socket_mode.is_connected)
        yield app


async def told(caplog: pytest.LogCaptureFixture, words: str) -> str:
    """The line of the log with the words, once it is there."""
    await until(lambda: words in caplog.text)
    return next(line for line in caplog.messages if words in line)


async def heard_once(
    slack: SlackSimulator, storing_receiver: StoringReceiver, text: str = "@threadhand begin", *, by: str = "alice"
) -> str:
    """A thread that begins while the app listens, and is marked."""
    async with listening(slack, storing_receiver):
        root = await slack.say(by, channel_of(slack), text)
        await until(lambda: storing_receiver.taken)
        await storing_receiver.marked()
    return root


def deliver_again(slack: SlackSimulator, channel_id: str, ts: str) -> None:
    channel = slack.workspace.channels[channel_id]
    event = posted_event(slack.workspace, channel, channel.messages[ts])
    slack.workspace.emit(subscription_of(channel), event)


def calls_of(slack: SlackSimulator, method: str) -> int:
    return sum(call.method == method for call in slack.calls)
