"""Defines the slash commands, and registers them if they have changed."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from importlib import resources
from typing import Literal, cast

import discord
import yaml
from discord import app_commands

from bots.discord.interactions.responses import AnyInteraction, InteractionHandler
from bots.discord.rest.client import RestClient
from bots.inbound.actions import CommandName
from core.domain.errors import SurfaceRefused

PERSON_NAME_MAX = 64
AUDIT_ENTRIES_MAX = 30
AGENT_VERSION_MAX = 999_999
AdminCommand = app_commands.Command[app_commands.Group, ..., None]


def build_admin_commands(interactions: InteractionHandler) -> tuple[AdminCommand, ...]:
    """Builds the commands `budget`, `pair`, `unpair`, `who`, `audit` and `mcp`."""

    @app_commands.describe(code="The code that the person was given")
    async def pair(interaction: AnyInteraction, code: app_commands.Range[str, 1, PERSON_NAME_MAX]) -> None:
        await interactions.on_command(interaction, "pair", argument=code)

    @app_commands.describe(name="The name or the id of the person")
    async def unpair(interaction: AnyInteraction, name: app_commands.Range[str, 1, PERSON_NAME_MAX]) -> None:
        await interactions.on_command(interaction, "unpair", argument=name)

    async def who(interaction: AnyInteraction) -> None:
        await interactions.on_command(interaction, "who")

    @app_commands.describe(count="How many entries")
    async def audit(interaction: AnyInteraction, count: app_commands.Range[int, 1, AUDIT_ENTRIES_MAX] = 10) -> None:
        await interactions.on_command(interaction, "audit", argument=str(count))

    @app_commands.describe(server="The name of the tool server")
    async def mcp(interaction: AnyInteraction, server: app_commands.Range[str, 1, PERSON_NAME_MAX]) -> None:
        await interactions.on_command(interaction, "mcp", argument=f"connect {server}")

    @app_commands.describe(
        scope="What the limit is for; leave it empty to see all limits",
        limit="US dollars (5), tokens (2000000 tokens), none, or default",
    )
    async def budget(
        interaction: AnyInteraction,
        scope: Literal["run", "person", "app", "channel", "workspace"] | None = None,
        limit: app_commands.Range[str, 1, PERSON_NAME_MAX] | None = None,
    ) -> None:
        argument = f"{scope or ''} {limit or ''}".strip()
        await interactions.on_command(interaction, "budget", argument=argument)

    return (
        app_commands.Command(name="budget", description="What runs may cost here; admins change it", callback=budget),
        app_commands.Command(name="pair", description="Admins: let someone write to the agent", callback=pair),
        app_commands.Command(name="unpair", description="Admins: take that back", callback=unpair),
        app_commands.Command(name="who", description="Admins: who may talk to the agent", callback=who),
        app_commands.Command(name="audit", description="Admins: who did what here", callback=audit),
        app_commands.Command(name="mcp", description="Admins: agree to the use of a tool server", callback=mcp),
    )


log = logging.getLogger(__name__)

PROMPT_MAX = 6000
NAME_MAX = 200
ATTACHMENTS_MAX = 10
LOCALES = (
    discord.Locale.german,
    discord.Locale.french,
    discord.Locale.spain_spanish,
    discord.Locale.brazil_portuguese,
    discord.Locale.japanese,
    discord.Locale.chinese,
)
"""The languages of translations.yaml, in its order."""
Choices = list[app_commands.Choice[str]]
SIMPLE_COMMANDS: dict[CommandName, str] = {
    "stop": "Stop what the agent is doing in this thread",
    "status": "What the agent is doing in this thread",
    "usage": "Tokens and cost of this thread",
    "new": "Start over: the next message here begins a new conversation",
    "help": "What the agent can do and how to ask for it",
}


class CommandTree(app_commands.CommandTree[discord.Client]):
    """The command tree. Logs errors of commands and tells the user that the command failed."""

    async def on_error(self, interaction: AnyInteraction, error: app_commands.AppCommandError, /) -> None:
        if isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch):
            await InteractionHandler.refuse_unknown(interaction, str(error))
            return
        log.error("a slash command failed", exc_info=error)
        try:
            if not interaction.response.is_done():
                await interaction.response.send_message(
                    "Something broke on our side. Please try again.", ephemeral=True
                )
        except discord.HTTPException as failure:
            log.info("discord: the failure of a command could not be shown: %s", failure)


def build_command_tree(client: discord.Client, interactions: InteractionHandler) -> CommandTree:
    """Builds the tree of all commands."""
    tree = CommandTree(
        client,
        allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=True),
        allowed_installs=app_commands.AppInstallationType(guild=True),
        fallback_to_global=True,
    )
    agent = app_commands.Group(name="agent", description="Work with the agent")
    agent.add_command(_run(interactions))
    agent.add_command(_use(interactions))
    agent.add_command(_knowledge(interactions))
    agent.add_command(_plan(interactions))
    agent.add_command(_follow(interactions))
    agent.add_command(_agents(interactions))
    for command in build_admin_commands(interactions):
        agent.add_command(command)
    tree.add_command(agent)
    for name, description in SIMPLE_COMMANDS.items():
        tree.add_command(_plain(interactions, name, description))
    tree.add_command(_files(interactions))
    tree.add_command(_forget(interactions))
    tree.add_command(_ask_about(interactions))
    return tree


def _ask_about(interactions: InteractionHandler) -> app_commands.ContextMenu:
    """Returns the entry in the menu of every message."""

    async def ask_about(interaction: AnyInteraction, message: discord.Message) -> None:
        await interactions.open_request_form(interaction, message)

    return app_commands.ContextMenu(name="Ask Threadhand", callback=ask_about)


def _run(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    files = [f"attachment{number}" for number in range(2, ATTACHMENTS_MAX + 1)]

    @app_commands.autocomplete(agent=_suggesting(interactions, "use"))
    @app_commands.describe(
        prompt="What the agent should do",
        agent="Which agent does it",
        attachment="A file to work with",
        **dict.fromkeys(files, "Another file"),
    )
    async def run(
        interaction: AnyInteraction,
        prompt: app_commands.Range[str, 1, PROMPT_MAX],
        agent: str | None = None,
        attachment: discord.Attachment | None = None,
        attachment2: discord.Attachment | None = None,
        attachment3: discord.Attachment | None = None,
        attachment4: discord.Attachment | None = None,
        attachment5: discord.Attachment | None = None,
        attachment6: discord.Attachment | None = None,
        attachment7: discord.Attachment | None = None,
        attachment8: discord.Attachment | None = None,
        attachment9: discord.Attachment | None = None,
        attachment10: discord.Attachment | None = None,
    ) -> None:
        first = (attachment, attachment2, attachment3, attachment4, attachment5)
        last = (attachment6, attachment7, attachment8, attachment9, attachment10)
        given = [one for one in (*first, *last) if one is not None]
        await interactions.on_run_command(interaction, prompt, given, agent)

    return app_commands.Command(name="run", description="Give the agent a task", callback=run)


def _use(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.autocomplete(name=_suggesting(interactions, "use"))
    @app_commands.describe(name="The agent for this thread; leave it empty to list the agents")
    async def use(interaction: AnyInteraction, name: str | None = None) -> None:
        await interactions.on_command(interaction, "use", argument=name or "")

    return app_commands.Command(name="use", description="Choose the agent for this thread", callback=use)


def _forget(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.describe(what="This conversation, or what is stored about you", sure="Delete it now, for good")
    async def forget(
        interaction: AnyInteraction, what: Literal["conversation", "me"] = "conversation", sure: bool = False
    ) -> None:
        argument = f"{'me' if what == 'me' else ''} {'yes' if sure else ''}".strip()
        await interactions.on_command(interaction, "forget", argument=argument)

    return app_commands.Command(
        name="forget", description="Delete this conversation and its workspace", callback=forget
    )


def _suggesting(
    interactions: InteractionHandler, name: CommandName
) -> Callable[[AnyInteraction, str], Coroutine[object, object, Choices]]:
    """Returns a callback that offers the values which fit what was typed in the option of the command `name`."""

    async def suggest(interaction: AnyInteraction, typed: str) -> Choices:
        return await interactions.suggest(interaction, name, typed)

    return suggest


def _files(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.autocomplete(path=_suggesting(interactions, "files"))
    @app_commands.describe(path="A file to post here, or a folder to list")
    async def files(interaction: AnyInteraction, path: app_commands.Range[str, 1, NAME_MAX] | None = None) -> None:
        await interactions.on_command(interaction, "files", argument=path or "")

    return app_commands.Command(name="files", description="The files in this thread's workspace", callback=files)


def _knowledge(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.autocomplete(name=_suggesting(interactions, "knowledge"))
    @app_commands.describe(action="What to do", file="The file to add", name="The name of the file to remove")
    async def knowledge(
        interaction: AnyInteraction,
        action: Literal["add", "list", "remove"],
        file: discord.Attachment | None = None,
        name: app_commands.Range[str, 1, NAME_MAX] | None = None,
    ) -> None:
        argument = f"{action} {name or ''}".strip()
        await interactions.on_command(interaction, "knowledge", argument=argument, file=file)

    return app_commands.Command(name="knowledge", description="Files that the agent knows here", callback=knowledge)


def _agents(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.autocomplete(name=_suggesting(interactions, "agents"))
    @app_commands.describe(
        action="What to do; rollback and reset are for admins",
        name="The agent",
        version="The number of a version",
        other="The number of the version to compare it with",
    )
    async def agents(
        interaction: AnyInteraction,
        action: Literal["versions", "compare", "rollback", "reset"],
        name: app_commands.Range[str, 1, PERSON_NAME_MAX],
        version: app_commands.Range[int, 1, AGENT_VERSION_MAX] | None = None,
        other: app_commands.Range[int, 1, AGENT_VERSION_MAX] | None = None,
    ) -> None:
        argument = f"{action} {name} {version or ''} {other or ''}".strip()
        await interactions.on_command(interaction, "agents", argument=argument)

    return app_commands.Command(
        name="agents", description="The versions of an agent, what changed, and the way back", callback=agents
    )


def _plan(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.describe(action="What to do", step="The text of the step to add, or the number of an existing step")
    async def plan(
        interaction: AnyInteraction,
        action: Literal["show", "add", "remove", "skip", "stop"],
        step: app_commands.Range[str, 1, NAME_MAX] | None = None,
    ) -> None:
        await interactions.on_command(interaction, "plan", argument=f"{action} {step or ''}".strip())

    return app_commands.Command(name="plan", description="The plan that the agent works on here", callback=plan)


def _follow(interactions: InteractionHandler) -> "app_commands.Command[app_commands.Group, ..., None]":
    @app_commands.describe(
        mode="Read one person, everybody, only mentions, or nothing until the next mention",
        place="This thread, or the whole channel (admins)",
    )
    async def follow(
        interaction: AnyInteraction,
        mode: Literal["default", "follow", "mention", "quiet"],
        place: Literal["thread", "channel"] = "thread",
    ) -> None:
        argument = f"{mode} channel" if place == "channel" else mode
        await interactions.on_command(interaction, "follow", argument=argument)

    return app_commands.Command(name="follow", description="Which messages here the agent takes up", callback=follow)


def _plain(
    interactions: InteractionHandler, name: CommandName, description: str
) -> "app_commands.Command[app_commands.Group, ..., None]":
    async def call(interaction: AnyInteraction) -> None:
        await interactions.on_command(interaction, name)

    return app_commands.Command(name=name, description=description, callback=call)


@cache
def translations() -> Mapping[str, Mapping[discord.Locale, str]]:
    """Returns the translations of each English name and description, by locale."""
    text = resources.files("bots.discord.interactions").joinpath("translations.yaml").read_text("utf-8")
    listed = cast(Mapping[str, list[str]], yaml.safe_load(text))
    return {english: dict(zip(LOCALES, texts, strict=True)) for english, texts in listed.items()}


class CommandTranslator(app_commands.Translator):
    """Translates names and descriptions. A number at the end of an option's name is kept."""

    async def translate(
        self, string: app_commands.locale_str, locale: discord.Locale, context: app_commands.TranslationContextTypes
    ) -> str | None:
        if context.location is app_commands.TranslationContextLocation.choice_name:
            return None
        stem = string.message.rstrip("0123456789")
        found = translations().get(stem, {}).get(locale)
        return found and found + string.message.removeprefix(stem)


async def sync_commands(tree: CommandTree, rest: RestClient, application_id: int) -> bool:
    """Registers the commands if Discord's list differs or cannot be read, and returns whether it did.

    Discord allows few changes a day. Raises SurfaceError.
    """
    translator = CommandTranslator()
    ours = [await one.get_translated_payload(tree, translator) for one in tree.get_commands()]
    path, application = "/applications/{application_id}/commands", str(application_id)
    try:
        query = {"with_localizations": "true"}
        theirs = await rest.call("GET", path, query=query, application_id=application)
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
        return all(is_equivalent(value, other.get(key)) for key, value in mine.items() if key not in _IGNORED_KEYS)
    if isinstance(ours, list) and isinstance(theirs, list):
        left = sorted(cast(list[object], ours), key=_name)
        right = sorted(cast(list[object], theirs), key=_name)
        return len(left) == len(right) and all(map(is_equivalent, left, right))
    return ours == theirs or (not ours and not theirs)


_IGNORED_KEYS = frozenset({"dm_permission"})
"""Keys that are not compared. Discord replaced `dm_permission` by `contexts`, and its value varies."""


def _name(item: object) -> str:
    return str(cast(Mapping[str, object], item).get("name")) if isinstance(item, Mapping) else str(item)
