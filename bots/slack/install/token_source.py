"""What the app needs of installed workspaces' tokens. An app with one configured token never loads their encryption."""

from dataclasses import dataclass
from typing import Protocol

from bots.slack.web_api.client import Identity
from bots.slack.web_api.downloads import FileRefSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceToken:
    """A valid token with the bot's identity. `installed_by`: the id of the workspace or of its organisation."""

    token: str
    identity: Identity
    installed_by: str


class TokenSource(Protocol):
    @property
    def file_ref_signer(self) -> FileRefSigner:
        """Signs references to the workspaces' files."""
        ...

    async def find_token(self, team_id: str) -> WorkspaceToken | None:
        """Returns the workspace's token, or None if the bot is not installed or the token is unreadable.

        Raises StorageUnavailable.
        """
        ...

    async def link_workspace(self, team_id: str, organisation_id: str) -> bool:
        """Lets the organisation's token serve the workspace. Returns False if the organisation has no token.

        Raises StorageUnavailable.
        """
        ...

    async def has_threads_in(self, team_id: str, channel_id: str) -> bool:
        """Whether the workspace has a thread in the channel. Raises StorageUnavailable."""
        ...
