"""Slack for the workspaces that install the bot themselves, put together from the settings."""

import hashlib

from bots.bootstrap.inbound import policy_of
from bots.bootstrap.stores import Stores
from bots.settings import Settings
from bots.slack.install.flow import InstallFlow
from bots.slack.install.oauth import OAuthClient
from bots.slack.install.token_cipher import TokenCipher
from bots.slack.install.tokens import TokenStore
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.files import FileRefSigner


class InstallDesk:
    """`tokens` are those that are stored, `install` is how they come there. Raises ConfigurationError."""

    def __init__(self, settings: Settings, stores: Stores) -> None:
        self._api_url = settings.slack_api_url
        oauth = OAuthClient(
            client=self._client(""),
            client_id=settings.slack_client_id,
            client_secret=settings.slack_client_secret.get_secret_value(),
        )
        token_cipher = TokenCipher(settings.token_keys)
        policy = policy_of(settings)
        self.tokens = TokenStore(
            installations=stores.installations,
            token_cipher=token_cipher,
            oauth=oauth,
            file_ref_signer=FileRefSigner(settings.token_keys),
        )
        self.install = InstallFlow(
            oauth=oauth,
            token_cipher=token_cipher,
            installations=stores.installations,
            claims=stores.inbox,
            public_url=settings.public_url,
            secret=hashlib.sha256(f"install:{settings.token_keys[0]}".encode()).digest(),
            admits=policy.admits_workspace,
            new_client=self._client,
        )

    def _client(self, token: str) -> SlackClient:
        return SlackClient(bot_token=token, api_url=self._api_url)
