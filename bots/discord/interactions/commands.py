"""Defines the slash commands, and registers them if they have changed."""

import logging
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, cast

import discord
from discord import app_commands

from bots.discord.interactions.responses import AnyInteraction, InteractionHandler
from bots.discord.limits import to_single_line
from bots.discord.rest.client import RestClient
from bots.inbound.actions import CommandName
from core.domain.errors import SurfaceRefused

PERSON_NAME_MAX = 64
AUDIT_ENTRIES_MAX = 30
AdminCommand = app_commands.Command[app_commands.Group, ..., None]


def build_admin_commands(interactions: InteractionHandler) -> tuple[AdminCommand, ...]:
    """Builds the commands `pair`, `unpair`, `who` and `audit`."""

    @app_commands.describe(code="The code that the person was given")
    async def pair(
        interaction: AnyInteraction, code: app_commands.Range[str, 1, PERSON_NAME_MAX]
    ) -> None:
        await interactions.on_command(interaction, "pair", argument=code)

    @app_commands.describe(name="The name or the id of the person")
    async def unpair(
        interaction: AnyInteraction, name: app_commands.Range[str, 1, PERSON_NAME_MAX]
    ) -> None:
        await interactions.on_command(interaction, "unpair", argument=name)

    async def who(interaction: AnyInteraction) -> None:
        await interactions.on_command(interaction, "who")

    @app_commands.describe(count="How many entries")
    async def audit(
        interaction: AnyInteraction, count: app_commands.Range[int, 1, AUDIT_ENTRIES_MAX] = 10
    ) -> None:
        await interactions.on_command(interaction, "audit", argument=str(count))

    return (
        app_commands.Command(
            name="pair", description="Admins: let someone write to the agent", callback=pair
        ),
        app_commands.Command(name="unpair", description="Admins: take that back", callback=unpair),
        app_commands.Command(
            name="who", description="Admins: who may talk to the agent", callback=who
        ),
        app_commands.Command(name="audit", description="Admins: who did what here", callback=audit),
    )


log = logging.getLogger(__name__)

PROMPT_MAX = 6000
NAME_MAX = 200
CHOICE_MAX = 100
CHOICES_MAX = 25
Choices = list[app_commands.Choice[str]]
CallbackT = TypeVar("CallbackT", bound=Callable[..., object])
SIMPLE_COMMANDS: dict[CommandName, str] = {
    "stop": "Stop what the agent is doing in this thread",
    "status": "What the agent is doing in this thread",
    "files": "The files in this thread's workspace",
    "usage": "Tokens and cost of this thread",
    "new": "Start over: the next message here begins a new conversation",
    "forget": "Delete this conversation and its workspace",
    "help": "What the agent can do and how to ask for it",
}


class CommandTree(app_commands.CommandTree[discord.Client]):
    """The command tree. Logs errors of commands and tells the user that the command failed."""

    async def on_error(
        self, interaction: AnyInteraction, error: app_commands.AppCommandError, /
    ) -> None:
        log.error("a slash command failed", exc_info=error)
        try:
            if not interaction.response.is_done():
                await interaction.response.send_message(
                    "Something broke on our side.", ephemeral=True
                )
        except discord.HTTPException as failure:
            log.info("discord: the failure of a command could not be shown: %s", failure)


def build_command_tree(
    client: discord.Client,
    interactions: InteractionHandler,
    agents: Mapping[str, str] | None = None,
) -> CommandTree:
    """Builds the tree of all commands.

    `agents` maps agent names to descriptions, for menus.
    """
    choices = [
        app_commands.Choice(name=to_single_line(f"{name}: {said}", CHOICE_MAX), value=name)
        for name, said in (agents or {}).items()
    ]
    tree = CommandTree(
        client,
        allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=True),
        allowed_installs=app_commands.AppInstallationType(guild=True),
        fallback_to_global=True,
    )
    agent = app_commands.Group(name="agent", description="Work with the agent")
    agent.add_command(_run(interactions, choices))
    agent.add_command(_use(interactions, choices))
    agent.add_command(_knowledge(interactions))
    agent.add_command(_plan(interactions))
    for command in build_admin_commands(interactions):
        agent.add_command(command)
    tree.add_command(agent)
    for name, description in SIMPLE_COMMANDS.items():
        tree.add_command(_plain(interactions, name, description))
    return tree


