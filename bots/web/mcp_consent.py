"""A person's consent for an MCP server (OAuth). An admin requests a link in chat, and the result is posted in the
thread.

The link belongs to the browser that uses it first. The response of the authorization server is accepted only once, and
only from that browser and with the state of that consent."""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from bots.inbound.actions import CommandCalled, Outcome
from bots.web.errors import ApiError, error_page, message_page
from core.domain.errors import SurfaceError, ToolError
from core.domain.threads import Address
from core.mcp.settings import McpServerConfig
from core.tasks import cancel, spawn, wait_for_first
from core.web_access.guard import AddressGuard, parse_web_url

log = logging.getLogger(__name__)

CONSENT_SECONDS = 600.0
LINK_SECONDS = 30.0
RESULT_SECONDS = 60.0
COOKIE = "threadhand_mcp_"
CONNECT_PATH = "/mcp/connect"
CALLBACK_PATH = "/mcp/callback"
CLOSE = "You can close this page."
EXPIRED = "This link was used already, or is too old."
TAKEN = "The link works only in the browser that opened it first."


@dataclass(slots=True)
class _Consent:
    """The state of one link. `browser` is the cookie of the browser that used the link first. `state` is the OAuth
    state of the pending request."""

    config: McpServerConfig
    address: Address
    browser: str = ""
    state: str = ""
    link: str = ""
    answer: str = ""
    result: str = ""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    linked: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def authorize(self, link: str) -> str:
        """Redirects the browser to the link of the authorization server. Returns the URL to which the server sent its
        response.

        Raises ServerUnreachable if the link must not be opened."""
        # imported here because importing the MCP SDK takes a second
        from core.mcp.connection import ServerUnreachable

        if not await is_safe_authorization_link(link, self.config.url):
            raise ServerUnreachable("it sends people to an address that is not opened for it")
        # the last `state` is ours, because the server's own endpoint may also have parameters
        self.state = parse_qs(urlsplit(link).query).get("state", [""])[-1]
        self.link = link
        self.answered.clear()
        self.linked.set()
        await self.answered.wait()
        return self.answer


