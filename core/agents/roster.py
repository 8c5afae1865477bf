"""Which agent works where: for one message, in a thread, in a channel, else the default one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from core.agents.definition import DEFAULT_AGENT, AgentDefinition, AgentVersion
from core.agents.files import AgentFiles
from core.domain.errors import AgentError, ConfigurationError
from core.domain.threads import Address, Person, Run, Thread


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The agents, and who works in which channel by its id. `recorded` are versions by agent and content."""

    files: AgentFiles
    versions: AgentVersions
    by_channel: Mapping[str, str] = field(default_factory=dict[str, str])
    recorded: dict[tuple[str, str], AgentVersion] = field(
        default_factory=dict[tuple[str, str], AgentVersion]
    )

    async def agents(self) -> Mapping[str, AgentDefinition]:
        """All there are now, by name."""
        return await self.files.definitions()

    def agent_in(self, channel_id: str, chosen: str | None = None) -> str:
        """Who works in a thread of the channel: the one chosen there, else the channel's, else the default."""
        return chosen or self.by_channel.get(channel_id) or DEFAULT_AGENT

    async def version_for(self, run: Run, thread: Thread) -> AgentVersion:
        """The version that the run began with; for a new one, today's of the agent that was asked for.

        Raises AgentError where there is no such agent any more.
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
        """The version that somebody of a team began with, else today's; None where there is no such agent.

        Raises AgentError where the version cannot be had any more.
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
    """What a person is told who named an agent that is not there."""
    shown = "".join(sign for sign in name if sign.isalnum() or sign in "-_.")[:40] or "of that name"
    return f"There is no agent {shown}. There are: {', '.join(sorted(known))}."
