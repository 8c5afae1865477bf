"""The App Home is published until Slack shows it or refuses it for good."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.home import HomePage
from bots.slack.events.greetings import Greeter
from bots.slack.events.parse import ParseContext
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.json import JsonObject
from tests.histories.virtual_time import in_virtual_time
from tests.unit.bots.slack.events.test_parse import IDENTITY

LIMITED, UNCLEAR = SurfaceRateLimited("wait", retry_after_seconds=1), SurfaceUnclear("503")
GONE = SurfaceRefused("no", code="user_not_found")
IDLE = HomePage(runs=(), schedules=(), limits="none", agent="`general`", abilities="", is_admin=False)
OPENED: JsonObject = {"type": "app_home_opened", "tab": "home", "user": "U1", "channel": "D1"}


@pytest.mark.parametrize("has_access", [True, False])
@pytest.mark.parametrize(
    ("errors", "is_shown"), [((), True), ((LIMITED,), True), ((LIMITED, UNCLEAR), True), ((GONE,), False)]
)
@in_virtual_time
async def test_an_idle_home_that_slack_could_not_show_is_published_again(
    errors: tuple[SurfaceError, ...], is_shown: bool, has_access: bool
) -> None:
    left, shown = list(errors), list[JsonObject]()
    client: Any = SimpleNamespace()
    greetings: Any = SimpleNamespace()

    async def write(_method: str, body: JsonObject) -> None:
        if left:
            raise left.pop(0)
        shown.append(body)

    async def read_home_page(*_arguments: object) -> HomePage:
        return IDLE

    async def find_access(opened: CommandCalled) -> tuple[CommandCalled, bool]:
        return opened, has_access

    client.write, greetings.read_home_page = write, read_home_page
    greeter = Greeter(client, greetings, find_access)
    await greeter.handle_event(OPENED, ParseContext(identity=IDENTITY))
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    await task
    assert [one["user_id"] for one in shown] == ["U1"] * is_shown
