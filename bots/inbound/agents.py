"""Who the agents are here: what the settings say of them, and the word `use`."""

from collections.abc import Iterable, Mapping

from bots.inbound.actions import CommandCalled, Outcome
from bots.settings import Settings
from core.agents.definition import DEFAULT_AGENT, KnownNames
from core.agents.files import AgentFiles
from core.agents.roster import AgentVersions, Roster, unknown_agent_message
from core.domain.errors import ConfigurationError
from core.stores import Conversations
from core.tools.catalogue import catalogue

NO_THREAD_YET = (
    "There is no conversation with me here yet. Begin one with `/agent run` and its option `agent`, "
    "or start a message to me with `agent:NAME`."
)


def new_roster(settings: Settings, versions: AgentVersions, servers: Iterable[str]) -> Roster:
    """As `read_agents`."""
    files, by_channel = read_agents(settings, servers)
    return Roster(files=files, versions=versions, by_channel=by_channel)


def read_agents(settings: Settings, servers: Iterable[str]) -> tuple[AgentFiles, Mapping[str, str]]:
    """The definitions, and who works in which channel; `servers` are the names of the tool servers. Raises
    ConfigurationError with a sentence for each thing that is wrong."""
    known = KnownNames(tools=frozenset(catalogue()), servers=frozenset(servers))
    files = AgentFiles(known=known, folder=settings.agents_dir)
    files.load()
    by_channel = dict(_channel_agent(pair) for pair in settings.channel_agents)
    for channel_id, agent_id in by_channel.items():
        if agent_id not in files.latest:
            raise ConfigurationError(
                f"THREADHAND_CHANNEL_AGENTS: for {channel_id}: {unknown_agent_message(agent_id, files.latest)}"
            )
    return files, by_channel


def _channel_agent(pair: str) -> tuple[str, str]:
    channel_id, _, agent_id = (part.strip() for part in pair.partition("="))
    if not channel_id or not agent_id:
        raise ConfigurationError(
            f"THREADHAND_CHANNEL_AGENTS has a bad value ({pair[:80]!r}): "
            "write channel=agent pairs, separated by commas, for example C123=research."
        )
    return channel_id, agent_id


async def answer_use(
    called: CommandCalled, roster: Roster, conversations: Conversations
) -> Outcome:
    """Without a name it tells who there is; with one the conversation works with that agent from then on."""
    agents = await roster.agents()
    address = called.address
    snapshot = await conversations.find(address)
    chosen = snapshot.thread.agent_id if snapshot else None
    name = called.argument.strip().strip("`").lower()
    if not name:
        current = roster.agent_in(address.channel_id, chosen)
        lines = [
            f"- `{agent_id}`{' (works here)' if agent_id == current else ''}: {agent.description}"
            for agent_id, agent in agents.items()
        ]
        return Outcome(notice="\n".join([*lines, _HOW]))
    if name not in agents:
        return Outcome(notice=unknown_agent_message(name, agents))
    if snapshot is None and address.platform == "discord" and address.thread_key != "dm":
        return Outcome(notice=NO_THREAD_YET)
    await roster.versions.choose(address, name, by=called.person)
    return Outcome(
        notice=f"`{name}` works in this conversation from the next request on.", is_private=False
    )


_HOW = (
    f"`use NAME` chooses one for this conversation (`use {DEFAULT_AGENT}` goes back to the usual one), "
    "`agent:NAME` at the start of a message for that request alone."
)
