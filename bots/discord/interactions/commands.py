"""Builds the slash commands from the table of commands, and registers them if they have changed."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from importlib import resources
from inspect import Parameter, Signature
from typing import Literal, cast

import discord
import yaml
from discord import app_commands

from bots.discord.gateway.parse import parse_attachment
from bots.discord.interactions.responses import AnyInteraction, InteractionHandler
from bots.discord.rest.client import RestClient
from bots.inbound.actions import INTERNAL_ERROR
from bots.inbound.commands.suggestions import find_agent_values
from bots.inbound.commands.table import COMMANDS, Command, CommandOption
from core.domain.errors import SurfaceRefused
from core.domain.threads import IncomingFile

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
"""The languages of translations.yaml, in the order of its lists."""
_KINDS: Mapping[str, object] = {
    "number": app_commands.Range[int, 1, 999_999],
    "yes": bool,
    "file": discord.Attachment,
    "line": app_commands.Range[str, 1, 200],
    "request": app_commands.Range[str, 1, 6000],
}
"""The types that discord.py uses for the kinds of options."""
_REQUIRED = Parameter.empty
SlashCommand = app_commands.Command[app_commands.Group, ..., None]
RUN = (
    CommandOption("prompt", "What the agent should do", "request", is_required=True),
    CommandOption("agent", "Which agent does it", find=find_agent_values),
    CommandOption("attachment", "A file to work with", "file"),
    *(CommandOption(f"attachment{number}", "Another file", "file") for number in range(2, ATTACHMENTS_MAX + 1)),
)


class CommandTree(app_commands.CommandTree[discord.Client]):
    """The command tree. Logs errors of commands and tells the user that the command failed."""

    async def on_error(self, interaction: AnyInteraction, error: app_commands.AppCommandError, /) -> None:
        if isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch):
            await InteractionHandler.refuse_unknown_control(interaction, str(error))
            return
        log.error("a slash command failed", exc_info=error)
        try:
            if not interaction.response.is_done():
                await interaction.response.send_message(INTERNAL_ERROR, ephemeral=True)
        except discord.HTTPException as failure:
            log.info("discord: the failure of a command could not be shown: %s", failure)


def build_command_tree(client: discord.Client, interactions: InteractionHandler) -> CommandTree:
    tree = CommandTree(
        client,
        allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=True),
        allowed_installs=app_commands.AppInstallationType(guild=True),
        fallback_to_global=True,
    )

    async def run(interaction: AnyInteraction, **given: object) -> None:
        await interactions.on_run_command(
            interaction, str(given["prompt"]), _files(given), cast("str | None", given["agent"])
        )

    agent = app_commands.Group(name="agent", description="Work with the agent")
    agent.add_command(_build_command(interactions, "run", "Give the agent a task", RUN, run, suggested_as="use"))
    tree.add_command(agent)
    for command in COMMANDS.values():
        place = tree if command.is_top_level else agent
        call = _build_callback(interactions, command)
        place.add_command(_build_command(interactions, command.name, command.help, command.options, call))
    tree.add_command(app_commands.ContextMenu(name="Ask Threadhand", callback=interactions.open_request_form))
    return tree


def _build_callback(
    interactions: InteractionHandler, command: Command
) -> Callable[..., Coroutine[object, object, None]]:
    """Returns the callback of a slash command. The callback builds the command's words from the prefix and the options
    that differ from their defaults, in order."""

    async def call(interaction: AnyInteraction, **given: object) -> None:
        files = _files(given)
        values = [given[option.name] for option in command.options if given[option.name] != option.default]
        words = [
            "yes" if value is True else str(value) for value in values if not isinstance(value, discord.Attachment)
        ]
        argument = " ".join([command.slash_prefix, *words]).strip()
        await interactions.on_command(interaction, command.name, argument=argument, files=files)

    return call


def _files(given: Mapping[str, object]) -> tuple[IncomingFile, ...]:
    return tuple(parse_attachment(value) for value in given.values() if isinstance(value, discord.Attachment))


def _build_command(
    interactions: InteractionHandler,
    name: str,
    description: str,
    options: Sequence[CommandOption],
    call: Callable[..., Coroutine[object, object, None]],
    *,
    suggested_as: str = "",
) -> SlashCommand:
    async def suggest(interaction: AnyInteraction, typed: str) -> list[app_commands.Choice[str]]:
        return await interactions.suggest_values(interaction, suggested_as or name, typed)

    # discord.py takes the options from the signature
    call.__signature__ = Signature(
        [
            Parameter("interaction", Parameter.POSITIONAL_OR_KEYWORD),
            *(
                Parameter(
                    option.name,
                    Parameter.KEYWORD_ONLY,
                    default=_REQUIRED if option.is_required else option.default,
                    annotation=Literal[option.kind] if isinstance(option.kind, tuple) else _KINDS[option.kind],
                )
                for option in options
            ),
        ]
    )
    described = app_commands.describe(**{option.name: option.help for option in options})(call)
    suggesting = app_commands.autocomplete(**{option.name: suggest for option in options if option.find})(described)
    return app_commands.Command(name=name, description=description, callback=suggesting)


@cache
def load_translations() -> Mapping[str, Mapping[discord.Locale, str]]:
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
        found = load_translations().get(stem, {}).get(locale)
        return found and found + string.message.removeprefix(stem)


async def sync_commands(tree: CommandTree, rest: RestClient, application_id: int) -> bool:
    """Registers the commands if Discord's list differs or cannot be read. Returns whether it registered them.

    Discord allows few changes a day. Raises SurfaceError."""
    translator = CommandTranslator()
    ours = [await one.get_translated_payload(tree, translator) for one in tree.get_commands()]
    path, application = "/applications/{application_id}/commands", str(application_id)
    try:
        theirs = await rest.call("GET", path, query={"with_localizations": "true"}, application_id=application)
    except SurfaceRefused as refusal:
        log.info("the list of slash commands cannot be read: %s", refusal)
        theirs = None
    if equals_registered_value(ours, theirs):
        return False
    await rest.call("PUT", path, body=ours, application_id=application)
    return True


def equals_registered_value(ours: object, theirs: object) -> bool:
    """Whether Discord's value equals ours, apart from keys that Discord adds. A value that is not set equals an empty
    one."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        mine, other = cast(Mapping[str, object], ours), cast(Mapping[str, object], theirs)
        return all(
            equals_registered_value(value, other.get(key)) for key, value in mine.items() if key not in _IGNORED_KEYS
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        left = sorted(cast(list[object], ours), key=_name)
        right = sorted(cast(list[object], theirs), key=_name)
        return len(left) == len(right) and all(map(equals_registered_value, left, right))
    return ours == theirs or (not ours and not theirs)


_IGNORED_KEYS = frozenset({"dm_permission"})
"""Keys that are not compared. Discord has replaced `dm_permission` by `contexts`, and the value of the former
varies."""


def _name(item: object) -> str:
    return str(cast(Mapping[str, object], item).get("name")) if isinstance(item, Mapping) else str(item)
