"""Builds the receiver of incoming messages, the access policy and the list of agents."""

import logging
from collections.abc import Callable, Iterable, Mapping

from bots.bootstrap.stores import Stores
from bots.inbound.access import AccessPolicy
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.commands.dispatch import CommandDeps
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.receiver import ActionReceiver, stop_runs
from bots.settings import Settings
from core.agents.definition import KnownNames
from core.agents.files import AgentFiles
from core.agents.roster import AgentVersions, Roster, unknown_agent_message
from core.domain.errors import ConfigurationError
from core.domain.threads import Usage
from core.ports import FileSource, SandboxProvider
from core.tools.catalogue import all_tools

log = logging.getLogger(__name__)


def build_access_policy(settings: Settings) -> AccessPolicy:
    return AccessPolicy(
        workspaces=settings.allowed_workspaces,
        channels=settings.allowed_channels,
        users=settings.allowed_users,
        roles=settings.allowed_roles,
        admins=settings.admins,
        guests=settings.allow_guests,
        strangers=settings.allow_strangers,
    )


async def handle_uninstall(
    platform: str, workspace_id: str, reception: ActionReceiver, stores: Stores
) -> None:
    """Deletes the token of a workspace that uninstalled the bot, and stops its runs."""
    active = await stores.installations.leave(platform, workspace_id)
    stopped = await stop_runs(reception, active)
    log.warning(
        "%s: the bot was uninstalled from %s; %d runs stopped", platform, workspace_id, stopped
    )


def build_reception(
    settings: Settings,
    stores: Stores,
    *,
    sandboxes: SandboxProvider | None,
    file_sources: Mapping[str, FileSource],
    roster: Roster,
    wake_delivery: Callable[[str], None],
    charge: Callable[[str, Usage], Usage],
) -> ActionReceiver:
    """Builds the receiver of incoming messages.

    The caller may still add platforms to `file_sources` afterwards. `charge` returns the usage of a model call with
    its price, for calls outside runs.
    """
    policy = build_access_policy(settings)
    return ActionReceiver(
        inbox=stores.inbox,
        stops=stores.stops,
        queue=stores.queue,
        signals=stores.signals,
        policy=policy,
        pairings=stores.pairings,
        commands=CommandDeps(
            conversations=stores.conversations,
            sandboxes=sandboxes,
            signals=stores.signals,
            knowledge=KnowledgeDeps(
                knowledge_base=stores.knowledge_base,
                conversations=stores.conversations,
                sources=file_sources,
                file_bytes_max=settings.file_bytes_max,
                ledger=stores.ledger,
                charge=charge,
                budget=settings.budget,
            ),
            roster=roster,
            plans=stores.plans,
            admin=AdminDeps(policy=policy, pairings=stores.pairings, log=stores.audit),
        ),
        wake_delivery=wake_delivery,
    )


def build_roster(settings: Settings, versions: AgentVersions, servers: Iterable[str]) -> Roster:
    """Builds the roster of agents. Raises ConfigurationError if an agent definition or a channel setting is invalid."""
    files, by_channel = read_agents(settings, servers)
    return Roster(files=files, versions=versions, by_channel=by_channel)


def read_agents(settings: Settings, servers: Iterable[str]) -> tuple[AgentFiles, Mapping[str, str]]:
    """Returns the agent definitions, and the agent ID of each channel with its own agent.

    `servers` are the names of the configured MCP servers. Raises ConfigurationError if a definition or a channel
    setting is invalid.
    """
    known = KnownNames(tools=frozenset(all_tools()), servers=frozenset(servers))
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
