"""Bolt, put between Slack's payloads and the doorway of the workspace that they belong to."""

import re
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult

from bots.slack.client import Identity, SlackClient
from bots.slack.payload import child, strings, text
from bots.slack.teams import Teams
from core.messages import JsonObject

Leave = Callable[[str], Awaitable[None]]
_Register = Callable[[re.Pattern[str]], Callable[[Callable[..., Awaitable[None]]], object]]


class _Registers(Protocol):
    """Bolt's registration methods, which it leaves half typed."""

    event: _Register
    action: _Register
    view: _Register
    command: _Register
    shortcut: _Register


def bolt_app(client: SlackClient, teams: Teams, leave: Leave) -> AsyncApp:
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
        request_verification_enabled=False,  # bots.slack.http does it, in Socket Mode nobody needs to
        attaching_conversation_kwargs_enabled=False,
    )
    _register(cast(_Registers, app), teams, leave)
    return app


def _register(on: _Registers, teams: Teams, leave: Leave) -> None:
    async def on_event(body: dict[str, object], context: AsyncBoltContext) -> None:
        event, team_id = child(cast(JsonObject, body), "event"), context.team_id or ""
        team = await teams.find(team_id)
        if team is not None and is_farewell(event, team.client.identity):
            await leave(team_id)
        elif team is not None and team.doorway is not None:
            await team.doorway.on_event(event)

    async def on_click(ack: AsyncAck, body: dict[str, object], context: AsyncBoltContext) -> None:
        team = await teams.find(context.team_id or "")
        if team is not None and team.doorway is not None:
            await team.doorway.on_click(cast(JsonObject, body))
        await ack()

    async def on_other(ack: AsyncAck) -> None:
        await ack()

    anything = re.compile(".*")
    on.event(anything)(on_event)
    on.action(anything)(on_click)
    for register in (on.view, on.command, on.shortcut):
        register(anything)(on_other)


def is_farewell(event: JsonObject, identity: Identity) -> bool:
    """Whether the workspace took the bot away, or its token alone."""
    if text(event, "type") == "app_uninstalled":
        return True
    revoked = strings(event, "tokens", "bot")
    return text(event, "type") == "tokens_revoked" and identity.user_id in revoked
