"""The Bolt app: dispatches payloads to their workspaces' event handlers, retries, and handles uninstalls."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult

from bots.inbound.actions import INTERNAL_ERROR, NOT_INSTALLED
from bots.inbound.retry_buffer import RetryBuffer
from bots.slack.events.handler import EventHandler
from bots.slack.events.interactions import refusal_acknowledgement
from bots.slack.events.payload_fields import (
    Tenant,
    find_channel,
    get_object,
    get_strings,
    get_text,
    parse_sharing_team_ids,
    parse_tenant,
)
from bots.slack.install.tokens import UnreadableToken
from bots.slack.render.mrkdwn import mentioned_user_ids, message_mrkdwn
from bots.slack.web_api.client import SlackClient
from bots.slack.workspaces import Workspaces
from core.domain.errors import StorageUnavailable, SurfaceError
from core.domain.json import JsonObject

log = logging.getLogger(__name__)
OnUninstall = Callable[[str], Awaitable[None]]
"""A callback that receives the id of the workspace or organisation that removed the app."""
_UNINSTALL_EVENTS = frozenset({"app_uninstalled", "team_access_revoked", "tokens_revoked"})


def is_uninstall_event(event: JsonObject) -> bool:
    """Whether the event may end an installation."""
    return get_text(event, "type") in _UNINSTALL_EVENTS


async def handle_uninstall(
    event: JsonObject, tenant: Tenant, workspaces: Workspaces, on_uninstall: OnUninstall
) -> None:
    """Calls `on_uninstall` for each installation that the event ends. Raises StorageUnavailable and UnreadableToken.

    Slack sends several of these events at once and in any order, so installations that have already ended are skipped.
    If a workspace removes the app, the other workspaces that the organisation's installation serves are not
    affected."""
    async with workspaces.uninstalling:
        for one in await _uninstalled_ids(event, tenant, workspaces):
            await on_uninstall(one)


async def _uninstalled_ids(event: JsonObject, tenant: Tenant, workspaces: Workspaces) -> Sequence[str]:
    organisation_id = tenant.organisation_id
    if get_text(event, "type") == "team_access_revoked":
        named = await workspaces.find_all(get_strings(event, "team_ids"))
        served = [one for one in named if one.uses_organisation_token]
        # Slack does not always name the organisation, but a workspace belongs to only one
        return [one.client.identity.team_id for one in served if organisation_id in ("", one.installed_by)]
    place = tenant.team_id or organisation_id
    workspace = await workspaces.find(place)
    # `tokens_revoked` may name only tokens of users
    removes_bot = get_text(event, "type") == "app_uninstalled" or (
        workspace is not None and workspace.client.identity.user_id in get_strings(event, "tokens", "bot")
    )
    if workspace is None or not removes_bot:
        return ()
    is_whole = organisation_id != "" and workspace.installed_by == organisation_id
    return (organisation_id,) if is_whole else (place,)


_Register = Callable[[re.Pattern[str]], Callable[[Callable[..., Awaitable[None]]], object]]


class _Registers(Protocol):
    """Types for Bolt's registration methods, because Bolt's own are incomplete."""

    event: _Register
    action: _Register
    view: _Register
    view_closed: _Register
    command: _Register
    shortcut: _Register


def build_bolt_app(
    client: SlackClient, workspaces: Workspaces, on_uninstall: OnUninstall, retry_buffer: RetryBuffer
) -> AsyncApp:
    """Builds a Bolt app that processes before it responds, so an exception returns 500 and Slack redelivers."""

    async def authorize(team_id: str | None) -> AuthorizeResult:
        # Do not call Slack here, because Bolt would drop the event if the call failed.
        (workspace,) = await workspaces.find_all([team_id or ""]) or (None,)
        if workspace is None:
            # An empty result makes the handlers do nothing. Without a result, Bolt posts an error to the channel.
            return AuthorizeResult(enterprise_id=None, team_id=team_id)
        identity = workspace.client.identity
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team_id,
            bot_user_id=identity.user_id,
            bot_id=identity.bot_id,
            bot_token=workspace.client.bot_token,
        )

    app = AsyncApp(
        name="threadhand",  # without a name Bolt scans the source of every imported module
        client=client.tokenless_sdk_client(),
        authorize=authorize,
        process_before_response=True,
        request_verification_enabled=False,  # done in bots.slack.events.transports; not needed in Socket Mode
        attaching_conversation_kwargs_enabled=False,
    )
    on = cast(_Registers, app)

    async def on_event(body: dict[str, object], context: AsyncBoltContext) -> None:
        payload = cast(JsonObject, body)
        event, tenant = get_object(payload, "event"), parse_tenant(payload, context.team_id or "")
        if is_uninstall_event(event):
            process = partial(handle_uninstall, event, tenant, workspaces, on_uninstall)
        else:
            sharing_ids = parse_sharing_team_ids(payload)
            process = partial(_dispatch_event, event, tenant, sharing_ids, workspaces)
        try:
            await process()
        except (StorageUnavailable, SurfaceError):
            retry_buffer.add(find_channel(event) or tenant.team_id, get_text(payload, "event_id"), process)
            raise

    anything = re.compile(".*")
    on.event(anything)(on_event)
    interactions = (
        (on.action, EventHandler.on_click),
        (on.command, EventHandler.on_command),
        (on.shortcut, EventHandler.on_shortcut),
        (on.view, EventHandler.on_form),
        (on.view_closed, EventHandler.on_form),
    )
    for register, handle in interactions:
        register(anything)(_build_listener(handle, workspaces))
    return app


Handle = Callable[[EventHandler, JsonObject], Awaitable[JsonObject | None]]


def _build_listener(handle: Handle, workspaces: Workspaces) -> Callable[..., Awaitable[None]]:
    """Returns a Bolt listener that acknowledges an interaction with the result of `handle`."""

    async def on_interaction(ack: AsyncAck, body: dict[str, object], context: AsyncBoltContext) -> None:
        payload = cast(JsonObject, body)
        refusal = NOT_INSTALLED
        try:
            workspace = await workspaces.find_for_tenant(parse_tenant(payload, context.team_id or ""))
        except UnreadableToken as error:
            log.warning("slack: an interaction is refused: %s", error)
            workspace, refusal = None, INTERNAL_ERROR
        if workspace is None:
            log.warning("slack: the app is not installed in %r, where it was used", context.team_id)
            answer = refusal_acknowledgement(payload, refusal)
        else:
            answer = workspace.event_handler and await handle(workspace.event_handler, payload)
        await ack(**cast(dict[str, Any], answer or {}))

    return on_interaction


async def _dispatch_event(
    event: JsonObject, tenant: Tenant, sharing_ids: frozenset[str], workspaces: Workspaces
) -> None:
    """Passes the event to every workspace that shares the channel, or only to the first one whose bot it mentions."""
    tenant_workspace = await workspaces.find_for_tenant(tenant)
    sharing = await workspaces.find_sharing_channel(get_text(event, "channel"), sharing_ids)
    found = {one.client.identity.team_id: one for one in (tenant_workspace, *sharing) if one}
    text = message_mrkdwn(get_object(event, "message") or event) if sharing else ""
    mentioned = mentioned_user_ids(text)
    called = [one for one in found.values() if one.client.identity.user_id in mentioned]
    called.sort(key=lambda one: text.find(f"<@{one.client.identity.user_id}"))
    chosen = called[:1] or found.values()
    handlers = [one.event_handler for one in chosen if one.event_handler is not None]
    # all at the same time, because Slack waits only three seconds for all of them
    ends = await asyncio.gather(*(one.on_event(event) for one in handlers), return_exceptions=True)
    for error in ends:
        if error is not None:
            raise error