def _run(
    interactions: InteractionHandler, choices: Choices
) -> "app_commands.Command[app_commands.Group, ..., None]":
    @_choosing("agent", choices)
    @app_commands.describe(
        prompt="What the agent should do",
        attachment="A file to work with",
        agent="Which agent does it",
    )
    async def run(
        interaction: AnyInteraction,
        prompt: app_commands.Range[str, 1, PROMPT_MAX],
        attachment: discord.Attachment | None = None,
        agent: str | None = None,
    ) -> None:
        await interactions.on_run_command(interaction, prompt, attachment, agent)

    return app_commands.Command(name="run", description="Give the agent a task", callback=run)


def _use(
    interactions: InteractionHandler, choices: Choices
) -> "app_commands.Command[app_commands.Group, ..., None]":
    @_choosing("name", choices)
    @app_commands.describe(name="The agent for this thread; leave it empty to list the agents")
    async def use(interaction: AnyInteraction, name: str | None = None) -> None:
        await interactions.on_command(interaction, "use", argument=name or "")

    return app_commands.Command(
        name="use", description="Choose the agent for this thread", callback=use
    )


def _choosing(option: str, choices: Choices) -> Callable[[CallbackT], CallbackT]:
    """Adds a menu of choices to the command's option. If they do not all fit, users type the name instead."""
    if not 0 < len(choices) <= CHOICES_MAX:
        return lambda callback: callback
    return app_commands.choices(**{option: choices})


def _knowledge(
    interactions: InteractionHandler,
) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.describe(
        action="What to do", file="The file to add", name="The name of the file to remove"
    )
    async def knowledge(
        interaction: AnyInteraction,
        action: Literal["add", "list", "remove"],
        file: discord.Attachment | None = None,
        name: app_commands.Range[str, 1, NAME_MAX] | None = None,
    ) -> None:
        argument = f"{action} {name or ''}".strip()
        await interactions.on_command(interaction, "knowledge", argument=argument, file=file)

    return app_commands.Command(
        name="knowledge", description="Files that the agent knows here", callback=knowledge
    )


def _plan(
    interactions: InteractionHandler,
) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.describe(
        action="What to do", step="The text of the step to add, or the number of an existing step"
    )
    async def plan(
        interaction: AnyInteraction,
        action: Literal["show", "add", "remove", "skip", "stop"],
        step: app_commands.Range[str, 1, NAME_MAX] | None = None,
    ) -> None:
        await interactions.on_command(
            interaction, "plan", argument=f"{action} {step or ''}".strip()
        )

    return app_commands.Command(
        name="plan", description="The plan that the agent works on here", callback=plan
    )


def _plain(
    interactions: InteractionHandler, name: CommandName, description: str
) -> "app_commands.Command[app_commands.Group, ..., None]":
    async def call(interaction: AnyInteraction) -> None:
        await interactions.on_command(interaction, name)

    return app_commands.Command(name=name, description=description, callback=call)


async def sync_commands(tree: CommandTree, rest: RestClient, application_id: int) -> bool:
    """Registers the commands if Discord's list differs or cannot be read, and returns whether it did.

    Discord allows few changes a day. Raises SurfaceError.
    """
    ours = [command.to_dict(tree) for command in tree.get_commands()]
    path, application = "/applications/{application_id}/commands", str(application_id)
    try:
        theirs = await rest.call("GET", path, application_id=application)
    except SurfaceRefused as refusal:
        log.info("the list of slash commands cannot be read: %s", refusal)
        theirs = None
    if is_equivalent(ours, theirs):
        return False
    await rest.call("PUT", path, body=ours, application_id=application)
    return True


def is_equivalent(ours: object, theirs: object) -> bool:
    """Whether Discord's value equals ours, ignoring keys that it adds. Unset equals empty."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        mine, other = cast(Mapping[str, object], ours), cast(Mapping[str, object], theirs)
        return all(
            is_equivalent(value, other.get(key))
            for key, value in mine.items()
            if key not in _IGNORED_KEYS
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        left = sorted(cast(list[object], ours), key=_name)
        right = sorted(cast(list[object], theirs), key=_name)
        return len(left) == len(right) and all(map(is_equivalent, left, right))
    return ours == theirs or (not ours and not theirs)


_IGNORED_KEYS = frozenset({"dm_permission"})
"""Keys that are not compared. Discord replaced `dm_permission` by `contexts`, and its value varies."""


def _name(item: object) -> str:
    return (
        str(cast(Mapping[str, object], item).get("name"))
        if isinstance(item, Mapping)
        else str(item)
    )
