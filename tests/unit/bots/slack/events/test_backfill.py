"""Which events of a channel a schedule may wait for."""

from contextlib import nullcontext
from typing import Any, cast

import pytest

from bots.inbound.actions import Outcome
from bots.inbound.schedules import LocateTriggerEvent
from bots.slack.events.backfill import MessageReplay
from bots.slack.events.handler import EventHandler
from bots.slack.events.parse import parse_trigger_event
from bots.slack.web_api.client import Identity, SlackClient
from bots.slack.web_api.users import UserLookup
from core.domain.errors import SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.schedules import TriggerEvent
from tests.support.narrow import require

BOT = Identity(team_id="T1", user_id="UBOT", bot_id="BBOT", name="threadhand")
POST: dict[str, Any] = {
    "type": "message",
    "channel": "C1",
    "user": "U2",
    "ts": "100.5",
    "text": "The printer is broken",
}
APP: dict[str, Any] = {**POST, "user": "", "subtype": "bot_message", "bot_id": "B1", "app_id": "A1", "text": "FIRING"}
EMOJI: dict[str, Any] = {
    "type": "reaction_added",
    "user": "U2",
    "reaction": "ticket::skin-tone-3",
    "item": {"type": "message", "channel": "C1", "ts": "100.5"},
    "event_ts": "101.5",
}


@pytest.mark.parametrize(
    ("event", "kind", "details"),
    [
        (POST, "post", ("100.5", "", frozenset[str]())),
        ({**POST, "thread_ts": "100.5", "subtype": "file_share"}, "post", ("100.5", "", frozenset[str]())),
        (APP, "app", ("100.5", "", frozenset({"A1", "B1"}))),
        (EMOJI, "emoji", ("100.5 ticket", "ticket", frozenset[str]())),
    ],
)
def test_posts_apps_and_emoji_are_events(event: dict[str, Any], kind: str, details: tuple[Any, ...]) -> None:
    happened = require(parse_trigger_event(event, BOT))
    assert happened.kind == kind
    assert (happened.key, happened.emoji, happened.app_ids) == details
    assert (happened.address.channel_id, happened.address.thread_key, happened.message_ref) == ("C1", "100.5", "100.5")


@pytest.mark.parametrize(
    "event",
    [
        {**POST, "thread_ts": "99.5"},  # a reply
        {**POST, "channel": "D1"},
        {**POST, "text": "<@UBOT> hello"},  # said to the bot
        {**POST, "user": "UBOT"},
        {**POST, "user": "USLACKBOT"},
        {**POST, "subtype": "channel_join"},
        {**POST, "subtype": "message_changed"},
        {**POST, "ts": "now"},
        {**APP, "user": "UBOT"},
        {**EMOJI, "user": "UBOT"},
        {**EMOJI, "item": {"type": "file"}},
        {**EMOJI, "item": {"type": "message", "channel": "D1", "ts": "100.5"}},
        {"type": "app_mention", "channel": "C1", "user": "U2", "ts": "100.5"},
        {},
    ],
)
def test_nothing_else_is(event: dict[str, Any]) -> None:
    assert parse_trigger_event(event, BOT) is None


class _Slack(SlackClient):
    """A Slack in which U2 is this user, or cannot be looked up now."""

    def __init__(self, user: JsonObject | None) -> None:
        super().__init__(bot_token="xoxb-1", api_url="http://127.0.0.1:9/api/")
        self._identity, self._user = BOT, user

    async def read(self, method: str, *_arguments: object, **_more: object) -> JsonObject:
        if method != "users.info":
            return {"messages": [{"ts": "100.5", "thread_ts": "99.5"}]}
        if self._user is None:
            raise SurfaceUnclear("no answer")
        return {"user": self._user}


@pytest.mark.parametrize(
    ("user", "app_ids"),
    [
        ({"id": "U2", "team_id": "T1"}, set[str]()),
        ({"id": "U2", "is_bot": True, "profile": {"api_app_id": "A1"}}, {"U2", "A1"}),
        (None, None),
    ],
)
async def test_whose_emoji_it_is_is_looked_up(user: JsonObject | None, app_ids: set[str] | None) -> None:
    async def receive(_action: object) -> Outcome:
        return Outcome()

    async def hear(_event: TriggerEvent, locate: LocateTriggerEvent | None = None) -> None:
        located = await require(locate)()
        assert (located.address.thread_key, located.app_ids) == ("99.5", app_ids)

    client = _Slack(user)
    handler = EventHandler(client, UserLookup(client), receive, hear=hear)
    with nullcontext() if app_ids is not None else pytest.raises(SurfaceUnclear):
        await handler.pass_to_schedules(EMOJI)


class _Heard:
    def __init__(self) -> None:
        self.events: list[Any] = []

    async def pass_to_schedules(self, event: Any) -> None:
        self.events.append(event)


class _Cursors:
    async def is_marked_ignored(self, _key: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("event", "cursor", "is_heard"), [(POST, "100.4", True), (APP, "100.4", True), (POST, "100.5", False)]
)
async def test_what_was_missed_is_heard_from_the_history(event: dict[str, Any], cursor: str, is_heard: bool) -> None:
    heard = _Heard()
    replay = MessageReplay(BOT, cast(Any, heard), cast(Any, _Cursors()), [])
    assert not await replay.replay_message(event, cursor=cursor)
    assert bool(heard.events) is is_heard
