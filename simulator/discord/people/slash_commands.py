"""Slash commands as people call them: the registered ones, found by their whole name, with typed options."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from simulator.discord.json_reading import Json, object_of, objects_of, text_of
from simulator.discord.payloads import attachment_json, member_json, user_json
from simulator.discord.people.actions import attach
from simulator.discord.people.interactions import AUTOCOMPLETE, COMMAND, start_interaction, wait_for_answer
from simulator.discord.rules.commands import ATTACHMENT, BOOLEAN, GROUP, INTEGER, NUMBER, SUBCOMMAND, USER
from simulator.discord.world import Channel, User, World
from simulator.view import SelectOption, SentFile

_BOT_DM = 1


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command, or a subcommand with the groups it stands in: `path` are their definitions, outermost first."""

    command: Json
    path: tuple[Json, ...]

    @property
    def name(self) -> str:
        return " ".join(text_of(part, "name") for part in (self.command, *self.path))

    def name_in(self, locale: str) -> str:
        """The name that people with this language see and type."""
        return " ".join(localized(part, "name", locale) for part in (self.command, *self.path))

    @property
    def leaf(self) -> Json:
        return self.path[-1] if self.path else self.command


def localized(item: Json, key: str, locale: str) -> str:
    return text_of(object_of(item, f"{key}_localizations"), locale) or text_of(item, key)


def slash_commands(world: World) -> Iterator[SlashCommand]:
    for commands in world.commands.values():
        for command in commands.values():
            if command.get("type") == 1:
                yield from _leaves(command, ())


def _leaves(command: Json, path: tuple[Json, ...]) -> Iterator[SlashCommand]:
    options = objects_of(path[-1] if path else command, "options")
    inner = [option for option in options if option.get("type") in (SUBCOMMAND, GROUP)]
    if not inner:
        yield SlashCommand(command, path)
    for option in inner:
        yield from _leaves(command, (*path, option))


async def call_command(
    world: World, person: User, place: Channel, name: str, options: dict[str, str], files: dict[str, SentFile]
) -> str:
    """The interaction's id. Raises ValueError for a call that Discord's own box would not send."""
    found = _find(world, place, name)
    resolved: dict[str, Json] = {}
    told = _options(world, place, found.leaf, options, files, resolved)
    payload = _payload(found, told)
    if resolved:
        payload["resolved"] = resolved
    interaction = start_interaction(world, COMMAND, person, place, payload)
    await wait_for_answer(world, interaction)
    return interaction.interaction_id


async def suggest_values(
    world: World, person: User, place: Channel, name: str, options: dict[str, str], focused: str
) -> tuple[SelectOption, ...]:
    """What the menu of the option `focused` offers while a person types; other options may be unfinished."""
    found = _find(world, place, name)
    known = {text_of(option, "name"): option for option in objects_of(found.leaf, "options")}
    if known.get(focused, {}).get("autocomplete") is not True:
        raise ValueError(f"the option {focused!r} suggests nothing")
    told: list[Json] = [
        {"name": key, "type": known[key].get("type"), "value": text} | ({"focused": True} if key == focused else {})
        for key, text in {focused: "", **options}.items()
    ]
    interaction = start_interaction(world, AUTOCOMPLETE, person, place, _payload(found, told))
    await wait_for_answer(world, interaction)
    return tuple(SelectOption(value=text_of(one, "value"), label=text_of(one, "name")) for one in interaction.choices)


def _find(world: World, place: Channel, name: str) -> SlashCommand:
    wanted = name.removeprefix("/").strip()
    offered = [item for item in slash_commands(world) if _is_offered_in(item.command, place)]
    locale = world.settings.locale
    found = next((one for one in offered if wanted in (one.name, one.name_in(locale))), None)
    if found is None:
        raise ValueError(f"the bot has no command /{wanted}")
    if place.recipient is not None and not _is_offered_in_private(found.command):
        raise ValueError(f"/{wanted} exists in the server alone")
    return found


def _payload(found: SlashCommand, told: list[Json]) -> Json:
    for part in reversed(found.path):
        told = [{"name": part.get("name"), "type": part.get("type"), "options": told}]
    payload: Json = {"id": found.command.get("id"), "name": found.command.get("name"), "type": 1, "options": told}
    if found.command.get("guild_id"):
        payload["guild_id"] = found.command.get("guild_id")
    return payload


def _is_offered_in(command: Json, place: Channel) -> bool:
    """A command of one server is in no other; of private places another sentence is told."""
    guild_id = text_of(command, "guild_id")
    return guild_id in ("", place.guild_id) or place.recipient is not None


def _is_offered_in_private(command: Json) -> bool:
    contexts = command.get("contexts")
    if command.get("guild_id") or command.get("dm_permission") is False:
        return False
    return not isinstance(contexts, list) or _BOT_DM in cast(list[object], contexts)


def _options(
    world: World,
    place: Channel,
    leaf: Json,
    options: dict[str, str],
    files: dict[str, SentFile],
    resolved: dict[str, Json],
) -> list[Json]:
    known = {text_of(option, "name"): option for option in objects_of(leaf, "options")}
    if unknown := (set(options) | set(files)) - set(known):
        raise ValueError(f"the command has no option {', '.join(sorted(unknown))}")
    told: list[Json] = []
    for name, option in known.items():
        kind = option.get("type")
        if kind == ATTACHMENT and name in files:
            attachment = attach(world, place, [files[name]])[0]
            body = attachment_json(world, attachment)
            resolved.setdefault("attachments", {})[attachment.attachment_id] = body
            told.append({"name": name, "type": kind, "value": attachment.attachment_id})
        elif kind != ATTACHMENT and options.get(name):
            value = _value(world, place, option, options[name], resolved)
            told.append({"name": name, "type": kind, "value": value})
        elif option.get("required"):
            raise ValueError(f"the option {name!r} is required")
    return told


def _value(world: World, place: Channel, option: Json, text: str, resolved: dict[str, Json]) -> object:
    choices = objects_of(option, "choices")
    if choices:
        for choice in choices:
            if text in (choice.get("name"), str(choice.get("value"))):
                return choice.get("value")
        raise ValueError(f"{text!r} is no choice of {option.get('name')!r}")
    match option.get("type"):
        case int(kind) if kind == INTEGER:
            return int(_number(option, text))
        case int(kind) if kind == NUMBER:
            return _number(option, text)
        case int(kind) if kind == BOOLEAN:
            return text.lower() in ("true", "yes", "1")
        case int(kind) if kind == USER:
            return _user(world, place, text.removeprefix("@"), resolved)
        case _:
            return _fitting(option, text)


def _number(option: Json, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the option {option.get('name')!r} is a number") from None


def _fitting(option: Json, text: str) -> str:
    minimum, maximum = option.get("min_length"), option.get("max_length")
    if isinstance(minimum, int) and len(text) < minimum:
        raise ValueError(f"the option {option.get('name')!r} needs at least {minimum} characters")
    limit = maximum if isinstance(maximum, int) else 6000
    if len(text) > limit:
        raise ValueError(f"the option {option.get('name')!r} holds at most {limit} characters")
    return text


def _user(world: World, place: Channel, name: str, resolved: dict[str, Json]) -> str:
    guild = world.guild_of(place)
    for user in world.everybody(place):
        if name in (user.name, user.user_id):
            resolved.setdefault("users", {})[user.user_id] = user_json(user)
            if guild is not None:
                member = member_json(guild, user, with_user=False)
                resolved.setdefault("members", {})[user.user_id] = member
            return user.user_id
    raise ValueError(f"there is no person named {name!r}")
