"""Bot tokens at rest: encrypted with the newest key, read with any of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from core.domain.errors import ConfigurationError

BAD_KEY = (
    "THREADHAND_ENCRYPTION_KEYS has a key that is none: make one with"
    " `python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'`."
)


class UnreadableToken(Exception):
    """None of the keys opens it, or it belongs to another workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotToken:
    """`refresh_token` is empty and `expires_at` (seconds since the epoch) None where the token does not rotate."""

    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None


class TokenCipher:
    """Seals tokens for the workspace or organisation that they belong to. `keys`: Fernet keys, the newest first."""

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

    def open(self, team_id: str, sealed: str) -> BotToken:
        """Raises Unreadable, also for a token that was sealed for another workspace."""
        try:
            content = json.loads(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, ValueError) as error:
            raise UnreadableToken("no key opens it") from error
        if content["team"] != team_id:
            raise UnreadableToken("it belongs to another workspace")
        return BotToken(
            access_token=content["access"],
            refresh_token=content["refresh"],
            expires_at=content["expires_at"],
        )

    def renewed(self, sealed: str) -> str | None:
        """The same under the newest key; None: it is under it already. Raises Unreadable."""
        try:
            self._newest.decrypt(sealed.encode())
        except InvalidToken:
            try:
                return self._fernet.rotate(sealed.encode()).decode()
            except InvalidToken as error:
                raise UnreadableToken("no key opens it") from error
        return None
