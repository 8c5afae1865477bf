"""Authorization at MCP servers over HTTP, with client credentials or with a person's consent, whose tokens are
stored."""

import asyncio
import fcntl
import json
import os
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from core.context.untrusted_text import clean_line
from core.mcp.settings import McpServerConfig, OAuthSettings

LOCK_SECONDS_MAX = 10.0
Authorize = Callable[[str], Awaitable[str]]
"""Shows a link to a person. Returns the address that the browser was sent to after the person's consent."""


class TokenFile:
    """The tokens of one server and where they came from, in a file that only this user can read."""

    def __init__(self, settings: OAuthSettings, server: str, *, is_person_present: bool = False) -> None:
        self._settings = settings
        self._is_person_present = is_person_present
        self._new_client: OAuthClientInformationFull | None = None
        folder = settings.token_folder
        self._path = folder / f"{server}.json" if folder is not None else None
        self._content = self._read()
        self.context: OAuthContext | None = None

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            found: object = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return cast(dict[str, Any], found) if isinstance(found, dict) else {}

    def _write(self) -> None:
        """Replaces the file atomically, so that it never has other permissions or only a part of its content."""
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(self._content, file)
        fresh.replace(self._path)

    async def lock_refresh(self, owner: object) -> Callable[[], object]:
        """Waits at most LOCK_SECONDS_MAX until no other process is refreshing the tokens. Returns a function that
        releases the lock. The lock is also released when its owner is deleted. Without a file, no other process has the
        tokens, so nothing is locked."""
        if self._path is None:
            return bool  # does nothing
        lock = os.open(self._path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        unlock = weakref.finalize(owner, os.close, lock)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOCK_SECONDS_MAX):
                while True:
                    with suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    await asyncio.sleep(0.05)
        return unlock

    async def get_tokens(self) -> OAuthToken | None:
        self._content = self._read() or self._content
        with suppress(ValidationError, KeyError):
            return OAuthToken.model_validate(self._content["tokens"])
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._content["tokens"] = tokens.model_dump(mode="json")
        if self._new_client is not None:
            self._content["client"] = self._new_client.model_dump(mode="json")
        if self.context is not None:
            # a refresh after a restart needs the token's age and the place where to refresh it
            self._content["expires_at"] = self.context.token_expiry_time
            self._content["auth_server"] = self.context.auth_server_url
            for name in ("oauth_metadata", "protected_resource_metadata"):
                found = getattr(self.context, name)
                self._content[name] = found.model_dump(mode="json") if found else None
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        settings = self._settings
        if settings.client_id:
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=settings.client_secret or None,
                redirect_uris=[AnyUrl(settings.redirect_uri)],
                token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
                issuer=settings.issuer or None,
            )
        with suppress(ValidationError, KeyError):
            known = OAuthClientInformationFull.model_validate(self._content["client"])
            # a client with another redirect address can refresh its tokens, but cannot ask the present user for consent
            if not self._is_person_present or AnyUrl(settings.redirect_uri) in (known.redirect_uris or ()):
                return known
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Holds back a new client until it has tokens, because without them it must not replace the client that has
        some."""
        self._new_client = client_info

    def restore_context(self, context: OAuthContext) -> None:
        """Adds the fields that the SDK does not store itself."""
        context.token_expiry_time = self._content.get("expires_at")
        context.auth_server_url = self._content.get("auth_server")
        with suppress(ValidationError):
            if found := self._content.get("oauth_metadata"):
                context.oauth_metadata = OAuthMetadata.model_validate(found)
            if found := self._content.get("protected_resource_metadata"):
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(found)


class _PersonOAuth(OAuthClientProvider):
    """Authorizes requests with the consent of a person. The tokens are stored and refreshed."""

    more_scopes: str = ""
    _unlock: Callable[[], object] = bool  # does nothing

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        try:
            return await super()._handle_refresh_response(response)
        finally:
            self._unlock()

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        asked = self.context.client_metadata
        asked.scope = union_scopes(asked.scope, self.more_scopes or None)
        return await super()._perform_authorization_code_grant()

    async def _initialize(self) -> None:
        """Reads the tokens before each request, because other processes use them, too. If two processes refresh them at
        the same time, a server may end the session, because it received one refresh token twice."""
        context, storage = self.context, cast(TokenFile, self.context.storage)
        self._unlock()  # the previous refresh may have failed
        for is_locked in (False, True):
            await super()._initialize()
            storage.restore_context(context)
            if is_locked or context.is_token_valid() or not context.can_refresh_token():
                break
            self._unlock = await storage.lock_refresh(self)
        if context.is_token_valid():
            self._unlock()
        self._initialized = False


def build_oauth(config: McpServerConfig, authorize: Authorize | None) -> OAuthClientProvider | None:
    """Returns the authorization of requests to a server, or None if its settings ask for none.

    Without `authorize` no one can be asked, and a request that needs a person's consent fails."""
    settings = config.oauth
    if settings is None:
        return None
    tokens = TokenFile(settings, config.name, is_person_present=authorize is not None)
    if settings.grant == "client_credentials":
        scope, issuer = settings.scope or None, settings.issuer
        if not settings.private_key:
            return ClientCredentialsOAuthProvider(
                config.url, tokens, settings.client_id, settings.client_secret, scope=scope, issuer=issuer
            )
        signed = SignedJWTParameters(
            issuer=settings.client_id,
            subject=settings.client_id,
            signing_algorithm=settings.signing_algorithm,
            signing_key=settings.private_key,
        )
        return PrivateKeyJWTOAuthProvider(
            config.url, tokens, settings.client_id, signed.create_assertion_provider(), scope=scope, issuer=issuer
        )
    answers: list[str] = []

    async def show(link: str) -> None:
        if authorize is None:
            raise OAuthFlowError(
                f"it needs the consent of a person: an admin writes `mcp connect {config.name}` to the bot, or runs "
                f"`threadhand mcp-login {config.name}`"
            )
        answers.append(await authorize(link))

    async def take() -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(answers.pop()).query)
        if "code" not in query:
            why = clean_line(" ".join(query.get("error", ()) or ("no code",)), 200)
            raise OAuthFlowError(f"its authorization server gave no consent ({why})")
        first = {name: query[name][0] for name in ("code", "state", "iss") if name in query}
        return AuthorizationCodeResult.model_validate(first)

    provider = _PersonOAuth(
        config.url,
        OAuthClientMetadata(
            client_name="Threadhand",
            redirect_uris=[AnyUrl(settings.redirect_uri)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=settings.scope or None,
        ),
        tokens,
        show,
        take,
        settings.client_metadata_url or None,
    )
    tokens.context, provider.more_scopes = provider.context, settings.scope
    return provider
