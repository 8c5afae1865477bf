"""Workspaces that installed the bot themselves, each with a token of its own, sealed before it comes here."""

from dataclasses import dataclass
from typing import Protocol

from core.messages import JsonObject
from core.threads import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`sealed_token` is encrypted; `facts` are what the platform said of the bot there, and no secret."""

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

    async def find(self, platform: str, workspace_id: str) -> Installation | None: ...

    async def leave(self, platform: str, workspace_id: str) -> tuple[str, ...]:
        """Deletes the installation, if there is one; answers the runs of the workspace that are not over."""
        ...
