"""Workspaces, and organisations of workspaces, that installed the bot themselves, each with a token of its own, sealed
before it comes here."""

from dataclasses import dataclass
from typing import Protocol

from core.domain.messages import JsonObject
from core.domain.threads import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`workspace_id` names whose it is, a workspace or an organisation. `sealed_token` is encrypted; `facts` are what
    the platform said of the bot there, and no secret."""

    platform: str
    workspace_id: str
    sealed_token: str
    facts: JsonObject


class Installations(Protocol):
    """One installation per workspace. Joining and leaving stand in the audit log."""

    async def save(self, installation: Installation, *, by: Person) -> None:
        """Takes the place of an older one of the workspace."""
        ...

    async def reseal(self, old: Installation, sealed_token: str) -> bool:
        """Another token for the same installation. False, and nothing done: it is not as it was in `old` any more."""
        ...

    async def find(self, platform: str, workspace_id: str) -> Installation | None:
        """The workspace's own, else that of the organisation that it has joined with."""
        ...

    async def join(self, platform: str, workspace_id: str, organisation_id: str) -> bool:
        """The organisation's installation serves the workspace where it has none of its own. False, and nothing done:
        the organisation has not installed the bot."""
        ...

    async def has_threads_in(self, platform: str, workspace_id: str, channel_id: str) -> bool:
        """Whether the workspace has had a conversation in the channel."""
        ...

    async def leave(self, platform: str, workspace_id: str) -> tuple[str, ...]:
        """Deletes the installation, if there is one, an organisation's with the joining of its workspaces; answers the
        runs of all of them that are not over."""
        ...
