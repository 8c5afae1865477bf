"""Defines the slash commands, and registers them if they have changed."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from importlib import resources
from inspect import Parameter, Signature
from typing import Literal, NamedTuple, cast

import discord
import yaml
from discord import app_commands

from bots.discord.interactions.responses import AnyInteraction, InteractionHandler
from bots.discord.rest.client import RestClient
from bots.inbound.actions import CommandName
from bots.inbound.commands.admin import ENTRIES_SHOWN, ENTRIES_SHOWN_MAX
from core.domain.errors import SurfaceRefused

log = logging.getLogger(__name__)

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
NAME = app_commands.Range[str, 1, 64]
LINE = app_commands.Range[str, 1, 200]
PROMPT = app_commands.Range[str, 1, 6000]
VERSION = app_commands.Range[int, 1, 999_999]
_REQUIRED = Parameter.empty
SlashCommand = app_commands.Command[app_commands.Group, ..., None]


class Option(NamedTuple):
    """An option of a slash command. `kind` is an annotation as discord.py reads it. With `suggests`, values are offered
    while the person types."""

    name: str
    description: str
    kind: object = str
    default: object = _REQUIRED
    suggests: bool = False


class Row(NamedTuple):
    """A slash command. Its words in chat are `prefix` and the options that differ from their defaults, in order."""

    name: CommandName | Literal["run"]
    description: str
    options: tuple[Option, ...] = ()
    prefix: str = ""


RUN = Row(
    "run",
    "Give the agent a task",
    (
        Option("prompt", "What the agent should do", PROMPT),
        Option("agent", "Which agent does it", default=None, suggests=True),
        Option("attachment", "A file to work with", discord.Attachment, None),
        *(
            Option(f"attachment{number}", "Another file", discord.Attachment, None)
            for number in range(2, ATTACHMENTS_MAX + 1)
        ),
    ),
)
AGENT_COMMANDS = (
    RUN,
    Row(
        "use",
        "Choose the agent for this thread",
        (Option("name", "The agent for this thread; leave it empty to list the agents", default=None, suggests=True),),
    ),
    Row(
        "knowledge",
        "Files that the agent knows here",
        (
            Option("action", "What to do", Literal["add", "list", "remove"]),
            Option("file", "The file to add", discord.Attachment, None),
            Option("name", "The name of the file to remove", LINE, None, suggests=True),
        ),
    ),
    Row(
        "plan",
        "The plan that the agent works on here",
        (
            Option("action", "What to do", Literal["show", "add", "remove", "skip", "stop"]),
            Option("step", "The text of the step to add, or the number of an existing step", LINE, None),
        ),
    ),
    Row(
        "follow",
        "Which messages here the agent takes up",
        (
            Option(
                "mode",
                "Read one person, everybody, only mentions, or nothing until the next mention",
                Literal["default", "follow", "mention", "quiet"],
            ),
            Option("place", "This thread, or the whole channel (admins)", Literal["thread", "channel"], "thread"),
        ),
    ),
    Row(
        "agents",
        "The versions of an agent, what changed, and the way back",
        (
            Option(
                "action",
                "What to do; rollback and reset are for admins",
                Literal["versions", "compare", "rollback", "reset"],
            ),
            Option("name", "The agent", NAME, suggests=True),
            Option("version", "The number of a version", VERSION, None),
            Option("other", "The number of the version to compare it with", VERSION, None),
        ),
    ),
    Row(
        "budget",
        "What runs may cost here; admins change it",
        (
            Option(
                "scope",
                "What the limit is for; leave it empty to see all limits",
                Literal["run", "person", "app", "channel", "workspace"],
                None,
            ),
            Option("limit", "US dollars (5), tokens (2000000 tokens), none, or default", NAME, None),
        ),
    ),
    Row(
        "pair", "Admins: let someone write to the agent", (Option("code", "The code that the person was given", NAME),)
    ),
    Row("unpair", "Admins: take that back", (Option("name", "The name or the id of the person", NAME),)),
    Row("who", "Admins: who may talk to the agent"),
    Row(
        "audit",
        "Admins: who did what here",
        (Option("count", "How many entries", app_commands.Range[int, 1, ENTRIES_SHOWN_MAX], ENTRIES_SHOWN),),
    ),
    Row(
        "mcp",
        "Admins: agree to the use of a tool server",
        (Option("server", "The name of the tool server", NAME),),
        prefix="connect",
    ),
)
"""The commands of the group `/agent`."""
COMMANDS = (
    Row("stop", "Stop what the agent is doing in this thread"),
    Row("status", "What the agent is doing in this thread"),
    Row("usage", "Tokens and cost of this thread"),
    Row("new", "Start over: the next message here begins a new conversation"),
    Row("help", "What the agent can do and how to ask for it"),
    Row(
        "files",
        "The files in this thread's workspace",
        (Option("path", "A file to post here, or a folder to list", LINE, None, suggests=True),),
    ),
    Row(
        "forget",
        "Delete this conversation and its workspace",
        (
            Option(
                "what", "This conversation, or what is stored about you", Literal["conversation", "me"], "conversation"
            ),
            Option("sure", "Delete it now, for good", bool, default=False),
        ),
    ),
)


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
    for row in AGENT_COMMANDS:
        agent.add_command(_build_command(interactions, row))
    tree.add_command(agent)
    for row in COMMANDS:
        tree.add_command(_build_command(interactions, row))
    tree.add_command(app_commands.ContextMenu(name="Ask Threadhand", callback=interactions.open_request_form))
    return tree


def _build_command(interactions: InteractionHandler, row: Row) -> SlashCommand:
    async def call(interaction: AnyInteraction, **given: object) -> None:
        files = [value for value in given.values() if isinstance(value, discord.Attachment)]
        if row.name == "run":
            await interactions.on_run_command(
                interaction, str(given["prompt"]), files, cast("str | None", given["agent"])
            )
            return
        values = [given[option.name] for option in row.options if given[option.name] != option.default]
        words = ["yes" if value is True else str(value) for value in values if value not in files]
        argument = " ".join([row.prefix, *words]).strip()
        await interactions.on_command(interaction, row.name, argument=argument, files=files)

    # discord.py reads the options from the signature
    call.__signature__ = Signature(
        [
            Parameter("interaction", Parameter.POSITIONAL_OR_KEYWORD),
            *(
                Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=option.kind)
                for option in row.options
            ),
        ]
    )
    suggestions = {option.name: _suggest(interactions, row.name) for option in row.options if option.suggests}
    described = app_commands.describe(**{option.name: option.description for option in row.options})(call)
    return app_commands.Command(
        name=row.name, description=row.description, callback=app_commands.autocomplete(**suggestions)(described)
    )


def _suggest(
    interactions: InteractionHandler, name: CommandName | Literal["run"]
) -> Callable[[AnyInteraction, str], Coroutine[object, object, list[app_commands.Choice[str]]]]:
    async def suggest(interaction: AnyInteraction, typed: str) -> list[app_commands.Choice[str]]:
        return await interactions.suggest(interaction, "use" if name == "run" else name, typed)

    return suggest


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
