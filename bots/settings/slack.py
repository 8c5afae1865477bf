"""The settings of Slack."""

from typing import Annotated, Literal

from pydantic import BaseModel, SecretStr

from bots.settings.validation import NO_SECRET, ServiceUrl, require_each, require_secret_prefix
from core.domain.errors import ConfigurationError


def _check_keys(keys: str) -> None:
    # imported only if keys are set, because the import takes 30 ms
    from cryptography.fernet import Fernet

    try:
        for key in _split_keys(keys):
            Fernet(key)
    except ValueError as error:
        raise ValueError("each key must be 32 bytes in url-safe base64") from error


def _split_keys(keys: str) -> tuple[str, ...]:
    return tuple(key.strip() for key in keys.split(",") if key.strip())


class SlackSettings(BaseModel):
    """Part of `bots.settings.Settings`. A single workspace needs its bot token. An app that workspaces install
    themselves needs its client id and secret, `public_url` and `encryption_keys` (the newest first)."""

    slack_bot_token: Annotated[SecretStr, require_secret_prefix("xoxb-")] = NO_SECRET
    slack_app_token: Annotated[SecretStr, require_secret_prefix("xapp-")] = NO_SECRET
    slack_signing_secret: SecretStr = NO_SECRET
    slack_client_id: str = ""
    slack_client_secret: SecretStr = NO_SECRET
    slack_api_url: ServiceUrl = "https://slack.com/api"
    encryption_keys: Annotated[SecretStr, require_each(_check_keys)] = NO_SECRET
    public_url: ServiceUrl = ""

    @property
    def token_keys(self) -> tuple[str, ...]:
        """The keys that encrypt stored tokens, newest first."""
        return _split_keys(self.encryption_keys.get_secret_value())

    @property
    def slack_mode(self) -> Literal["off", "socket", "http"]:
        """The connection mode of Slack. Raises ConfigurationError if the Slack settings are incomplete."""
        bot, app = bool(self.slack_bot_token), bool(self.slack_app_token)
        needed = {
            "THREADHAND_SLACK_CLIENT_ID": self.slack_client_id,
            "THREADHAND_SLACK_CLIENT_SECRET": self.slack_client_secret.get_secret_value(),
            "THREADHAND_ENCRYPTION_KEYS": self.encryption_keys.get_secret_value(),
            "THREADHAND_PUBLIC_URL": self.public_url,
        }
        missing = [name for name, value in needed.items() if not value]
        if missing and (self.slack_client_id or self.slack_client_secret.get_secret_value()):
            raise ConfigurationError(f"For workspaces that install the bot themselves, set {', '.join(missing)}, too.")
        if not (bot or self.slack_client_id) and (app or self.slack_signing_secret):
            raise ConfigurationError(
                "Slack is set up without its bot token: set THREADHAND_SLACK_BOT_TOKEN (xoxb-...)."
            )
        if not (bot or self.slack_client_id):
            return "off"
        if not app and not self.slack_signing_secret:
            name = "THREADHAND_SLACK_BOT_TOKEN" if bot else "THREADHAND_SLACK_CLIENT_ID"
            raise ConfigurationError(
                f"{name} is set alone: add THREADHAND_SLACK_APP_TOKEN for Socket Mode,"
                " or THREADHAND_SLACK_SIGNING_SECRET for HTTP mode."
            )
        return "socket" if app else "http"
