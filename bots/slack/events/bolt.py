"""Bolt, put between Slack's payloads and the doorway of the workspace that they belong to."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, cast

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult

from bots.slack.events.origin import Origin, origin_of
from bots.slack.events.payload import child, text
from bots.slack.events.retry_buffer import Refused
from bots.slack.events.uninstall import Leave, is_farewell, part
from bots.slack.web_api.client import SlackClient
from bots.slack.workspaces import Teams
from core.domain.errors import StorageUnavailable
from core.domain.messages import JsonObject

_Register = Callable[[re.Pattern[str]], Callable[[Callable[..., Awaitable[None]]], object]]


class _Registers(Protocol):
    """Bolt's registration methods, which it leaves half typed."""

    event: _Register
    action: _Register
    view: _Register
    command: _Register
    shortcut: _Register


def bolt_app(client: SlackClient, teams: Teams, leave: Leave, refused: Refused) -> AsyncApp:
    """Bolt, told to process before it responds: what raises is answered 500 and not acknowledged."""

    async def authorize(team_id: str | None) -> AuthorizeResult:
        # No question to Slack here: it could fail, and Bolt would drop the event.
        team = await teams.find(team_id or "")
        if team is None:
            # ours is nobody there, and nothing is done; Bolt would send an apology to wherever the payload says
            return AuthorizeResult(enterprise_id=None, team_id=team_id)
        identity = team.client.identity
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team_id,
            bot_user_id=identity.user_id,
            bot_id=identity.bot_id,
            bot_token=team.client.bot_token,
        )

    app = AsyncApp(
        name="threadhand",  # without a name Bolt reads the source of everything that is imported
        client=client.tokenless(),
        authorize=authorize,
        process_before_response=True,
        request_verification_enabled=False,  # bots.slack.events.http does it, in Socket Mode nobody needs to
        attaching_conversation_kwargs_enabled=False,
    )
    _register(cast(_Registers, app), teams, leave, refused)
    return app


def _register(on: _Registers, teams: Teams, leave: Leave, refused: Refused) -> None:
    async def on_event(body: dict[str, object], context: AsyncBoltContext) -> None:
        payload = cast(JsonObject, body)
        event, origin = child(payload, "event"), origin_of(payload, context.team_id or "")
        if is_farewell(event):
            await part(event, origin, teams, leave)
            return
        try:
            await _take(event, origin, teams)
        except StorageUnavailable:
            refused.keep(text(payload, "event_id"), partial(_take, event, origin, teams))
            raise

    async def on_click(ack: AsyncAck, body: dict[str, object], context: AsyncBoltContext) -> None:
        payload = cast(JsonObject, body)
        team = await teams.heard_from(origin_of(payload, context.team_id or ""))
        if team is not None and team.doorway is not None:
            await team.doorway.on_click(payload)
        await ack()

    async def on_other(ack: AsyncAck) -> None:
        await ack()

    anything = re.compile(".*")
    on.event(anything)(on_event)
    on.action(anything)(on_click)
    for register in (on.view, on.command, on.shortcut):
        register(anything)(on_other)


async def _take(event: JsonObject, origin: Origin, teams: Teams) -> None:
    team = await teams.heard_from(origin)
    if team is not None and team.doorway is not None:
        await team.doorway.on_event(event)
