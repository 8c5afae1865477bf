"""Tests the keys of services with calls that change nothing."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import wraps
from typing import cast
from urllib.parse import quote

import aiohttp

from bots.settings import Settings
from bots.setup.findings import Finding, untested_finding
from bots.slack.install.manifest import BOT_SCOPES, OPTIONAL_SCOPES
from core.domain.errors import ConfigurationError
from core.domain.json import json_fields, json_objects

CALL_SECONDS = 10.0
REPLY_BYTES_MAX = 4 * 1024 * 1024
RETRY_SECONDS_MAX = 3.0
CLOCK_SECONDS_MAX = 60.0
SLACK_APPS = "https://api.slack.com/apps"
DISCORD_APPS = "https://discord.com/developers/applications"
DISCORD_PERMISSIONS = {
    "Add Reactions": 1 << 6,
    "View Channels": 1 << 10,
    "Send Messages": 1 << 11,
    "Attach Files": 1 << 15,
    "Read Message History": 1 << 16,
    "Create Public Threads": 1 << 35,
    "Send Messages in Threads": 1 << 38,
}
_RATE_LIMITED = 429
_ADMINISTRATOR = 1 << 3
_MESSAGE_CONTENT = 1 << 18 | 1 << 19
_UNKNOWN_APP = ("invalid_client_id", "bad_client_secret", "invalid_client")
_SLACK_REMEDIES = {
    "account_inactive": "The app was removed from the workspace: install it again at {app} and copy its new token.",
    "token_revoked": "Install the app again at {app} and copy its new token.",
    "token_expired": "Switch token rotation off at {app}, or install the app with its client id instead.",
    "invalid_auth": "Copy the token from {app} again.",
    "not_allowed_token_type": "Exchange the two tokens: xoxb- is the bot token, xapp- the app token.",
    "missing_scope": "Give the app token the scope connections:write at {app} (App-Level Tokens).",
}


@dataclass(frozen=True, slots=True)
class ServiceReply:
    """An HTTP response. `status` is None if there was none. `body` is its JSON object and `rows` the objects of its
    JSON array; the other is empty."""

    status: int | None = None
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    rows: Sequence[Mapping[str, object]] = ()
    scopes: tuple[str, ...] | None = None
    retry_after_seconds: float = 0.0

    def text(self, name: str) -> str:
        return str(self.body.get(name) or "")


class NoReply(Exception):
    """A chat platform did not answer, or answered only that it is overloaded. Nothing follows from that."""


@dataclass(slots=True)
class ServiceClient:
    """Makes the HTTP calls of the checks. `clock_errors` are the seconds by which this machine's clock is ahead of each
    service's clock. The clock at `own_url`, the program's own address, is not compared."""

    session: aiohttp.ClientSession
    own_url: str = ""
    clock_errors: list[float] = field(default_factory=list[float])

    async def call(self, verb: str, url: str, authorization: str = "", **options: Mapping[str, object]) -> ServiceReply:
        """Makes a call and returns the reply, which is empty without a response. `options` are passed to aiohttp:
        `headers`, `json`, `data`."""
        headers = {**options.pop("headers", {})}
        if authorization:
            headers["Authorization"] = authorization
        try:
            async with self.session.request(
                verb,
                url,
                headers=cast(dict[str, str], headers),
                allow_redirects=False,
                **options,  # pyright: ignore[reportArgumentType] - the three named above
            ) as response:
                waits = response.headers.get("Retry-After", "")
                retry_after_seconds = min(int(waits[:9]) if waits.isdecimal() else 1, RETRY_SECONDS_MAX)
                if not url.startswith(self.own_url or "\n"):
                    with suppress(ValueError, TypeError):
                        answered_at = parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
                        self.clock_errors.append(time.time() - answered_at)
                body = bytearray()
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > REPLY_BYTES_MAX:
                        return ServiceReply(response.status, retry_after_seconds=retry_after_seconds)
                scopes = response.headers.get("X-OAuth-Scopes")
                try:
                    parsed: object = json.loads(body)
                except ValueError:
                    parsed = None
                return ServiceReply(
                    response.status,
                    json_fields(parsed),
                    json_objects(parsed),
                    None if scopes is None else tuple(one.strip() for one in scopes.split(",") if one.strip()),
                    retry_after_seconds,
                )
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return ServiceReply()

    async def call_slack(self, settings: Settings, method: str, token: str = "", **form: str) -> ServiceReply:
        """Calls a method of Slack's Web API. Raises NoReply if Slack does not answer or limits the rate."""
        authorization = f"Bearer {token}" if token else ""
        return await self._call_platform("POST", f"{settings.slack_api_url}/{method}", authorization, data=form)

    async def call_discord(self, settings: Settings, path: str, *, message: str = "") -> ServiceReply:
        """Reads what is at the path, or posts the message there."""
        url, token = f"{settings.discord_api_url}{path}", settings.discord_token.get_secret_value()
        if message:
            return await self._call_platform("POST", url, f"Bot {token}", json={"content": message})
        return await self._call_platform("GET", url, f"Bot {token}")

    async def _call_platform(self, *call: str, **options: Mapping[str, object]) -> ServiceReply:
        """Makes the call, and repeats it once after a rate limit. Raises NoReply if the platform does not say what it
        was asked for."""
        reply = await self.call(*call, **options)
        if reply.status == _RATE_LIMITED:
            await asyncio.sleep(reply.retry_after_seconds)
            reply = await self.call(*call, **options)
        if reply.status is None or reply.status == _RATE_LIMITED or reply.status >= 500:
            raise NoReply
        return reply