@dataclass(slots=True)
class McpConsents:
    """The pending consents: at most one for each server, each valid for `consent_seconds`.

    `public_url` returns the URL at which users reach this server. `tell` posts a sentence into a thread, and `retry`
    connects to a server again."""

    configs: Mapping[str, McpServerConfig]
    public_url: Callable[[], str]
    tell: Callable[[Address, str], Awaitable[object]]
    retry: Callable[[str], None]
    consent_seconds: float = CONSENT_SECONDS
    _consents: dict[str, _Consent] = field(default_factory=dict[str, _Consent])

    def routes(self) -> Sequence[web.RouteDef]:
        place = f"{CONNECT_PATH}/{{token}}"
        return [
            web.get(place, self._show),
            web.post(place, self._begin),
            web.get(CALLBACK_PATH, self._receive, allow_head=False),
        ]

    def answer_mcp_connect(self, called: CommandCalled) -> Outcome:
        """Answers `mcp connect NAME` of an admin with a link that only the admin sees."""
        name = called.argument.rpartition(" ")[2].strip("`")
        asking = {
            one.name: one
            for one in self.configs.values()
            if one.oauth is not None and one.oauth.grant == "authorization_code"
        }
        config = asking.get(name)
        if config is None or config.oauth is None:
            names = ", ".join(f"`{one}`" for one in asking) or "none"
            return Outcome(notice=f"No tool server of that name asks for a person's consent. These do: {names}.")
        base_url = self.public_url().rstrip("/")
        if not base_url:
            return Outcome(
                notice=f"I have no public address for links. Run `threadhand mcp-login {name}` on my machine."
            )
        for token, other in tuple(self._consents.items()):
            if other.config.name == name:
                self._end(token, other)
        redirect = config.oauth.model_copy(update={"redirect_uri": base_url + CALLBACK_PATH})
        patient = {"oauth": redirect, "connect_timeout_seconds": self.consent_seconds}
        consent = _Consent(config.model_copy(update=patient), called.address)
        token = secrets.token_urlsafe(32)
        self._consents[token] = consent
        consent.task = spawn(self._run(token, consent), name=f"consent for {name}")
        minutes = max(1, round(self.consent_seconds / 60))
        return Outcome(
            notice=f"[Agree that I use `{name}`]({base_url}{CONNECT_PATH}/{token}) with your account there. The link "
            f"is for you alone and works once, for {minutes} minutes. Everyone who may use me can then use these tools."
        )

    async def _run(self, token: str, consent: _Consent) -> None:
        name = consent.config.name
        try:
            async with asyncio.timeout(self.consent_seconds):
                await consent.begun.wait()
                from core.mcp.connection import check_server

                seen = await check_server(consent.config, {}, consent.authorize)
            if seen.problem:
                result = f"`{name}` is not connected: {seen.problem}."
            else:
                self.retry(name)
                result = f"`{name}` is connected and offers {len(seen.tools)} tools. The next request can use them."
        except TimeoutError:
            result = f"`{name}` is not connected: the link has expired. `mcp connect {name}` makes a new one."
        except Exception:  # the person must be notified of every failure
            log.exception("the consent for the MCP server %s broke", name)
            result = f"`{name}` is not connected: something broke on my side."
        consent.result = result
        self._end(token, consent)
        try:
            await self.tell(consent.address, result)
        except SurfaceError as error:
            log.warning("the result of the consent for %s was not posted: %s", name, error)

    def _end(self, token: str, consent: _Consent) -> None:
        """Removes the consent. If it has no result yet, cancels its task."""
        self._consents.pop(token, None)
        consent.ended.set()
        if not consent.result and consent.task is not None:
            consent.task.cancel()

    async def _show(self, request: web.Request) -> web.Response:
        """Shows a button instead of redirecting, because chat platforms also open links."""
        name = self._find(request).config.name
        sentence = f"You will be asked to agree that the bot uses {name} with your account there."
        return message_page(f"Connect {name}", sentence, CLOSE, button="Continue")

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        """Binds the consent to this browser, and redirects the browser to the authorization server."""
        try:
            consent = self._find(request)
        except ApiError as error:
            return error_page(error)
        consent.browser = consent.browser or secrets.token_urlsafe(32)
        consent.begun.set()
        response = await self._next_page(consent, LINK_SECONDS)
        base_url = urlsplit(self.public_url())
        response.set_cookie(
            COOKIE + consent.config.name,
            consent.browser,
            max_age=int(self.consent_seconds),
            path=f"{base_url.path.rstrip('/')}/mcp/",
            secure=base_url.scheme == "https",
            httponly=True,
            samesite="Lax",
        )
        return response

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        """Receives the response of an authorization server. Each state is accepted only once."""
        state = request.query.get("state", "")
        waiting = (one for one in self._consents.values() if one.state)
        consent = next((one for one in waiting if _is_same(one.state, state)), None)
        if consent is None:
            raise ApiError(410, "link_expired", EXPIRED)
        _check_browser(consent, request)
        consent.state, consent.answer = "", str(request.rel_url)
        consent.linked.clear()
        consent.answered.set()
        return await self._next_page(consent, RESULT_SECONDS)

    async def _next_page(self, consent: _Consent, seconds: float) -> web.Response:
        """Waits for the link of the authorization server or for the result. Returns a redirect to the link, or a page
        with the result."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wait_for_first(consent.linked, consent.ended)
        if consent.ended.is_set():
            result = consent.result.replace("`", "") or EXPIRED
            return message_page(f"The consent for {consent.config.name}", result, CLOSE)
        if not consent.linked.is_set():
            waits = "The tool server has not answered yet. The bot tells you in the thread."
            return message_page(f"The consent for {consent.config.name}", waits, CLOSE, status=504)
        kept_private = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return web.Response(status=303, headers={"Location": consent.link, **kept_private})

    def _find(self, request: web.Request) -> _Consent:
        consent = self._consents.get(request.match_info["token"])
        if consent is None:
            raise ApiError(410, "link_expired", EXPIRED)
        if consent.browser:
            _check_browser(consent, request)
        return consent

    async def close(self) -> None:
        await cancel(*(consent.task for consent in self._consents.values() if consent.task is not None))


async def is_safe_authorization_link(link: str, server_url: str) -> bool:
    """Returns whether a tool server may send a user's browser to the link. The link must lead to the server's own host,
    or over https to a public address. Any other link could affect machines that only the user's browser can reach."""
    try:
        url, own = parse_web_url(link), parse_web_url(server_url)
        if url.host == own.host and url.scheme in (own.scheme, "https"):
            return True
        return url.scheme == "https" and bool(await AddressGuard().resolve_host(url.host or "", url.port or 443))
    except (ToolError, OSError):
        return False


def _check_browser(consent: _Consent, request: web.Request) -> None:
    cookie = request.cookies.get(COOKIE + consent.config.name, "")
    if not consent.browser or not _is_same(consent.browser, cookie):
        raise ApiError(403, "taken", TAKEN)


def _is_same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode("utf-8", "surrogatepass"))
