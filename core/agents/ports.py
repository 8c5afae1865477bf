"""The port to the versions of agents."""

from typing import Protocol

from core.agents.definition import AgentDefinition, AgentVersion
from core.domain.threads import Address, Person


class AgentVersions(Protocol):
    """What agents were like, version by version, and which thread works with which. Raises StorageUnavailable."""

    async def record(self, definition: AgentDefinition) -> AgentVersion:
        """The version that has this content; a new one, with the agent's next number, where there is none."""
        ...

    async def version(self, agent_version_id: str) -> AgentVersion | None:
        """Raises ConfigurationError for one that this release cannot read."""
        ...

    async def choose(self, address: Address, agent_id: str, *, by: Person | None = None) -> None:
        """The conversation at the address works with the agent from its next run on; made where there is none."""
        ...
