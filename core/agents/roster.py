"""Chooses a run's agent: the agent requested for the run, else the thread's, the channel's or the default agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from core.agents.definition import DEFAULT_AGENT, AgentDefinition, AgentVersion
from core.agents.files import AgentFiles
from core.domain.errors import AgentError, ConfigurationError
from core.domain.threads import Address, Person, Run, Thread


class AgentVersions(Protocol):
    """Stores every version of each agent, and the agent chosen for each thread.

    All methods raise StorageUnavailable if the database cannot be reached.
    """

    async def record(self, definition: AgentDefinition) -> AgentVersion:
        """Returns the stored version of the definition; stores a new version if the definition has changed."""
        ...

    async def version(self, agent_version_id: str) -> AgentVersion | None:
        """Returns the agent version with this id, or None if it is unknown.

        Raises ConfigurationError if this release cannot read the stored definition.
        """
        ...

    async def choose(self, address: Address, agent_id: str, *, by: Person | None = None) -> None:
        """Sets the agent for later runs of the thread at the address, and creates the thread if needed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Chooses agents and their versions for runs.

    `by_channel` maps channel ids to agent ids. `recorded` caches versions by agent id and content hash.
    """

    files: AgentFiles
    versions: AgentVersions
    by_channel: Mapping[str, str] = field(default_factory=dict[str, str])
    recorded: dict[tuple[str, str], AgentVersion] = field(
        default_factory=dict[tuple[str, str], AgentVersion]
    )

    async def agents(self) -> Mapping[str, AgentDefinition]:
        """Returns the current definitions by agent id."""
        return await self.files.definitions()

    def agent_in(self, channel_id: str, chosen: str | None = None) -> str:
        """Returns the agent id for a thread: `chosen` if set, else the channel's agent, else the default agent."""
        return chosen or self.by_channel.get(channel_id) or DEFAULT_AGENT

    async def version_for(self, run: Run, thread: Thread) -> AgentVersion:
        """Returns the agent version that the run started with; for a new run, the current version of its agent.

        Raises AgentError if the agent no longer exists.
        """
        if run.agent_version_id is not None:
            return await self._begun(run.agent_version_id)
        agent_id = run.agent_id or self.agent_in(thread.address.channel_id, thread.agent_id)
        version = await self._newest(agent_id)
        if version is None:
            raise AgentError(
                f"The agent {agent_id} is not here any more. Write `use` to see who is, and choose one."
            )
        return version

    async def member(self, agent_id: str, agent_version_id: str | None) -> AgentVersion | None:
        """Returns a team member's agent version, or None if there is no agent with this id.

        Pass the version id that the member started with, or None for the current version. Raises AgentError if that
        version is no longer available.
        """
        if agent_version_id is not None:
            return await self._begun(agent_version_id)
        return await self._newest(agent_id)

    async def _newest(self, agent_id: str) -> AgentVersion | None:
        definition = (await self.agents()).get(agent_id)
        if definition is None:
            return None
        key = (agent_id, definition.content_hash)
        if key not in self.recorded:
            self.recorded[key] = await self.versions.record(definition)
        return self.recorded[key]

    async def _begun(self, agent_version_id: str) -> AgentVersion:
        gone = "The agent that began this cannot be had any more. Please ask again."
        try:
            version = await self.versions.version(agent_version_id)
        except ConfigurationError as error:
            raise AgentError(gone, detail=str(error)) from error
        if version is None:
            raise AgentError(gone, detail=f"there is no agent version {agent_version_id}")
        return version


def unknown_agent_message(name: str, known: Mapping[str, AgentDefinition]) -> str:
    """Returns the message for a person who named an agent that does not exist. It lists the known agents."""
    shown = "".join(sign for sign in name if sign.isalnum() or sign in "-_.")[:40] or "of that name"
    return f"There is no agent {shown}. There are: {', '.join(sorted(known))}."
