"""The reception as the settings want it, over the program's stores."""

from collections.abc import Callable, Mapping

from bots.audit import AdminDesk
from bots.commands import CommandDesk
from bots.policy import Policy
from bots.reception import Reception
from bots.settings import Settings
from bots.shelf import Shelf
from bots.warehouse import Stores
from core.agents.roster import Roster
from core.ports import FileSource, SandboxProvider


def policy_of(settings: Settings) -> Policy:
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


def new_reception(
    settings: Settings,
    stores: Stores,
    *,
    sandboxes: SandboxProvider | None,
    sources: Mapping[str, FileSource],
    roster: Roster,
    wake_delivery: Callable[[str], None],
) -> Reception:
    """`sources` may be filled later, by platform; `roster` are the agents that can be asked for."""
    policy = policy_of(settings)
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
            ),
            roster=roster,
            plans=stores.plans,
            admin=AdminDesk(policy=policy, pairings=stores.pairings, log=stores.audit),
        ),
        wake_delivery=wake_delivery,
    )
