"""The tokens of the workspaces that installed the bot: read, refreshed before they expire, and sealed anew."""

import logging
import time
from dataclasses import dataclass
from typing import Protocol

from bots.slack.events.payload import get_text
from bots.slack.install.oauth import OAuthClient, parse_bot_token
from bots.slack.install.token_cipher import BotToken, TokenCipher, UnreadableToken
from bots.slack.web_api.client import Identity
from bots.slack.web_api.files import FileRefSigner
from core.domain.errors import SurfaceError
from core.domain.installations import Installation, Installations

REFRESH_SECONDS_BEFORE = 1800.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceToken:
    """A token that holds now, and who the bot is with it. `installed_by`: the workspace itself, or its organisation."""

    token: str
    identity: Identity
    installed_by: str


class TokenSource(Protocol):
    @property
    def file_ref_signer(self) -> FileRefSigner:
        """What files of the workspaces are called."""
        ...

    async def access(self, team_id: str) -> WorkspaceToken | None:
        """None: the workspace has not installed the bot, or its token is lost. Raises StorageUnavailable."""
        ...

    async def join(self, team_id: str, organisation_id: str) -> bool:
        """Lets the organisation's token serve a workspace without one. False: there is none. Raises as `access`."""
        ...

    async def has_threads_in(self, team_id: str, channel_id: str) -> bool:
        """Whether a conversation of the workspace stands in the channel. Raises StorageUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStore:
    """Tokens in the database. Several processes may refresh at once: whoever is second takes what the first stored."""

    installations: Installations
    token_cipher: TokenCipher
    oauth: OAuthClient
    file_ref_signer: FileRefSigner

    async def access(self, team_id: str) -> WorkspaceToken | None:
        found = await self.installations.find("slack", team_id)
        if found is None:
            return None
        try:
            token = self.token_cipher.open(found.workspace_id, found.sealed_token)
            newer = self.token_cipher.renewed(found.sealed_token)
        except UnreadableToken as error:
            log.error("slack: the token of workspace %s cannot be read: %s", team_id, error)  # noqa: TRY400 - no traceback helps
            return None
        if token.expires_at is not None and token.expires_at < time.time() + REFRESH_SECONDS_BEFORE:
            token = await self._refreshed(found, token)
        elif newer is not None:
            await self.installations.reseal(found, newer)
        return WorkspaceToken(
            token=token.access_token,
            identity=_build_identity(found, team_id),
            installed_by=found.workspace_id,
        )

    async def join(self, team_id: str, organisation_id: str) -> bool:
        return await self.installations.join("slack", team_id, organisation_id)

    async def has_threads_in(self, team_id: str, channel_id: str) -> bool:
        return await self.installations.has_threads_in("slack", team_id, channel_id)

    async def _refreshed(self, found: Installation, old: BotToken) -> BotToken:
        """The old one where Slack does not answer: it holds for a while still."""
        owner_id = found.workspace_id
        try:
            new = parse_bot_token(await self.oauth.refresh(old.refresh_token))
        except SurfaceError as error:
            log.warning("slack: the token of workspace %s is not refreshed: %s", owner_id, error)
            return await self._of_others(found, old)
        if not new.access_token:
            return old
        if await self.installations.reseal(found, self.token_cipher.seal(owner_id, new)):
            return new
        return await self._of_others(found, new)

    async def _of_others(self, found: Installation, otherwise: BotToken) -> BotToken:
        """What another process stored meanwhile."""
        now = await self.installations.find("slack", found.workspace_id)
        if now is None or now.sealed_token == found.sealed_token:
            return otherwise
        try:
            return self.token_cipher.open(found.workspace_id, now.sealed_token)
        except UnreadableToken:
            return otherwise


def _build_identity(found: Installation, team_id: str) -> Identity:
    return Identity(
        team_id=team_id,
        organisation_id=get_text(found.facts, "organisation_id"),
        user_id=get_text(found.facts, "bot_user_id"),
        bot_id=get_text(found.facts, "bot_id"),
    )
