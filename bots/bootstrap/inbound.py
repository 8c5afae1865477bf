"""The reception as the settings want it, over the program's stores."""

import logging
from collections.abc import Callable, Mapping

from bots.bootstrap.stores import Stores
from bots.inbound.access import Policy
from bots.inbound.commands.admin import AdminDesk
from bots.inbound.commands.dispatch import CommandDesk
from bots.inbound.commands.knowledge import Shelf
from bots.inbound.receive import Reception, stop_all
from bots.settings import Settings
from core.agents.roster import Roster
from core.domain.threads import Usage
from core.ports import FileSource, SandboxProvider

log = logging.getLogger(__name__)


def build_access_policy(settings: Settings) -> Policy:
    """Who may talk."""
    return Policy(
        workspaces=settings.allowed_workspaces,
        channels=settings.allowed_channels,
        users=settings.allowed_users,
        roles=settings.allowed_roles,
        admins=settings.admins,
        guests=settings.allow_guests,
        strangers=settings.allow_strangers,
    )


async def handle_uninstall(
    platform: str, workspace_id: str, reception: Reception, stores: Stores
) -> None:
    """A workspace took the bot away: its token goes, and its runs end."""
    active = await stores.installations.leave(platform, workspace_id)
    stopped = await stop_all(reception, active)
    log.warning("%s: the bot was taken out of %s; %d runs stopped", platform, workspace_id, stopped)


def build_reception(
    settings: Settings,
    stores: Stores,
    *,
    sandboxes: SandboxProvider | None,
    sources: Mapping[str, FileSource],
    roster: Roster,
    wake_delivery: Callable[[str], None],
    charge: Callable[[str, Usage], Usage],
) -> Reception:
    """`sources` may be filled later, by platform; `roster` are the agents that can be asked for; `charge` prices what
    models are used for beside runs."""
    policy = build_access_policy(settings)
    return Reception(
        inbox=stores.inbox,
        stops=stores.stops,
        queue=stores.queue,
        signals=stores.signals,
        policy=policy,
        pairings=stores.pairings,
        desk=CommandDesk(
            conversations=stores.conversations,
            sandboxes=sandboxes,
            signals=stores.signals,
            shelf=Shelf(
                library=stores.library,
                conversations=stores.conversations,
                sources=sources,
                file_bytes_max=settings.file_bytes_max,
                ledger=stores.ledger,
                charge=charge,
                budget=settings.budget,
            ),
            roster=roster,
            plans=stores.plans,
            admin=AdminDesk(policy=policy, pairings=stores.pairings, log=stores.audit),
        ),
        wake_delivery=wake_delivery,
    )
