"""Which function answers which call."""

from dataclasses import dataclass
from urllib.parse import unquote

from simulator.discord.rest import account, channels, commands, interactions, messages, reactions, threads, webhooks
from simulator.discord.rest.call import Act
from simulator.discord.rest.errors import METHOD_NOT_ALLOWED, NOT_FOUND, Refused
from simulator.discord.rest.rate_limits import Limit

_POST = Limit("message-create", 5, 5.0)
_EDIT = Limit("message-edit", 5, 5.0)
_REACT = Limit("reaction", 1, 0.25)
_READ = Limit("read", 20, 5.0)
_FOLLOW = Limit("webhook", 5, 2.0)
_COMMANDS = Limit("commands", 10, 10.0)
_OTHER = Limit("other", 10, 5.0)

_BRACELESS = str.maketrans("/", "-", "{}@")

_MESSAGE = "/channels/{channel}/messages/{message}"
_EMOJI = f"{_MESSAGE}/reactions/{{emoji}}"
_MEMBERS = "/channels/{channel}/thread-members"
_GLOBAL = "/applications/{application}/commands"
_GUILD = "/applications/{application}/guilds/{guild}/commands"
_WEBHOOK = "/webhooks/{application}/{token}"


@dataclass(frozen=True, slots=True)
class Route:
    """`limit` None: not limited. Calls that carry an interaction's token need no authorisation."""

    method: str
    template: str
    act: Act
    limit: Limit | None = _OTHER
    is_open: bool = False

    def __post_init__(self) -> None:
        """Routes without a limit of their own do not share one."""
        if self.limit is _OTHER:
            name = f"{self.method.lower()}{self.template.translate(_BRACELESS)}"
            object.__setattr__(self, "limit", Limit(name, _OTHER.calls, _OTHER.seconds))


ROUTES = (
    Route("GET", "/gateway", account.gateway, None, is_open=True),
    Route("GET", "/gateway/bot", account.gateway_for_bots, None),
    Route("GET", "/users/@me", account.me, None),
    Route("GET", "/users/@me/guilds", account.guilds),
    Route("POST", "/users/@me/channels", account.open_direct_channel),
    Route("GET", "/users/{user}", account.user, _READ),
    Route("GET", "/applications/@me", account.application, None),
    Route("GET", "/oauth2/applications/@me", account.application, None),
    Route("GET", "/guilds/{guild}", account.guild, _READ),
    Route("GET", "/guilds/{guild}/channels", account.guild_channels, _READ),
    Route("GET", "/guilds/{guild}/roles", account.guild_roles, _READ),
    Route("GET", "/guilds/{guild}/members/{user}", account.guild_member, _READ),
    Route("GET", "/guilds/{guild}/threads/active", threads.active_threads, _READ),
    Route("GET", "/channels/{channel}", channels.get_channel, _READ),
    Route("PATCH", "/channels/{channel}", channels.edit_channel),
    Route("DELETE", "/channels/{channel}", channels.delete_channel),
    Route("POST", "/channels/{channel}/typing", reactions.type_in, Limit("typing", 5, 5.0)),
    Route("GET", "/channels/{channel}/messages", messages.list_messages, _READ),
    Route("POST", "/channels/{channel}/messages", messages.create_message, _POST),
    Route("POST", "/channels/{channel}/messages/bulk-delete", messages.bulk_delete),
    Route("GET", _MESSAGE, messages.get_message, _READ),
    Route("PATCH", _MESSAGE, messages.edit_message, _EDIT),
    Route("DELETE", _MESSAGE, messages.delete_message, Limit("message-delete", 5, 1.0)),
    Route("PUT", f"{_EMOJI}/@me", reactions.add_reaction, _REACT),
    Route("DELETE", f"{_EMOJI}/@me", reactions.remove_reaction, _REACT),
    Route("DELETE", f"{_EMOJI}/{{user}}", reactions.remove_reaction, _REACT),
    Route("GET", _EMOJI, reactions.list_reactions, _READ),
    Route("DELETE", f"{_MESSAGE}/reactions", reactions.remove_all_reactions, _REACT),
    Route("POST", f"{_MESSAGE}/threads", threads.start_from_message),
    Route("POST", "/channels/{channel}/threads", threads.start_without_message),
    Route("GET", "/channels/{channel}/threads/archived/public", threads.archived_threads, _READ),
    Route("GET", _MEMBERS, threads.list_members, _READ),
    Route("PUT", f"{_MEMBERS}/@me", threads.join),
    Route("DELETE", f"{_MEMBERS}/@me", threads.leave),
    Route("GET", f"{_MEMBERS}/{{user}}", threads.get_member, _READ),
    Route("PUT", f"{_MEMBERS}/{{user}}", threads.join),
    Route("DELETE", f"{_MEMBERS}/{{user}}", threads.leave),
    Route("GET", _GLOBAL, commands.list_commands, _COMMANDS),
    Route("POST", _GLOBAL, commands.create_command, _COMMANDS),
    Route("PUT", _GLOBAL, commands.replace_commands, _COMMANDS),
    Route("GET", f"{_GLOBAL}/{{command}}", commands.get_command, _COMMANDS),
    Route("PATCH", f"{_GLOBAL}/{{command}}", commands.edit_command, _COMMANDS),
    Route("DELETE", f"{_GLOBAL}/{{command}}", commands.delete_command, _COMMANDS),
    Route("GET", _GUILD, commands.list_commands, _COMMANDS),
    Route("POST", _GUILD, commands.create_command, _COMMANDS),
    Route("PUT", _GUILD, commands.replace_commands, _COMMANDS),
    Route("GET", f"{_GUILD}/{{command}}", commands.get_command, _COMMANDS),
    Route("PATCH", f"{_GUILD}/{{command}}", commands.edit_command, _COMMANDS),
    Route("DELETE", f"{_GUILD}/{{command}}", commands.delete_command, _COMMANDS),
    Route("POST", "/interactions/{interaction}/{token}/callback", interactions.answer, None, True),
    Route("POST", _WEBHOOK, webhooks.follow_up, _FOLLOW, is_open=True),
    Route("GET", f"{_WEBHOOK}/messages/{{message}}", webhooks.get_message, _FOLLOW, True),
    Route("PATCH", f"{_WEBHOOK}/messages/{{message}}", webhooks.edit_message, _FOLLOW, True),
    Route("DELETE", f"{_WEBHOOK}/messages/{{message}}", webhooks.delete_message, _FOLLOW, True),
)

_BY_LENGTH: dict[int, list[tuple[Route, tuple[str, ...]]]] = {}
for _route in ROUTES:
    _parts = tuple(_route.template.split("/"))
    _BY_LENGTH.setdefault(len(_parts), []).append((_route, _parts))


def find_route(method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
    """The route and the open parts of the path, decoded. Raises Refused with 404 or 405."""
    parts = raw_path.split("/")
    is_known = False
    for route, template in _BY_LENGTH.get(len(parts), ()):
        arguments = _matched(template, parts)
        if arguments is None:
            continue
        if route.method == method:
            return route, arguments
        is_known = True
    raise Refused(METHOD_NOT_ALLOWED if is_known else NOT_FOUND)


def _matched(template: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    arguments: dict[str, str] = {}
    for wanted, part in zip(template, parts, strict=True):
        if wanted.startswith("{"):
            arguments[wanted[1:-1]] = unquote(part)
        elif wanted != part and wanted != unquote(part):
            return None
    return arguments
