"""Builds what handles incoming messages, and the access policy."""

import logging
from collections.abc import Callable, Mapping

from bots.bootstrap.stores import Stores
from bots.inbound.access import AccessPolicy
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.commands.dispatch import CommandDeps
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.receiver import ActionReceiver, stop_runs
from bots.settings import Settings
from core.agents.roster import Roster
from core.domain.threads import Usage
from core.ports import FileSource, SandboxProvider

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
    """Platforms may still be added to `file_sources` afterwards. `charge` prices model calls outside runs."""
    policy = build_access_policy(settings)
    return ActionReceiver(
        inbox=stores.inbox,
        stops=stores.stops,
        queue=stores.queue,
        signals=stores.signals,
        policy=policy,
        pairings=stores.pairings,
        desk=CommandDeps(
            conversations=stores.conversations,
            sandboxes=sandboxes,
            signals=stores.signals,
            shelf=KnowledgeDeps(
                library=stores.library,
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
