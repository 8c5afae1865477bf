"""Workspaces and organisations that installed the bot, each with its own sealed token."""

from dataclasses import dataclass
from typing import Protocol

from core.domain.messages import JsonObject
from core.domain.threads import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`workspace_id` is the id of a workspace or an organisation. `sealed_token` is encrypted; `facts` describe the bot
    there and hold no secrets."""

    platform: str
    workspace_id: str
    sealed_token: str
    facts: JsonObject


class Installations(Protocol):
    """One installation per workspace. Every join and leave is recorded in the audit log."""

    async def save(self, installation: Installation, *, by: Person) -> None:
        """Stores the installation, replacing an older one of the workspace."""
        ...

    async def reseal(self, old: Installation, sealed_token: str) -> bool:
        """Replaces the sealed token. Returns False if the stored installation no longer equals `old`."""
        ...

    async def find(self, platform: str, workspace_id: str) -> Installation | None:
        """Returns the workspace's own installation, else the one of the organisation through which it joined."""
        ...

    async def join(self, platform: str, workspace_id: str, organisation_id: str) -> bool:
        """Lets the organisation's installation serve the workspace unless it has its own. Returns False if the
        organisation has not installed the bot."""
        ...

    async def has_threads_in(self, platform: str, workspace_id: str, channel_id: str) -> bool:
        """Returns whether the workspace has had a conversation in the channel."""
        ...

    async def leave(self, platform: str, workspace_id: str) -> tuple[str, ...]:
        """Deletes the installation, and for an organisation the joins of its workspaces. Returns the ids of their
        unfinished runs."""
        ...
