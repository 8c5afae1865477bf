"""Chooses a run's agent: the agent requested for the run, else the thread's, the channel's or the default agent."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from core.agents.definition import DEFAULT_AGENT, LIST_MAX, AgentDefinition, AgentVersion, validate_definition
from core.agents.files import AgentFiles
from core.domain.errors import ConfigurationError, RunError
from core.domain.model_options import NO_OPTIONS, ModelOptions
from core.domain.threads import Address, Person, Run, Thread

CHANNEL_OPTIONS = "channel:"


class AgentVersions(Protocol):
    """Stores every version of each agent, and the agent chosen for each thread.

    All methods raise StorageUnavailable if the database cannot be reached."""

    async def find_or_add_version(self, definition: AgentDefinition) -> AgentVersion:
        """Returns the stored version of the definition; stores a new version if the definition has changed."""
        ...

    async def find_version(self, agent_version_id: str) -> AgentVersion | None:
        """Returns the agent version with this id, or None if it is unknown.

        Raises ConfigurationError if this release cannot read the stored definition."""
        ...

    async def list_versions(self, agent_id: str) -> tuple[AgentVersion, ...]:
        """Returns all stored versions of the agent that this release can read, by number."""
        ...

    async def saved_versions(self) -> Mapping[str, AgentVersion]:
        """Returns the saved versions that replace agent files, by agent id. Versions that this release cannot read are
        left out."""
        ...

    async def make_current(
        self, definition: AgentDefinition, *, at: Address | None = None, by: Person | None = None
    ) -> AgentVersion:
        """Makes the definition the agent's current version, which replaces its file. Records who saved it and where."""
        ...

    async def reset_to_file(self, agent_id: str, *, at: Address, by: Person) -> bool:
        """Makes the agent's file current again. Without a file, the agent no longer exists. Returns False if no version
        was saved."""
        ...

    async def choose_agent(
        self, address: Address, agent_id: str, *, by: Person | None = None, begins_with: str = ""
    ) -> None:
        """Sets the agent for later runs of the thread at the address. If there is no thread, it is created.
        `begins_with` is the id of its first message."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Chooses agents and their versions for runs.

    `by_channel` maps channel ids to agent ids. `options` are model options by model name, or by `channel:<id>`.
    `recorded` caches versions by agent id and content hash. `find_problems` returns sentences that tell why a
    definition cannot work, for example because its model has no API key."""

    files: AgentFiles
    versions: AgentVersions
    by_channel: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, ModelOptions] = field(default_factory=dict[str, ModelOptions])
    recorded: dict[tuple[str, str], AgentVersion] = field(default_factory=dict[tuple[str, str], AgentVersion])
    find_problems: Callable[[Iterable[AgentDefinition]], Iterable[str]] = lambda _definitions: ()

    async def current_definitions(self) -> Mapping[str, AgentDefinition]:
        """Returns the current definitions by agent id: saved versions take the place of files."""
        saved = await self.versions.saved_versions()
        agents = {**await self.files.definitions()}
        agents.update((agent_id, version.definition) for agent_id, version in saved.items())
        return agents

    async def check_definition(self, fields: Mapping[str, object], agent_id: str) -> AgentDefinition:
        """Returns the definition with these values, which do not come from a file.

        Raises ConfigurationError with a sentence for each problem."""
        source = f"The agent {agent_id[:40]!r}"
        draft = validate_definition(fields, source=source, agent_id=agent_id, known=self.files.known)
        agents, own = await self.current_definitions(), self.files.latest.get(agent_id)
        problems = [f"team: there is no agent named {one!r}." for one in draft.team if one not in agents]
        if not set(draft.knowledge) <= set(own.knowledge if own else ()):
            problems.append("knowledge: only the agent's own file can name files.")
        if not (draft.name + draft.description).isprintable():
            problems.append("name, description: each must be one line of visible characters.")
        if agent_id not in agents and len(agents) >= LIST_MAX:
            problems.append(f"there may be at most {LIST_MAX} agents.")
        problems += self.find_problems([draft])
        if problems:
            raise ConfigurationError("\n".join(f"{source}: {problem}" for problem in problems))
        return draft

    async def make_current(
        self, draft: AgentDefinition, *, at: Address | None = None, by: Person | None = None
    ) -> AgentVersion:
        """Makes a checked definition the agent's current version. The one before it stays in the list of versions."""
        if (before := (await self.current_definitions()).get(draft.agent_id)) is not None:
            await self.versions.find_or_add_version(before)
        return await self.versions.make_current(draft, at=at, by=by)

    async def roll_back(self, agent_id: str, number: int, *, at: Address, by: Person) -> AgentVersion | None:
        """Makes an earlier version current again. Returns None if there is no such version.

        Raises ConfigurationError if it can no longer work, for example because one of its tools is gone."""
        listed = await self.versions.list_versions(agent_id)
        version = next((one for one in listed if one.number == number), None)
        if version is None:
            return None
        values = version.definition.model_dump(exclude_defaults=True, exclude={"agent_id"})
        return await self.make_current(await self.check_definition(values, agent_id), at=at, by=by)

    def agent_in(self, channel_id: str, chosen: str | None = None) -> str:
        """Returns the agent id for a thread: `chosen` if set, else the channel's agent, else the default agent."""
        return chosen or self.by_channel.get(channel_id) or DEFAULT_AGENT

    def options_in(self, channel_id: str, agent: AgentDefinition) -> ModelOptions:
        """Returns the agent's options in the channel, whose own ones take precedence; without those of the model."""
        return agent.options.replaced_by(self.options.get(f"{CHANNEL_OPTIONS}{channel_id}", NO_OPTIONS))

    async def version_for(self, run: Run, thread: Thread) -> AgentVersion:
        """Returns the agent version that the run started with; for a new run, the current version of its agent.

        Raises RunError if the agent no longer exists."""
        if run.agent_version_id is not None:
            return await self._begun(run.agent_version_id)
        agent_id = run.agent_id or self.agent_in(thread.address.settings_channel_id, thread.agent_id)
        version = await self._newest(agent_id)
        if version is None:
            raise RunError(f"The agent {agent_id} is not here any more. Write `use` to see who is, and choose one.")
        return version

    async def find_member_version(self, agent_id: str, agent_version_id: str | None) -> AgentVersion | None:
        """Returns a team member's agent version, or None if there is no agent with this id.

        Pass the version id that the member started with, or None for the current version. Raises RunError if that
        version is no longer available."""
        if agent_version_id is not None:
            return await self._begun(agent_version_id)
        return await self._newest(agent_id)

    async def _newest(self, agent_id: str) -> AgentVersion | None:
        definition = (await self.current_definitions()).get(agent_id)
        if definition is None:
            return None
        key = (agent_id, definition.content_hash)
        if key not in self.recorded:
            self.recorded[key] = await self.versions.find_or_add_version(definition)
        return self.recorded[key]

    async def _begun(self, agent_version_id: str) -> AgentVersion:
        gone = "The agent that began this cannot be had any more. Please ask again."
        try:
            version = await self.versions.find_version(agent_version_id)
        except ConfigurationError as error:
            raise RunError(gone, detail=str(error)) from error
        if version is None:
            raise RunError(gone, detail=f"there is no agent version {agent_version_id}")
        return version


def unknown_agent_message(name: str, known: Mapping[str, AgentDefinition]) -> str:
    """Returns the message for a person who named an agent that does not exist. It lists the known agents."""
    shown = "".join(sign for sign in name if sign.isalnum() or sign in "-_.")[:40] or "of that name"
    return f"There is no agent {shown}. There are: {', '.join(sorted(known))}."
