"""Builds the receiver of incoming messages, the access policy and the list of agents."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import cast, get_args

from bots.bootstrap.model_clients import missing_key_warnings
from bots.bootstrap.stores import Stores
from bots.delivery.run_view import RunView, apply_event, format_details
from bots.inbound.access import AccessPolicy
from bots.inbound.commands.admin import AdminDeps, BuildConsentLink
from bots.inbound.commands.budget import BudgetDeps
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.forget import ForgetDeps, Upload
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.commands.schedules import ScheduleDeps
from bots.inbound.receiver import ActionReceiver, stop_runs
from bots.settings import Settings
from bots.settings.access import is_channel_id
from core.agents.definition import ReferableNames
from core.agents.files import AgentFiles
from core.agents.roster import AgentVersions, Roster, unknown_agent_message
from core.domain.errors import ConfigurationError
from core.domain.schedules import Schedule
from core.domain.threads import FollowMode, Usage
from core.ports import ChatHistory, FileSource, SandboxProvider
from core.stores import Conversations
from core.tools.catalogue import all_tools

log = logging.getLogger(__name__)


def build_access_policy(settings: Settings) -> AccessPolicy:
    return AccessPolicy(
        workspaces=settings.allowed_workspaces,
        channels=settings.allowed_channels,
        users=settings.allowed_users,
        roles=settings.allowed_roles,
        admins=settings.admins,
        apps=settings.allowed_apps,
        guests=settings.allow_guests,
        strangers=settings.allow_strangers,
    )


async def handle_uninstall(platform: str, workspace_id: str, receiver: ActionReceiver, stores: Stores) -> None:
    """Deletes the token of a workspace that uninstalled the bot, and stops its runs."""
    active = await stores.installations.leave_workspace(platform, workspace_id)
    stopped = await stop_runs(receiver, active)
    log.warning("%s: the bot was uninstalled from %s; %d runs stopped", platform, workspace_id, stopped)


def build_receiver(
    settings: Settings,
    stores: Stores,
    *,
    sandboxes: SandboxProvider | None,
    file_sources: Mapping[str, FileSource],
    histories: Mapping[str, ChatHistory],
    roster: Roster,
    wake_delivery: Callable[[str], None],
    charge: Callable[[str, Usage], Usage],
    upload: Upload,
    connect_tools: BuildConsentLink,
    describe_hook: Callable[[Schedule], str],
) -> ActionReceiver:
    """Builds the receiver of incoming messages.

    The caller may still add platforms to `file_sources` and `histories` afterwards. `charge` returns the usage of a
    model call with its price, for calls outside runs. `upload` posts a file into a thread. `connect_tools` handles the
    command `mcp connect`, and `describe_hook` returns how a program calls a hook."""
    policy = build_access_policy(settings)
    return ActionReceiver(
        reopen_delivery=stores.deliveries.reopen_delivery,
        inbox=stores.inbox,
        stops=stores.stops,
        queue=stores.queue,
        signals=stores.signals,
        policy=policy,
        pairings=stores.pairings,
        feedback=stores.feedback,
        follow_modes=read_follow_modes(settings),
        commands=CommandDeps(
            conversations=stores.conversations,
            asks=stores.asks,
            sandboxes=sandboxes,
            erasure=ForgetDeps(
                conversations=stores.conversations,
                sandboxes=sandboxes,
                stops=stores.stops,
                signals=stores.signals,
                deliveries=stores.deliveries,
                knowledge_base=stores.knowledge_base,
                histories=histories,
                schedules=stores.schedules,
                upload=upload,
                wake_delivery=wake_delivery,
            ),
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
            follow_modes=stores.follow_modes,
            schedules=ScheduleDeps(
                store=stores.schedules, limits=settings.schedule_limits, describe_hook=describe_hook
            ),
            describe_run=partial(describe_run, stores.conversations),
            admin=AdminDeps(
                policy=policy, pairings=stores.pairings, audit_log=stores.audit, connect_tools=connect_tools
            ),
            budget=BudgetDeps(ledger=stores.ledger, budget=settings.budget),
        ),
        wake_delivery=wake_delivery,
    )


async def describe_run(conversations: Conversations, run_id: str) -> str:
    """Returns the run's checklist and steps as Markdown, or an empty text if its events are deleted."""
    events = await conversations.events(run_id)
    return format_details(reduce(apply_event, (one.event for one in events), RunView()))


def build_roster(settings: Settings, versions: AgentVersions, servers: Iterable[str]) -> Roster:
    """Builds the roster of agents. Raises ConfigurationError like `read_agents`."""
    files, by_channel = read_agents(settings, servers)
    return Roster(
        files=files,
        versions=versions,
        by_channel=by_channel,
        options=settings.model_options,
        find_problems=partial(missing_key_warnings, settings=settings),
    )


def read_agents(settings: Settings, servers: Iterable[str]) -> tuple[AgentFiles, Mapping[str, str]]:
    """Returns the agent definitions, and the agent ID of each channel with its own agent.

    `servers` are the names of the configured MCP servers. Invalid definitions are logged and left out. Raises
    ConfigurationError if a channel setting or the default agent's definition is invalid."""
    known = ReferableNames(tools=frozenset(all_tools()), servers=frozenset(servers))
    files = AgentFiles(known=known, folder=settings.agents_dir)
    files.load()
    setting = "THREADHAND_CHANNEL_AGENTS"
    by_channel = dict(_channel_pairs(settings.channel_agents, setting, "agent", "C123=research"))
    for channel_id, agent_id in by_channel.items():
        if agent_id not in files.latest and agent_id not in files.left_out:
            raise ConfigurationError(
                f"THREADHAND_CHANNEL_AGENTS: for {channel_id}: {unknown_agent_message(agent_id, files.latest)}"
            )
    return files, by_channel


def read_follow_modes(settings: Settings) -> Mapping[str, FollowMode]:
    """Returns the configured follow mode of each channel, and the default under "". Raises ConfigurationError."""
    modes: dict[str, FollowMode] = {"": settings.follow_mode}
    setting = "THREADHAND_CHANNEL_FOLLOW_MODES"
    for channel_id, mode in _channel_pairs(settings.channel_follow_modes, setting, "mode", "C123=mention"):
        if mode not in get_args(FollowMode):
            raise ConfigurationError(f"{setting}: for {channel_id}: the modes are follow, mention and quiet.")
        modes[channel_id] = cast(FollowMode, mode)
    return modes


def _channel_pairs(pairs: Iterable[str], setting: str, value_name: str, example: str) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        channel_id, _, value = (part.strip() for part in pair.partition("="))
        if not is_channel_id(channel_id) or not value:
            raise ConfigurationError(
                f"{setting} has a bad value ({pair[:80]!r}): "
                f"write channel={value_name} pairs, separated by commas, for example {example}."
            )
        yield channel_id, value
