"""The subcommands of `/agent` that are for admins; whoever is none is told so."""

from discord import app_commands

from bots.discord.interactions.responses import AnyInteraction, Interactions

NAME_MAX = 64
ENTRIES_MAX = 30
AdminCommand = app_commands.Command[app_commands.Group, ..., None]


def admin_commands(interactions: Interactions) -> tuple[AdminCommand, ...]:
    """`pair`, `unpair`, `who` and `audit`."""

    @app_commands.describe(code="The code that the person was given")
    async def pair(interaction: AnyInteraction, code: app_commands.Range[str, 1, NAME_MAX]) -> None:
        await interactions.command(interaction, "pair", argument=code)

    @app_commands.describe(name="The name or the id of the person")
    async def unpair(
        interaction: AnyInteraction, name: app_commands.Range[str, 1, NAME_MAX]
    ) -> None:
        await interactions.command(interaction, "unpair", argument=name)

    async def who(interaction: AnyInteraction) -> None:
        await interactions.command(interaction, "who")

    @app_commands.describe(count="How many entries")
    async def audit(
        interaction: AnyInteraction, count: app_commands.Range[int, 1, ENTRIES_MAX] = 10
    ) -> None:
        await interactions.command(interaction, "audit", argument=str(count))

    return (
        app_commands.Command(
            name="pair", description="Admins: let somebody write to the agent", callback=pair
        ),
        app_commands.Command(name="unpair", description="Admins: take that back", callback=unpair),
        app_commands.Command(
            name="who", description="Admins: who may talk to the agent", callback=who
        ),
        app_commands.Command(name="audit", description="Admins: who did what here", callback=audit),
    )
