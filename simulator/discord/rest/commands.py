"""Application commands: global and of the guild."""

from simulator.discord.json_reading import Json, as_list, as_object, objects_of, snowflake, text_of
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import (
    TOO_MANY_COMMANDS,
    UNKNOWN_APPLICATION,
    UNKNOWN_COMMAND,
    UNKNOWN_GUILD,
    FormErrors,
    Refused,
    invalid,
)
from simulator.discord.rules.commands import check_command
from simulator.discord.world import World

GLOBAL = ""
_COMMANDS_MAX = 100


def list_commands(world: World, call: Call) -> Reply:
    """Translations are listed only on request: `with_localizations=true`."""
    commands = list(_commands(world, call).values())
    if call.query.get("with_localizations") == "true":
        return Reply(body=commands)
    return Reply(body=[_without_localizations(command) for command in commands])


def _without_localizations(item: Json) -> Json:
    kept = {key: value for key, value in item.items() if not key.endswith("_localizations")}
    if options := objects_of(item, "options"):
        kept["options"] = [_without_localizations(option) for option in options]
    return kept


def get_command(world: World, call: Call) -> Reply:
    return Reply(body=_command(world, call))


def create_command(world: World, call: Call) -> Reply:
    """A command with a name that exists is replaced, and keeps its id."""
    commands, body = _commands(world, call), call.fields()
    _check(body)
    old = _same(commands, body)
    if old is None and len(commands) >= _COMMANDS_MAX:
        raise Refused(TOO_MANY_COMMANDS)
    command = _made(world, call, body, old)
    commands[text_of(command, "id")] = command
    world.touch()
    return Reply(body=command, status=201 if old is None else 200)


def replace_commands(world: World, call: Call) -> Reply:
    """Puts the whole list in place of the old one. Nothing is changed where one of them is wrong."""
    commands, items = _commands(world, call), as_list(call.body)
    if items is None:
        raise invalid((), "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    bodies = [as_object(item) or {} for item in items]
    errors = FormErrors()
    for index, body in enumerate(bodies):
        check_command(errors, (index,), body)
    names = [(_kind(body), text_of(body, "name")) for body in bodies]
    for index, name in enumerate(names):
        if name in names[:index]:
            message = "Application command names must be unique"
            errors.add((index,), "APPLICATION_COMMANDS_DUPLICATE_NAME", message)
    errors.raise_if_any()
    if len(bodies) > _COMMANDS_MAX:
        raise Refused(TOO_MANY_COMMANDS)
    made = [_made(world, call, body, _same(commands, body)) for body in bodies]
    commands.clear()
    commands.update({text_of(command, "id"): command for command in made})
    world.touch()
    return Reply(body=made)


def edit_command(world: World, call: Call) -> Reply:
    old = _command(world, call)
    body = {**old, **call.fields()}
    _check(body)
    command = _made(world, call, body, old)
    _commands(world, call)[text_of(old, "id")] = command
    world.touch()
    return Reply(body=command)


def delete_command(world: World, call: Call) -> Reply:
    command = _command(world, call)
    del _commands(world, call)[text_of(command, "id")]
    world.touch()
    return Reply()


def _commands(world: World, call: Call) -> dict[str, Json]:
    if call.arguments["application"] != world.bot.user_id:
        raise Refused(UNKNOWN_APPLICATION)
    guild_id = call.arguments.get("guild", GLOBAL)
    if guild_id != GLOBAL and guild_id not in world.guilds:
        raise Refused(UNKNOWN_GUILD)
    return world.commands.setdefault(guild_id, {})


def _command(world: World, call: Call) -> Json:
    command = _commands(world, call).get(call.arguments["command"])
    if command is None:
        raise Refused(UNKNOWN_COMMAND)
    return command


def _check(body: Json) -> None:
    errors = FormErrors()
    check_command(errors, (), body)
    errors.raise_if_any()


def _kind(body: Json) -> object:
    return body.get("type") or 1


def _same(commands: dict[str, Json], body: Json) -> Json | None:
    wanted = (_kind(body), body.get("name"))
    return next((item for item in commands.values() if (_kind(item), item.get("name")) == wanted), None)


def _made(world: World, call: Call, body: Json, old: Json | None) -> Json:
    command: Json = {
        "name_localizations": None,
        "description_localizations": None,
        "description": "",
        "options": [],
        "default_member_permissions": None,
        "nsfw": False,
        "type": 1,
        **body,
        "id": snowflake() if old is None else old.get("id"),
        "application_id": world.bot.user_id,
        "version": snowflake(),
    }
    if "guild" in call.arguments:
        command["guild_id"] = call.arguments["guild"]
    else:
        command.setdefault("dm_permission", True)
        command["contexts"] = body.get("contexts")
        command["integration_types"] = body.get("integration_types") or [0]
    return command
