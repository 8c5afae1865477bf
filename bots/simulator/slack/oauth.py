"""Installing the app in a simulated workspace: the page that asks, and oauth.v2.access."""

import base64
import secrets
import time
from dataclasses import dataclass, field

from aiohttp import web

from bots.simulator.slack.arguments import read_arguments
from bots.simulator.slack.payloads import Payload, Refused
from bots.simulator.slack.world import Workspace

CODE_SECONDS = 600.0
_SECRET = "simulated-client-secret"  # noqa: S105 - opens nothing but this simulator


@dataclass(slots=True, kw_only=True)
class Grant:
    """A code that was given out, and what it is good for."""

    team_id: str
    user_id: str
    redirect_uri: str
    expires_at: float
    is_used: bool = False


@dataclass(slots=True, kw_only=True)
class OAuth:
    """The app's client id and secret; `lifetime_seconds` switches token rotation on.

    Each exchange makes a new token of the workspace, and the one before stops to work; a refresh token serves once.
    """

    workspaces: dict[str, Workspace]
    tokens: dict[str, Workspace]
    client_id: str = "1.2"
    client_secret: str = _SECRET
    lifetime_seconds: int = 0
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])
    refreshing: dict[str, str] = field(default_factory=dict[str, str])

    async def page(self, request: web.Request) -> web.Response:
        """Slack's page, where the first person of the workspace `team` agrees at once."""
        query = request.query
        if query.get("client_id") != self.client_id or not query.get("scope"):
            return web.Response(status=400, text="invalid_client_id or invalid_scope")
        redirect_uri = query.get("redirect_uri", "")
        workspace = self.workspaces.get(query.get("team", next(iter(self.workspaces))))
        if workspace is None or not redirect_uri.startswith(("http://127.0.0.1:", "https://")):
            return web.Response(status=400, text="bad_redirect_uri or no such workspace")
        user = next(member for member in workspace.members.values() if not member.is_bot)
        code = f"{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self.grants[code] = Grant(
            team_id=workspace.team_id,
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
        except Refused as refused:
            body = refused.answer()
        return web.json_response(body)

    def _answer(self, request: web.Request, arguments: Payload) -> Payload:
        if request.method != "POST" or request.query:
            raise Refused("invalid_post_type")
        self._check_client(request, arguments)
        if arguments.get("grant_type") == "refresh_token":
            team_id = self.refreshing.pop(str(arguments.get("refresh_token", "")), "")
            if not team_id:
                raise Refused("invalid_refresh_token")
            return self._granted(self.workspaces[team_id], user_id="")
        grant = self.grants.get(str(arguments.get("code", "")))
        if grant is None or grant.expires_at < time.monotonic():
            raise Refused("invalid_code")
        if grant.is_used:
            raise Refused("code_already_used")
        if arguments.get("redirect_uri") != grant.redirect_uri:
            raise Refused("bad_redirect_uri")
        grant.is_used = True
        return self._granted(self.workspaces[grant.team_id], user_id=grant.user_id)

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

    def _granted(self, workspace: Workspace, *, user_id: str) -> Payload:
        for token in [old for old, owner in self.tokens.items() if owner is workspace]:
            del self.tokens[token]
        token = f"xoxb-{workspace.team_id}-{secrets.token_hex(8)}"
        self.tokens[token] = workspace
        body: Payload = {
            "ok": True,
            "access_token": token,
            "token_type": "bot",
            "scope": ",".join(workspace.settings.scopes),
            "bot_user_id": workspace.bot.user_id,
            "app_id": workspace.app_id,
            "team": {"id": workspace.team_id, "name": workspace.settings.workspace_name},
            "enterprise": None,
            "is_enterprise_install": False,
        }
        if user_id:
            body["authed_user"] = {"id": user_id}
        if self.lifetime_seconds:
            refresh = f"xoxe-1-{secrets.token_hex(16)}"
            self.refreshing[refresh] = workspace.team_id
            body |= {"expires_in": self.lifetime_seconds, "refresh_token": refresh}
        return body

    def uninstall(self, team_id: str) -> None:
        """A person takes the app away: its token stops to work, and the app is told."""
        workspace = self.workspaces[team_id]
        for token in [old for old, owner in self.tokens.items() if owner is workspace]:
            del self.tokens[token]
        revoked: Payload = {"oauth": [], "bot": [workspace.bot.user_id]}
        workspace.emit("tokens_revoked", {"type": "tokens_revoked", "tokens": revoked})
        workspace.emit("app_uninstalled", {"type": "app_uninstalled"})
