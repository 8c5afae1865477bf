"""What Slack grants when somebody installs the app: a token for a workspace, or for an organisation of workspaces."""

from dataclasses import dataclass

from bots.slack.events.origin import is_organisations, organisation_in
from bots.slack.events.payload import children, text
from bots.slack.install.oauth import token_in
from bots.slack.install.token_cipher import BotToken
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceError
from core.domain.messages import JsonObject

NAME_CHARACTERS_MAX = 200
SCOPE_CHARACTERS_MAX = 2000
_WORKSPACES_A_PAGE = 1000
_PAGES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """`workspace_id` is the organisation's id where `is_organisation`; `installer_id` who installed it."""

    workspace_id: str
    organisation_id: str
    is_organisation: bool
    token: BotToken
    name: str
    scope: str
    installer_id: str


def grant_of(answer: JsonObject) -> Grant | None:
    """What oauth.v2.access has answered; None: no bot token, or nobody's."""
    is_organisation, organisation_id = is_organisations(answer), organisation_in(answer)
    owner = "enterprise" if is_organisation else "team"
    grant = Grant(
        workspace_id=text(answer, owner, "id"),
        organisation_id=organisation_id,
        is_organisation=is_organisation,
        token=token_in(answer),
        name=text(answer, owner, "name")[:NAME_CHARACTERS_MAX],
        scope=text(answer, "scope")[:SCOPE_CHARACTERS_MAX],
        installer_id=text(answer, "authed_user", "id"),
    )
    is_whole = grant.workspace_id and grant.token.access_token.startswith("xox")
    return grant if is_whole else None


async def facts_of(grant: Grant, client: SlackClient) -> JsonObject | None:
    """Who the bot is there, as Slack says for the very token; None: it is somebody else's. Raises SurfaceError."""
    told = await client.read("auth.test", {})
    if is_organisations(told) != grant.is_organisation:
        return None
    owner_id = text(told, "enterprise_id" if grant.is_organisation else "team_id")
    if owner_id != grant.workspace_id:
        return None
    facts: JsonObject = {
        "name": grant.name,
        "bot_user_id": text(told, "user_id"),
        "bot_id": text(told, "bot_id"),
        "scope": grant.scope,
    }
    return {**facts, "organisation_id": grant.organisation_id} if grant.organisation_id else facts


async def workspaces_of(client: SlackClient) -> tuple[str, ...]:
    """The workspaces that an organisation's token reaches. Raises SurfaceError."""
    found: list[str] = []
    cursor = ""
    for _ in range(_PAGES_MAX):
        page: dict[str, str | int | bool] = {"limit": _WORKSPACES_A_PAGE}
        answer = await client.read(
            "auth.teams.list", {**page, "cursor": cursor} if cursor else page
        )
        found += [text(one, "id") for one in children(answer, "teams")]
        if not (cursor := text(answer, "response_metadata", "next_cursor")):
            return tuple(found)
    raise SurfaceError("the organisation has more workspaces than can be looked through")
