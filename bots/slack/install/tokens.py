"""The bot tokens of installed workspaces: encryption, storage and refresh."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from bots.slack.events.payload_fields import get_text
from bots.slack.install.oauth import BotToken, OAuthClient, parse_bot_token
from bots.slack.web_api.client import Identity
from bots.slack.web_api.downloads import FileRefSigner
from core.domain.errors import ConfigurationError, SurfaceError, SurfaceUnavailable
from core.domain.installations import Installation, Installations

BAD_KEY = (
    "THREADHAND_ENCRYPTION_KEYS has an invalid key: make one with"
    " `python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'`."
)


class UnreadableToken(SurfaceUnavailable):
    """No key decrypts the token, or it belongs to another workspace. Only the operator can put that right, so whatever
    needs the token waits."""

    def __init__(self, team_id: str, why: str) -> None:
        super().__init__(f"the token of workspace {team_id} cannot be read: {why}", code="unreadable_token")


class TokenCipher:
    """Encrypts tokens together with the id of their workspace or organisation. `keys` are Fernet keys, newest first."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            fernets = [Fernet(key) for key in keys]
            self._newest, self._fernet = fernets[0], MultiFernet(fernets)
        except (ValueError, IndexError) as error:
            raise ConfigurationError(BAD_KEY) from error

    def seal(self, team_id: str, token: BotToken) -> str:
        content = json.dumps(
            {
                "team": team_id,
                "access": token.access_token,
                "refresh": token.refresh_token,
                "expires_at": token.expires_at,
            }
        )
        return self._fernet.encrypt(content.encode()).decode()

    def unseal(self, team_id: str, sealed: str) -> BotToken:
        """Decrypts a token. Raises UnreadableToken if no key decrypts it, or if it was sealed for another workspace."""
        try:
            content = json.loads(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, ValueError) as error:
            raise UnreadableToken(team_id, "no key opens it") from error
        if content["team"] != team_id:
            raise UnreadableToken(team_id, "it belongs to another workspace")
        return BotToken(
            access_token=content["access"], refresh_token=content["refresh"], expires_at=content["expires_at"]
        )

    def reseal_with_newest_key(self, sealed: str) -> str | None:
        """Returns the token that `unseal` could read encrypted with the newest key, or None if it already is."""
        try:
            self._newest.decrypt(sealed.encode())
        except InvalidToken:
            return self._fernet.rotate(sealed.encode()).decode()
        return None


REFRESH_SECONDS_BEFORE = 1800.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceToken:
    """A valid token with the bot's identity. `installed_by` is the id of the workspace, or of the organisation that
    installed the app."""

    token: str
    identity: Identity
    installed_by: str


class TokenSource(Protocol):
    @property
    def file_ref_signer(self) -> FileRefSigner:
        """Signs references to the workspaces' files."""
        ...

    async def find_token(self, team_id: str) -> WorkspaceToken | None:
        """Returns the workspace's token, or None if the bot is not installed.

        Raises StorageUnavailable, and UnreadableToken if the encryption keys do not fit."""
        ...

    async def link_workspace(self, team_id: str, organisation_id: str) -> bool:
        """Lets the organisation's token serve the workspace. Returns False if the organisation has no token.

        Raises StorageUnavailable."""
        ...

    async def has_threads_in_channel(self, team_id: str, channel_id: str) -> bool:
        """Whether the workspace has a thread in the channel. Raises StorageUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStore:
    """Stores tokens in the database. If several processes refresh a token, all of them use the result that was stored
    first."""

    installations: Installations
    token_cipher: TokenCipher
    oauth: OAuthClient
    file_ref_signer: FileRefSigner

    async def find_token(self, team_id: str) -> WorkspaceToken | None:
        found = await self.installations.find("slack", team_id)
        if found is None:
            return None
        token = self.token_cipher.unseal(found.workspace_id, found.sealed_token)
        newer = self.token_cipher.reseal_with_newest_key(found.sealed_token)
        if token.expires_at is not None and token.expires_at < time.time() + REFRESH_SECONDS_BEFORE:
            token = await self._refresh(found, token)
        elif newer is not None:
            await self.installations.replace_sealed_token(found, newer)
        return WorkspaceToken(
            token=token.access_token,
            identity=Identity(
                team_id=team_id,
                organisation_id=get_text(found.facts, "organisation_id"),
                user_id=get_text(found.facts, "bot_user_id"),
                bot_id=get_text(found.facts, "bot_id"),
            ),
            installed_by=found.workspace_id,
        )

    async def link_workspace(self, team_id: str, organisation_id: str) -> bool:
        return await self.installations.join_organisation("slack", team_id, organisation_id)

    async def has_threads_in_channel(self, team_id: str, channel_id: str) -> bool:
        return await self.installations.has_threads_in("slack", team_id, channel_id)

    async def _refresh(self, found: Installation, old: BotToken) -> BotToken:
        """Returns a refreshed token, or the old token, which is still valid for a while, if the refresh fails."""
        owner_id = found.workspace_id
        try:
            new = parse_bot_token(await self.oauth.refresh(old.refresh_token))
        except SurfaceError as error:
            log.warning("slack: the token of workspace %s is not refreshed: %s", owner_id, error)
            return await self._find_newer(found, old)
        if not new.access_token:
            return old
        if await self.installations.replace_sealed_token(found, self.token_cipher.seal(owner_id, new)):
            return new
        return await self._find_newer(found, new)

    async def _find_newer(self, found: Installation, otherwise: BotToken) -> BotToken:
        """Returns the newer token if another process has stored one in the meantime, else `otherwise`."""
        now = await self.installations.find("slack", found.workspace_id)
        if now is None or now.sealed_token == found.sealed_token:
            return otherwise
        try:
            return self.token_cipher.unseal(found.workspace_id, now.sealed_token)
        except UnreadableToken:
            return otherwise
