"""Workspaces and organisations that have installed the bot, each with its own encrypted token."""

from dataclasses import dataclass
from typing import Protocol

from core.domain.json import JsonObject
from core.domain.threads import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The bot's installation in a workspace or an organisation, whose id is `workspace_id`. `sealed_token` is
    encrypted. `facts` describe the bot there and contain no secrets."""

    platform: str
    workspace_id: str
    sealed_token: str
    facts: JsonObject


class Installations(Protocol):
    """Stores one installation per workspace. Every join and leave is recorded in the audit log."""

    async def save(self, installation: Installation, *, by: Person) -> None:
        """Stores the installation and replaces the workspace's previous one."""
        ...

    async def replace_sealed_token(self, old: Installation, sealed_token: str) -> bool:
        """Replaces the sealed token. Returns False if the stored installation no longer equals `old`."""
        ...

    async def find(self, platform: str, workspace_id: str) -> Installation | None:
        """Returns the workspace's own installation, or else that of the organisation through which the workspace
        joined."""
        ...

    async def join_organisation(self, platform: str, workspace_id: str, organisation_id: str) -> bool:
        """Makes the organisation's installation serve the workspace, unless the workspace has its own. Returns False
        if the organisation has not installed the bot."""
        ...

    async def has_threads_in(self, platform: str, workspace_id: str, channel_id: str) -> bool:
        """Returns whether the agent has had a conversation, or has a schedule, in the workspace's channel."""
        ...

    async def leave_workspace(self, platform: str, workspace_id: str) -> tuple[str, ...]:
        """Deletes the installation. If it is that of an organisation, also deletes the memberships of the
        organisation's workspaces. Returns the ids of their unfinished runs."""
        ...
