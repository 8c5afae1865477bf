"""Calls to Slack that look things up: none for messages and reactions that cannot matter, and few for the others."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bots.inbound import retry_buffer
from bots.inbound.access import NOT_ALLOWED, UNKNOWN_PERSON, AccessCheck, AccessPolicy
from bots.inbound.actions import Outcome, UserAction
from bots.slack.app import SlackApp
from simulator.slack import SlackSimulator
from storage.sql.database import Database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.workspaces import SqlPairings
from tests.integration.bots.slack.socket_mode_app import channel_of, started
from tests.integration.bots.slack.storing_app import StoringReceiver, calls_of
from tests.support.waiting import until

LOOK_UPS = ("users.info", "conversations.replies", "usergroups.users.list")
MANY = 12


@asynccontextmanager
async def guarded(
    slack: SlackSimulator, receiver: StoringReceiver, database: Database, *, groups: tuple[str, ...] = ()
) -> AsyncGenerator[SlackApp, None]:
    """Runs the app as the program does, with the access check and the stored conversations."""
    policy = AccessPolicy(workspaces=("*",), roles=groups)
    check = AccessCheck(policy=policy, inbox=receiver.inbox, pairings=SqlPairings(database))

    async def receive(action: UserAction) -> Outcome:
        return await check.find_refusal(action) or await receiver.receive(action)

    options = {"app_token": slack.settings.app_token, "conversations": SqlConversations(database), "groups": groups}
    async with started(slack, receive=receive, admits=check.admits, **options) as app:
        yield app


async def test_what_is_not_for_the_bot_costs_no_look_up(
    slack: SlackSimulator, storing_receiver: StoringReceiver, database: Database
) -> None:
    channel = channel_of(slack)
    async with guarded(slack, storing_receiver, database):
        reply = poll = await slack.say("alice", channel, "Lunch at noon?")
        for number in range(MANY):
            await slack.react("bob", channel, poll, "x")
            await slack.react("bob", channel, poll, "x", is_removed=True)
            reply = await slack.say("bob", channel, f"@alice @bob good morning {number}", thread_id=poll)
        await slack.edit("bob", channel, reply, "@alice good evening")
        await slack.delete("bob", channel, reply)
        request = await slack.say("alice", channel, "@threadhand hello")
        await until(lambda: storing_receiver.taken == ["hello"])
        assert [calls_of(slack, method) for method in LOOK_UPS] == [1, 0, 0]  # alice, who asks
        await slack.react("alice", channel, request, "x")
        await until(lambda: storing_receiver.taken == ["hello", "(stop)"])
        assert [calls_of(slack, method) for method in LOOK_UPS] == [1, 0, 0]


async def test_a_message_waits_until_its_author_is_known(
    slack: SlackSimulator, storing_receiver: StoringReceiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_buffer, "RETRY_SECONDS", 0.05)
    channel = channel_of(slack)
    async with guarded(slack, storing_receiver, database):
        slack.misbehave("server_error", method="users.info", times=20)
        await slack.say("alice", channel, "@threadhand hello")
        await until(lambda: calls_of(slack, "users.info"))
        assert storing_receiver.taken == []
        slack.misbehave("none")
        await until(lambda: storing_receiver.taken == ["hello"])
    assert UNKNOWN_PERSON not in str(slack.view())


@pytest.mark.parametrize(
    ("method", "code", "sentence"),
    [
        ("users.info", "user_not_visible", UNKNOWN_PERSON),
        ("usergroups.users.list", "plan_upgrade_required", NOT_ALLOWED),
    ],
)
async def test_who_is_never_looked_up_is_told_so(
    slack: SlackSimulator, storing_receiver: StoringReceiver, database: Database, method: str, code: str, sentence: str
) -> None:
    groups = ("S1",) if method.startswith("usergroups") else ()
    async with guarded(slack, storing_receiver, database, groups=groups):
        slack.misbehave("refuse", method=method, code=code, times=20)
        await slack.say("alice", channel_of(slack), "@threadhand hello")
        await until(lambda: sentence in str(slack.view()))
        assert storing_receiver.taken == []
        assert calls_of(slack, method) == 1