PlatformCheck = Callable[[ServiceClient, Settings], Awaitable[tuple[Finding, ...]]]


@asynccontextmanager
async def open_service_client(own_url: str = "") -> AsyncGenerator[ServiceClient, None]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS)) as session:
        yield ServiceClient(session, own_url)


def _untested_without_reply(subject: str, name: str) -> Callable[[PlatformCheck], PlatformCheck]:
    """Decorates a check: if the platform does not answer one of its calls, the check has this one finding."""

    def decorate(check: PlatformCheck) -> PlatformCheck:
        @wraps(check)
        async def run(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
            try:
                return await check(client, settings)
            except NoReply:
                return (untested_finding(subject, name),)

        return run

    return decorate


@_untested_without_reply("slack", "Slack")
async def check_slack(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Checks the tokens, the scopes of the bot token, and whether both tokens belong to the same app."""
    try:
        mode = settings.slack_mode
    except ConfigurationError as error:
        return (Finding("fail", "slack", str(error), "See docs/admins/slack.md."),)
    if mode == "off":
        return (Finding("note", "slack", "is not set up."),)
    if settings.slack_client_id:
        if settings.slack_bot_token:
            remedy = "Take THREADHAND_SLACK_BOT_TOKEN out of .env."
            return (Finding("fail", "slack", "has a bot token, which is for one workspace.", remedy),)
        if app_token := settings.slack_app_token.get_secret_value():
            opened = await client.call_slack(settings, "apps.connections.open", app_token)
            if problem := _slack_problem(opened, "the app token", SLACK_APPS):
                return (problem,)
        # Slack tells whether it knows the app even if the code is invalid. The signing secret cannot be tested before
        # the first event.
        form = {
            "client_id": settings.slack_client_id,
            "client_secret": settings.slack_client_secret.get_secret_value(),
            "code": "threadhand-setup",
        }
        reply = await client.call_slack(settings, "oauth.v2.access", **form)
        error = reply.text("error")
        if not error:
            return (untested_finding("slack", "Slack"),)
        if error in _UNKNOWN_APP:
            remedy = f"Copy the client id and secret from {SLACK_APPS} (Basic Information) again."
            return (Finding("fail", "slack", f"does not know this app: {error}.", remedy),)
        return (Finding("ok", "slack", f"workspaces install the bot at {settings.public_url}/slack/install."),)
    token = settings.slack_bot_token.get_secret_value()
    app = re.match(r"xapp-\d-(A\w+)-", settings.slack_app_token.get_secret_value())
    place = f"{SLACK_APPS}/{app[1]}" if app else SLACK_APPS
    known = await client.call_slack(settings, "auth.test", token)
    if problem := _slack_problem(known, "the bot token", f"{place}/oauth" if app else place):
        return (problem,)
    findings = [_scope_finding(known, place, mode)]
    if mode == "socket":
        findings += await _check_app_token(client, settings, known, place)
    return tuple(findings)


@_untested_without_reply("slack", "Slack")
async def check_slack_channels(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Checks the allowed channels of Slack, if a single workspace is served."""
    ids = [one for one in settings.allowed_channels if one[0].isalpha()]
    token = settings.slack_bot_token.get_secret_value()
    if settings.slack_client_id or not token:
        return ()
    calls = (client.call_slack(settings, "conversations.info", token, channel=one) for one in ids)
    replies = zip(ids, await asyncio.gather(*calls), strict=True)
    findings: list[Finding] = []
    for channel_id, reply in replies:
        channel = json_fields(reply.body.get("channel"))
        if reply.text("error") == "channel_not_found":
            fact = f"the bot cannot see the allowed channel {channel_id} (channel_not_found)."
            remedy = "Write `/invite @threadhand` there, or correct THREADHAND_ALLOWED_CHANNELS."
            findings.append(Finding("fail", "slack", fact, remedy))
        elif reply.body.get("ok") is not True:
            continue  # the check of the token says why
        elif channel.get("is_archived"):
            fact = f"the allowed channel #{channel.get('name')} is archived."
            remedy = f"Take {channel_id} out of THREADHAND_ALLOWED_CHANNELS, or unarchive it in Slack."
            findings.append(Finding("fail", "slack", fact, remedy))
        elif channel.get("is_member") is False:
            fact = f"the bot is not in the allowed channel #{channel.get('name')}."
            findings.append(Finding("note", "slack", fact, "Write `/invite @threadhand` there."))
    return tuple(findings)


def _scope_finding(known: ServiceReply, place: str, mode: str) -> Finding:
    bot, team = known.text("user"), known.text("team")
    name = "Socket Mode" if mode == "socket" else "HTTP mode"
    granted = known.scopes
    if granted is None:
        remedy = f"Compare them with `threadhand slack manifest` at {place}."
        fact = f"knows the bot as {bot} in {team}, and does not tell its scopes."
        return Finding("note", "slack", fact, remedy)
    missing = [scope for scope in BOT_SCOPES if scope not in granted]
    count = f"{len(BOT_SCOPES) - len(missing)} of {len(BOT_SCOPES)} scopes"
    if not missing:
        return Finding("ok", "slack", f"knows the bot as {bot} in {team} ({count}, {name}).")
    remedy = (
        f"Paste the output of `threadhand slack manifest` under App Manifest at {place}, save it, and choose"
        " Reinstall to Workspace."
    )
    fact = f"{bot} in {team} has {count}; missing: {', '.join(missing)}."
    if set(missing) <= set(OPTIONAL_SCOPES):
        return Finding("note", "slack", f"{fact[:-1]}, which is optional.", remedy)
    return Finding("fail", "slack", fact, remedy)


async def _check_app_token(client: ServiceClient, settings: Settings, known: ServiceReply, place: str) -> list[Finding]:
    """Checks that the two tokens belong to the same app. apps.connections.open opens no connection. It returns a URL
    that names the token's app."""
    opened = await client.call_slack(settings, "apps.connections.open", settings.slack_app_token.get_secret_value())
    if problem := _slack_problem(opened, "the app token", place):
        return [problem]
    found = re.search(r"[?&]app_id=(\w+)", opened.text("url"))
    if found is None or not (bot_id := known.text("bot_id")):
        return []
    reply = await client.call_slack(settings, "bots.info", settings.slack_bot_token.get_secret_value(), bot=bot_id)
    app_id = str(json_fields(reply.body.get("bot")).get("app_id", ""))
    if app_id and app_id != found[1]:
        fact = f"the two tokens belong to different apps: {app_id} (bot) and {found[1]} (app)."
        return [Finding("fail", "slack", fact, f"Copy both from {SLACK_APPS}/{app_id}.")]
    return []


def _slack_problem(reply: ServiceReply, what: str, place: str) -> Finding | None:
    if reply.body.get("ok") is True:
        return None
    error = reply.text("error") or f"status {reply.status}"
    remedy = _SLACK_REMEDIES.get(error, "Look at {app}.").format(app=place)
    return Finding("fail", "slack", f"refuses {what}: {error}.", remedy)


def discord_invite(application_id: str, guild_id: str = "") -> str:
    """Returns the address at which an administrator adds the bot to a server, with exactly the permissions it needs."""
    permissions = sum(DISCORD_PERMISSIONS.values())
    there = f"&guild_id={guild_id}" if guild_id else ""
    scope = quote("bot applications.commands")
    return (
        f"https://discord.com/oauth2/authorize?client_id={quote(application_id)}&scope={scope}"
        f"&permissions={permissions}{there}"
    )


@_untested_without_reply("discord", "Discord")
async def check_discord(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Checks the token, the intent, and the bot's permissions in its servers and in the allowed channels."""
    if not settings.discord_token.get_secret_value():
        return (Finding("note", "discord", "is not set up."),)
    me = await client.call_discord(settings, "/users/@me")
    if me.status != 200:
        remedy = f"Copy the bot token, not the client secret, from {DISCORD_APPS} (Bot, Reset Token)."
        return (Finding("fail", "discord", f"refuses the token (status {me.status}).", remedy),)
    application = await client.call_discord(settings, "/applications/@me")
    application_id = application.text("id") or me.text("id")
    findings: list[Finding] = []
    flags = application.body.get("flags")
    if application.status == 200 and not (flags if isinstance(flags, int) else 0) & _MESSAGE_CONTENT:
        remedy = f"Switch it on at {DISCORD_APPS}/{application_id}/bot and save."
        findings.append(Finding("fail", "discord", "the Message Content intent is switched off.", remedy))
    guilds = (await client.call_discord(settings, "/users/@me/guilds")).rows
    if not guilds:
        remedy = f"Add it: {discord_invite(application_id)}"
        fact = f"the bot {me.text('username')} is in no server."
        return (*findings, Finding("fail", "discord", fact, remedy))
    for guild in guilds:
        guild_id = str(guild.get("id"))
        is_allowed = not settings.allowed_workspaces or {guild_id, "*"} & set(settings.allowed_workspaces)
        if is_allowed and (missing := _missing_permissions(_number(guild.get("permissions")))):
            fact = f"in {guild.get('name')} the bot lacks {', '.join(missing)}."
            remedy = f"Grant it again: {discord_invite(application_id, guild_id)}"
            findings.append(Finding("fail", "discord", fact, remedy))
    findings += await _check_channels(client, settings, guilds, me.text("id"))
    if findings:
        return tuple(findings)
    names = ", ".join(str(guild.get("name")) for guild in guilds[:3])
    more = f" and {len(guilds) - 3} more" if len(guilds) > 3 else ""
    servers = "1 server" if len(guilds) == 1 else f"{len(guilds)} servers"
    fact = f"knows the bot as {me.text('username')} in {servers}: {names}{more}."
    return (Finding("ok", "discord", fact),)


def _missing_permissions(permissions: int) -> list[str]:
    if permissions & _ADMINISTRATOR:
        return []
    return [name for name, bit in DISCORD_PERMISSIONS.items() if not permissions & bit]


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 40 else 0


async def _check_channels(
    client: ServiceClient, settings: Settings, guilds: Sequence[Mapping[str, object]], bot_id: str
) -> list[Finding]:
    """Checks the allowed channels of Discord, whose ids are numbers."""
    findings: list[Finding] = []
    own = {str(guild.get("id")): _number(guild.get("permissions")) for guild in guilds}
    for channel_id in settings.allowed_channels:
        if not channel_id.isdecimal():
            continue
        channel = await client.call_discord(settings, f"/channels/{channel_id}")
        name, guild_id = channel.text("name"), channel.text("guild_id")
        if channel.status != 200:
            fact = f"the bot cannot see the allowed channel {channel_id} (status {channel.status})."
            remedy = "Grant it View Channels there (Edit Channel, Permissions), or correct THREADHAND_ALLOWED_CHANNELS."
            findings.append(Finding("fail", "discord", fact, remedy))
        elif guild_id in own:
            member = await client.call_discord(settings, f"/guilds/{guild_id}/members/{bot_id}")
            roles = member.body.get("roles")
            held = {guild_id, bot_id, *(cast(list[str], roles) if isinstance(roles, list) else ())}
            permissions = _with_overwrites(own[guild_id], channel.body, held, guild_id, bot_id)
            if missing := _missing_permissions(permissions):
                fact = f"in the channel {name} the bot lacks {', '.join(missing)}."
                remedy = "Grant them there: Edit Channel, Permissions, and the bot's role."
                findings.append(Finding("fail", "discord", fact, remedy))
    return findings


def _with_overwrites(
    permissions: int, channel: Mapping[str, object], held: set[str], guild_id: str, bot_id: str
) -> int:
    """Applies the channel's overwrites in Discord's order: for everyone, for the roles together, for the bot."""
    rows = json_objects(channel.get("permission_overwrites"))
    if permissions & _ADMINISTRATOR:
        return permissions
    for ids in ({guild_id}, held - {guild_id, bot_id}, {bot_id}):
        allow = deny = 0
        for row in rows:
            if str(row.get("id")) in ids:
                allow |= _number(row.get("allow"))
                deny |= _number(row.get("deny"))
        permissions = permissions & ~deny | allow
    return permissions


def check_clock(client: ServiceClient) -> tuple[Finding, ...]:
    """Compares this machine's clock with the clocks of the services. The smallest difference counts."""
    if not client.clock_errors:
        return ()
    error = min(client.clock_errors, key=abs)
    if abs(error) <= CLOCK_SECONDS_MAX:
        return (Finding("ok", "clock", "agrees with the services."),)
    side = "ahead of" if error > 0 else "behind"
    fact = f"is {abs(error) / 60:.0f} min {side} the services, which then refuse requests."
    return (Finding("fail", "clock", fact, "Set it: `sudo timedatectl set-ntp true`."),)
