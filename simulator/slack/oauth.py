"""Installing the app in a simulated workspace: the page that asks, and oauth.v2.access."""

import base64
import secrets
import time
from dataclasses import dataclass, field

from aiohttp import web

from simulator.recording import record
from simulator.slack.events.delivery import Outbox
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.events.recipients import event_callback, organisation_callback
from simulator.slack.organisation import Organisation
from simulator.slack.settings import APP_ID
from simulator.slack.tenants import Tenants
from simulator.slack.web_api.arguments import read_arguments
from simulator.slack.world import Workspace

CODE_SECONDS = 600.0
_SECRET = "simulated-client-secret"  # noqa: S105 - opens nothing but this simulator


@dataclass(slots=True, kw_only=True)
class Grant:
    """A code that was given out, and what it is good for: a workspace, or an organisation."""

    owner_id: str
    user_id: str
    redirect_uri: str
    expires_at: float
    is_used: bool = False


@dataclass(slots=True, kw_only=True)
class OAuth:
    """The app's client id and secret; `lifetime_seconds` switches token rotation on.

    Each exchange makes a new token of the workspace or organisation, and the one before stops to work; a refresh token
    serves once.
    """

    tenants: Tenants
    outbox: Outbox
    client_id: str = "1.2"
    client_secret: str = _SECRET
    lifetime_seconds: int = 0
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])
    refreshing: dict[str, str] = field(default_factory=dict[str, str])

    async def page(self, request: web.Request) -> web.Response:
        """Slack's page, where the first person of `team`, a workspace or an organisation, agrees at once."""
        query = request.query
        if query.get("client_id") != self.client_id or not query.get("scope"):
            return web.Response(status=400, text="invalid_client_id or invalid_scope")
        redirect_uri = query.get("redirect_uri", "")
        owner_id = query.get("team", next(iter(self.tenants.workspaces)))
        organisation = self.tenants.organisations.get(owner_id)
        team_id = organisation.team_ids[0] if organisation is not None else owner_id
        workspace = self.tenants.workspaces.get(team_id)
        if workspace is None or not redirect_uri.startswith(("http://127.0.0.1:", "https://")):
            return web.Response(status=400, text="bad_redirect_uri or no such workspace")
        user = next(member for member in workspace.members.values() if not member.is_bot)
        code = f"{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self.grants[code] = Grant(
            owner_id=owner_id,
            user_id=user.user_id,
            redirect_uri=redirect_uri,
            expires_at=time.monotonic() + CODE_SECONDS,
        )
        answer = f"{redirect_uri}?code={code}&state={query.get('state', '')}"
        return web.Response(status=302, headers={"Location": answer})

    async def access(self, request: web.Request) -> web.Response:
        """`oauth.v2.access`, a POST with the client's id and secret in a Basic header or in the form."""
        try:
            body = self._answer(request, await read_arguments(request))
            record("slack oauth.v2.access: answer", body)
        except Refused as refused:
            body = refused.answer()
        return web.json_response(body)

    def _answer(self, request: web.Request, arguments: Payload) -> Payload:
        if request.method != "POST" or request.query:
            raise Refused("invalid_post_type")
        self._check_client(request, arguments)
        if arguments.get("grant_type") == "refresh_token":
            owner_id = self.refreshing.pop(str(arguments.get("refresh_token", "")), "")
            if not owner_id:
                raise Refused("invalid_refresh_token")
            return self._granted(owner_id, user_id="")
        grant = self.grants.get(str(arguments.get("code", "")))
        if grant is None or grant.expires_at < time.monotonic():
            raise Refused("invalid_code")
        if grant.is_used:
            raise Refused("code_already_used")
        if arguments.get("redirect_uri") != grant.redirect_uri:
            raise Refused("bad_redirect_uri")
        grant.is_used = True
        return self._granted(grant.owner_id, user_id=grant.user_id)

    def _check_client(self, request: web.Request, arguments: Payload) -> None:
        given = (str(arguments.get("client_id", "")), str(arguments.get("client_secret", "")))
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            name, _, secret = base64.b64decode(header[6:]).decode().partition(":")
            given = (name, secret)
        if given[0] != self.client_id:
            raise Refused("invalid_client_id")
        if given[1] != self.client_secret:
            raise Refused("bad_client_secret")

    def _granted(self, owner_id: str, *, user_id: str) -> Payload:
        token = f"xoxb-{owner_id}-{secrets.token_hex(8)}"
        organisation = self.tenants.organisations.get(owner_id)
        if organisation is None:
            owner = self._of_workspace(self.tenants.workspaces[owner_id], token)
        else:
            owner = self._of_organisation(organisation, token)
        body: Payload = {"ok": True, "access_token": token, "token_type": "bot", "app_id": APP_ID, **owner}
        if user_id:
            body["authed_user"] = {"id": user_id}
        if self.lifetime_seconds:
            refresh = f"xoxe-1-{secrets.token_hex(16)}"
            self.refreshing[refresh] = owner_id
            body |= {"expires_in": self.lifetime_seconds, "refresh_token": refresh}
        return body

    def _of_workspace(self, workspace: Workspace, token: str) -> Payload:
        self.tenants.withdraw(workspace)
        self.tenants.tokens[token] = workspace
        organisation = workspace.organisation
        if organisation is not None:
            organisation.alone.add(workspace.team_id)
        return {
            "scope": ",".join(workspace.settings.scopes),
            "bot_user_id": workspace.bot.user_id,
            "team": {"id": workspace.team_id, "name": workspace.settings.workspace_name},
            "enterprise": organisation.form() if organisation is not None else None,
            "is_enterprise_install": False,
        }

    def _of_organisation(self, organisation: Organisation, token: str) -> Payload:
        workspace = self.tenants.workspaces[organisation.team_ids[0]]
        organisation.token = token
        return {
            "scope": ",".join(workspace.settings.scopes),
            "bot_user_id": workspace.bot.user_id,
            "team": None,
            "enterprise": organisation.form(),
            "is_enterprise_install": True,
        }

    def reach(self, team_id: str) -> None:
        """An administrator adds the app, which the organisation has installed, to one of its workspaces."""
        organisation = self._organisation_of(team_id)
        organisation.reached.add(team_id)
        self._tell(organisation, _access_event("granted", team_id))

    def leave(self, team_id: str) -> None:
        """An administrator takes the app out of one workspace of an organisation, which keeps it."""
        organisation = self._organisation_of(team_id)
        organisation.reached.discard(team_id)
        self._tell(organisation, _access_event("revoked", team_id))

    def uninstall(self, owner_id: str) -> None:
        """A workspace or an organisation takes the app away: its token stops to work, and the app is told."""
        organisation = self.tenants.organisations.get(owner_id)
        if organisation is not None:
            bot = self.tenants.workspaces[organisation.team_ids[0]].bot
            organisation.token = ""
            for event in _closing_tasks(bot.user_id):
                self._tell(organisation, event)
            return
        workspace = self.tenants.workspaces[owner_id]
        body = [event_callback(workspace, one) for one in _closing_tasks(workspace.bot.user_id)]
        self.tenants.withdraw(workspace)
        for told in body:
            self.outbox.tell(told["event"]["type"], told)

    def _organisation_of(self, team_id: str) -> Organisation:
        organisation = self.tenants.workspaces[team_id].organisation
        if organisation is None:
            raise ValueError(f"{team_id} is in no organisation")
        return organisation

    def _tell(self, organisation: Organisation, event: Payload) -> None:
        self.outbox.tell(event["type"], organisation_callback(organisation, APP_ID, event))


def _access_event(change: str, team_id: str) -> Payload:
    return {"type": f"team_access_{change}", "team_ids": [team_id], "event_ts": f"{time.time():.6f}"}


def _closing_tasks(bot_user_id: str) -> tuple[Payload, ...]:
    revoked: Payload = {"oauth": [], "bot": [bot_user_id]}
    return {"type": "tokens_revoked", "tokens": revoked}, {"type": "app_uninstalled"}
