"""Slack's OAuth: exchanges codes and refresh tokens, and parses the grants."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from bots.slack.events.payload_fields import get_int, get_objects, get_text, is_organisation_install
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceError
from core.domain.json import JsonObject
from core.failpoints import Failpoint

EXCHANGE = Failpoint("slack.oauth")


@dataclass(frozen=True, slots=True, kw_only=True)
class BotToken:
    """A bot token. Without rotation, `refresh_token` is empty and `expires_at` (epoch seconds) is None."""

    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """Calls oauth.v2.access for the app. `client` has no token."""

    client: SlackClient
    client_id: str
    client_secret: str

    async def exchange_code(self, code: str, redirect_uri: str) -> JsonObject:
        """Exchanges the code of an installation. Raises SurfaceError."""
        return await self._call({"code": code, "redirect_uri": redirect_uri})

    async def refresh(self, refresh_token: str) -> JsonObject:
        """Exchanges a refresh token, which can be used only once. Raises SurfaceError."""
        return await self._call({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def _call(self, arguments: Mapping[str, str]) -> JsonObject:
        client = {"client_id": self.client_id, "client_secret": self.client_secret}
        with EXCHANGE:
            return await self.client.write_secrets("oauth.v2.access", {**client, **arguments})


def parse_bot_token(answer: JsonObject) -> BotToken:
    """Returns the bot token in an oauth.v2.access response. Its `token` is empty if the response has none."""
    seconds = get_int(answer, "expires_in")
    return BotToken(
        access_token=get_text(answer, "access_token"),
        refresh_token=get_text(answer, "refresh_token"),
        expires_at=time.time() + seconds if seconds else None,
    )


NAME_CHARACTERS_MAX = 200
SCOPE_CHARACTERS_MAX = 2000
_WORKSPACES_PER_PAGE = 1000
_PAGES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthGrant:
    """An installation that Slack granted. `workspace_id` is the organisation's id if `is_organisation`."""

    workspace_id: str
    organisation_id: str
    is_organisation: bool
    token: BotToken
    name: str
    scope: str
    installer_id: str


def parse_grant(answer: JsonObject) -> OAuthGrant | None:
    """Parses an oauth.v2.access response. Returns None if it has no bot token or no workspace."""
    is_organisation = is_organisation_install(answer)
    owner = "enterprise" if is_organisation else "team"
    grant = OAuthGrant(
        workspace_id=get_text(answer, owner, "id"),
        organisation_id=get_text(answer, "enterprise", "id"),
        is_organisation=is_organisation,
        token=parse_bot_token(answer),
        name=get_text(answer, owner, "name")[:NAME_CHARACTERS_MAX],
        scope=get_text(answer, "scope")[:SCOPE_CHARACTERS_MAX],
        installer_id=get_text(answer, "authed_user", "id"),
    )
    is_whole = grant.workspace_id and grant.token.access_token.startswith("xox")
    return grant if is_whole else None


async def fetch_bot_facts(grant: OAuthGrant, client: SlackClient) -> JsonObject | None:
    """Fetches the bot's identity with the new token. Returns None if it differs from the grant. Raises SurfaceError."""
    told = await client.read("auth.test", {})
    if is_organisation_install(told) != grant.is_organisation:
        return None
    owner_id = get_text(told, "enterprise_id" if grant.is_organisation else "team_id")
    if owner_id != grant.workspace_id:
        return None
    facts: JsonObject = {
        "name": grant.name,
        "bot_user_id": get_text(told, "user_id"),
        "bot_id": get_text(told, "bot_id"),
        "scope": grant.scope,
    }
    return {**facts, "organisation_id": grant.organisation_id} if grant.organisation_id else facts


async def fetch_workspace_ids(client: SlackClient) -> tuple[str, ...]:
    """Returns the ids of the workspaces that an organisation's token can access. Raises SurfaceError."""
    found: list[str] = []
    cursor = ""
    for _ in range(_PAGES_MAX):
        page: dict[str, str | int | bool] = {"limit": _WORKSPACES_PER_PAGE}
        answer = await client.read("auth.teams.list", {**page, "cursor": cursor} if cursor else page)
        found += [get_text(one, "id") for one in get_objects(answer, "teams")]
        if not (cursor := get_text(answer, "response_metadata", "next_cursor")):
            return tuple(found)
    raise SurfaceError("the organisation has too many workspaces to list")
