"""The OAuth installation flow: its state is bound to one browser and valid once, for ten minutes."""

import hashlib
import hmac
import html
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web
from yarl import URL

from bots.slack.install.manifest import BOT_SCOPES, REDIRECT_PATH
from bots.slack.install.oauth import OAuthClient, fetch_bot_facts, fetch_workspace_ids, parse_grant
from bots.slack.install.tokens import TokenCipher
from bots.slack.web_api.client import SlackClient
from core.domain.errors import StorageUnavailable, SurfaceError
from core.domain.installations import Installation, Installations
from core.domain.threads import Person

INSTALL_PATH = "/slack/install"
COOKIE = "threadhand_slack_install"
STATE_SECONDS = 600
_STATE_CHARACTERS_MAX = 300
_BROWSER = re.compile(r"[A-Za-z0-9_-]{32}")
LINK_EXPIRED = "This link was used already, or is too old. Begin again at /slack/install."
NOT_ALLOWED = "This bot serves only workspaces that its operator has listed. Ask the operator to add yours."
FAILED = "Slack did not confirm the installation. Begin again at /slack/install."
DONE = "The bot is installed. You can close this page."
DONE_EVERYWHERE = "The bot is installed in the organisation. It works in the workspaces that it is added to in Slack."
DECLINED = "The bot was not installed."
STORAGE_DOWN = "The installation could not be stored just now. Begin again at /slack/install in a moment."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallFlow:
    """Serves the start page and the callback page of an installation.

    `claim` returns False for a key that was claimed before. `is_allowed` decides whether a workspace or
    organisation may install the app; `secret` signs OAuth states."""

    oauth: OAuthClient
    token_cipher: TokenCipher
    installations: Installations
    claim: Callable[[str], Awaitable[bool]]
    public_url: str
    secret: bytes
    is_allowed: Callable[[str], bool]
    new_client: Callable[[str], SlackClient]

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get(INSTALL_PATH, self.start_install), web.get(REDIRECT_PATH, self.finish_install)]

    @property
    def redirect_uri(self) -> str:
        return self.public_url.rstrip("/") + REDIRECT_PATH

    async def start_install(self, request: web.Request) -> web.StreamResponse:
        """Redirects to Slack's page and sets a cookie that the callback must send."""
        known = request.cookies.get(COOKIE, "")  # of an installation in another tab
        browser = known if _BROWSER.fullmatch(known) else secrets.token_urlsafe(24)
        state = sign_state(self.secret, secrets.token_urlsafe(24), browser, expires_at=time.time() + STATE_SECONDS)
        page = self.oauth.client.api_url.with_path("/oauth/v2/authorize").with_query(
            client_id=self.oauth.client_id, scope=",".join(BOT_SCOPES), state=state, redirect_uri=self.redirect_uri
        )
        response = web.Response(status=302, headers={"Location": str(page), **_HEADERS})
        response.set_cookie(
            COOKIE,
            browser,
            max_age=STATE_SECONDS,
            path="/slack",
            secure=URL(self.public_url).scheme == "https",
            httponly=True,
            samesite="Lax",
        )
        return response

    async def finish_install(self, request: web.Request) -> web.StreamResponse:
        """Handles the callback: 200 if the token was stored, else a page with the reason."""
        nonce = verify_state(
            self.secret, request.query.get("state", ""), request.cookies.get(COOKIE, ""), now=time.time()
        )
        if nonce is None:
            return _html_page(LINK_EXPIRED, 400)
        try:
            if not await self.claim(f"slack:install:{nonce}"):
                return _html_page(LINK_EXPIRED, 400)
            if request.query.get("error") or not request.query.get("code"):
                return _html_page(DECLINED, 200)
            try:
                answer = await self.oauth.exchange_code(request.query["code"], self.redirect_uri)
            except SurfaceError as error:
                log.warning("slack: an installation was not confirmed: %s", error)
                return _html_page(FAILED, 502)
            grant = parse_grant(answer)
            if grant is None:
                return _html_page(FAILED, 502)
            client = self.new_client(grant.token.access_token)
            client.open_session()
            try:
                workspace_id = grant.workspace_id
                facts = await fetch_bot_facts(grant, client)
                if facts is None:
                    return _html_page(FAILED, 502)
                is_allowed = self.is_allowed(workspace_id) or self.is_allowed(grant.organisation_id)
                if not is_allowed and grant.is_organisation:  # an allowed workspace also admits its organisation
                    is_allowed = any(map(self.is_allowed, await fetch_workspace_ids(client)))
                if not is_allowed:
                    try:
                        await client.write("auth.revoke", {})
                    except SurfaceError as error:
                        log.warning("slack: an unused token was not revoked: %s", error)
                    log.warning("slack: workspace %s is not allowed to install the bot", workspace_id)
                    return _html_page(NOT_ALLOWED, 403)
                installation = Installation(
                    platform="slack",
                    workspace_id=workspace_id,
                    sealed_token=self.token_cipher.seal(workspace_id, grant.token),
                    facts=facts,
                )
                await self.installations.save(
                    installation, by=Person(person_id=grant.installer_id, name=grant.installer_id)
                )
                log.info("slack: workspace %s has installed the bot", workspace_id)
                return _html_page(DONE_EVERYWHERE if grant.is_organisation else DONE, 200)
            except SurfaceError as error:
                log.warning("slack: a new token does not work: %s", error)
                return _html_page(FAILED, 502)
            finally:
                await client.close()
        except StorageUnavailable:
            log.exception("slack: an installation could not be stored")
            return _html_page(STORAGE_DOWN, 503)


def sign_state(secret: bytes, nonce: str, browser: str, *, expires_at: float) -> str:
    """Returns an OAuth state that is valid until `expires_at`, and only in the browser with the cookie `browser`."""
    words = f"{nonce}.{int(expires_at)}"
    return f"{words}.{_signature(secret, words, browser)}"


def verify_state(secret: bytes, state: str, browser: str, *, now: float) -> str | None:
    """Returns the nonce of a valid OAuth state, or None if the state is invalid or expired."""
    words, _, signature = state[:_STATE_CHARACTERS_MAX].rpartition(".")
    nonce, _, expires_at = words.rpartition(".")
    expected = _signature(secret, words, browser)
    if not (browser and nonce and hmac.compare_digest(expected.encode(), signature.encode(errors="replace"))):
        return None
    return nonce if now < int(expires_at) else None


def _signature(secret: bytes, words: str, browser: str) -> str:
    return hmac.new(secret, f"slack-install:{words}:{browser}".encode(errors="replace"), hashlib.sha256).hexdigest()


_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def _html_page(sentence: str, status: int) -> web.Response:
    body = f"<!doctype html><meta charset=utf-8><title>Threadhand</title><p>{html.escape(sentence)}"
    return web.Response(text=body, content_type="text/html", status=status, headers=_HEADERS)
