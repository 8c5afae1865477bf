"""What the simulated Discord and the bot say to each other, by the types of the npm package discord-api-types."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.simulator.witnesses.recorded_payloads import SECONDS_MAX, check_recorded
from tests.support.published_types import PublishedTypes, build_schemas, without_nulls

pytestmark = pytest.mark.timeout(600)

EVENTS = [
    "READY",
    "GUILD_CREATE",
    "GUILD_DELETE",
    "CHANNEL_CREATE",
    "CHANNEL_UPDATE",
    "CHANNEL_DELETE",
    "THREAD_CREATE",
    "THREAD_UPDATE",
    "THREAD_DELETE",
    "THREAD_MEMBER_UPDATE",
    "THREAD_MEMBERS_UPDATE",
    "MESSAGE_CREATE",
    "MESSAGE_UPDATE",
    "MESSAGE_DELETE",
    "MESSAGE_DELETE_BULK",
    "MESSAGE_REACTION_ADD",
    "MESSAGE_REACTION_REMOVE",
    "INTERACTION_CREATE",
    "GUILD_MEMBERS_CHUNK",
    "GUILD_MEMBER_ADD",
    "GUILD_MEMBER_UPDATE",
    "TYPING_START",
]
_MESSAGE = "/channels/{channel}/messages/{message}"
_WEBHOOK = "/webhooks/{application}/{token}"
_COMMANDS = "/applications/{application}/commands"
_GUILD_COMMANDS = "/applications/{application}/guilds/{guild}/commands"
_ROUTES = (
    # methods, the path, and how the types of its bodies and answers are named
    ("GET", "/gateway", "Gateway"),
    ("GET", "/gateway/bot", "GatewayBot"),
    ("GET", "/users/@me", "CurrentUser"),
    ("GET", "/users/@me/guilds", "CurrentUserGuilds"),
    ("POST", "/users/@me/channels", "CurrentUserCreateDMChannel"),
    ("GET", "/users/{user}", "User"),
    ("GET", "/applications/@me", "CurrentApplication"),
    ("GET", "/oauth2/applications/@me", "OAuth2CurrentApplication"),
    ("GET", "/guilds/{guild}", "Guild"),
    ("GET", "/guilds/{guild}/channels", "GuildChannels"),
    ("GET", "/guilds/{guild}/roles", "GuildRoles"),
    ("GET", "/guilds/{guild}/members/{user}", "GuildMember"),
    ("GET", "/guilds/{guild}/threads/active", "GuildThreads"),
    ("GET DELETE PATCH", "/channels/{channel}", "Channel"),
    ("GET", "/channels/{channel}/messages", "ChannelMessages"),
    ("POST", "/channels/{channel}/messages", "ChannelMessage"),
    ("POST", "/channels/{channel}/messages/bulk-delete", "ChannelMessagesBulkDelete"),
    ("GET PATCH", _MESSAGE, "ChannelMessage"),
    ("GET", f"{_MESSAGE}/reactions/{{emoji}}", "ChannelMessageReactionUsers"),
    ("POST", f"{_MESSAGE}/threads", "ChannelMessagesThreads"),
    ("POST", "/channels/{channel}/threads", "ChannelThreads"),
    ("GET", "/channels/{channel}/threads/archived/public", "ChannelThreadsArchivedPublic"),
    ("GET", "/channels/{channel}/thread-members", "ChannelThreadMembers"),
    ("GET", "/channels/{channel}/thread-members/{user}", "ChannelThreadMember"),
    ("GET PUT POST", _COMMANDS, "ApplicationCommands"),
    ("GET PATCH", f"{_COMMANDS}/{{command}}", "ApplicationCommand"),
    ("GET PUT POST", _GUILD_COMMANDS, "ApplicationGuildCommands"),
    ("GET PATCH", f"{_GUILD_COMMANDS}/{{command}}", "ApplicationGuildCommand"),
    ("POST", "/interactions/{interaction}/{token}/callback", "InteractionCallback"),
    ("POST", _WEBHOOK, "InteractionFollowup"),
    ("GET PATCH", f"{_WEBHOOK}/messages/{{message}}", "InteractionFollowup"),
)
_NAMED_OTHERWISE = {
    "GET /applications/@me": ("", "RESTGetCurrentApplicationResult"),
    "POST /channels/{channel}/messages/bulk-delete": ("RESTPostAPIChannelMessagesBulkDeleteJSONBody", ""),
    "POST /interactions/{interaction}/{token}/callback": (
        "RESTPostAPIInteractionCallbackJSONBody",
        "RESTPostAPIInteractionCallbackWithResponseResult",
    ),
}


def _types_of(method: str, name: str) -> tuple[str, str]:
    start = f"REST{method.capitalize()}API{name}"
    return f"{start}JSONBody" if method in ("POST", "PUT", "PATCH") else "", f"{start}Result"


ROUTES = {
    f"{method} {path}": _types_of(method, name) for methods, path, name in _ROUTES for method in methods.split()
} | _NAMED_OTHERWISE
"""A call: the types of its body and of its answer."""
FRAMES_TO_THE_BOT = {7: "GatewayReconnect", 9: "GatewayInvalidSession", 10: "GatewayHello", 11: "GatewayHeartbeatAck"}
FRAMES_OF_THE_BOT = {
    1: "GatewayHeartbeat",
    2: "GatewayIdentify",
    3: "GatewayUpdatePresence",
    6: "GatewayResume",
    8: "GatewayRequestGuildMembers",
}
OTHERS = {"refusal": "RESTError", "rate limit": "RESTRateLimit"}
SHAPES_MIN = 278


@pytest.fixture(scope="module")
def published(packages: Path) -> PublishedTypes:
    return build_discord_types(packages)


def build_discord_types(folder: Path) -> PublishedTypes:
    types = {name: f"T.Gateway{_in_capitals(name)}DispatchData" for name in EVENTS}
    for call, (body, answer) in ROUTES.items():
        types |= {f"{call}: body": f"T.{body}"} if body else {}
        types |= {f"{call}: answer": f"T.{answer}"} if answer else {}
    for frames in (FRAMES_TO_THE_BOT, FRAMES_OF_THE_BOT):
        types |= {name: f"T.{name}" for name in frames.values()}
    types |= {kind: f"T.{name}" for kind, name in OTHERS.items()}
    return build_schemas(folder, {"T": "discord-api-types/v10"}, types)


def _in_capitals(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def check_payload(published: PublishedTypes, kind: str, payload: Any) -> None:
    """Checks a payload by its kind, as the recorder names it. A kind without a known type is refused."""
    by_library = (with_ids_as_text, without_nulls)
    if kind == "frame of the bot":
        published.check(FRAMES_OF_THE_BOT.get(payload["op"], kind), payload, as_well=by_library)
    elif kind == "frame to the bot" and payload["op"]:
        published.check(FRAMES_TO_THE_BOT.get(payload["op"], kind), payload)
    elif kind.endswith(": body"):
        published.check(kind, payload, as_well=by_library)
    elif kind != "frame to the bot":
        published.check(kind, payload, as_well=(with_optional_fields,))
    elif payload["t"] != "RESUMED":  # its type has no content
        published.check(payload["t"], payload["d"], as_well=(with_optional_fields,))


def with_ids_as_text(value: object) -> object:
    """discord.py sends some ids as numbers. Discord takes them, and null for optional fields, which it also sends."""
    if isinstance(value, list):
        return [with_ids_as_text(one) for one in value]
    if isinstance(value, dict):
        return {
            name: str(one) if name.endswith("_id") and isinstance(one, int) else with_ids_as_text(one)
            for name, one in value.items()
        }
    return value


def with_optional_fields(payload: object) -> object:
    """The payload with fields that the types require and the documentation calls optional: the name of a channel of
    direct messages (resources/channel), the channel of an interaction (interactions/receiving-and-responding)."""
    assert isinstance(payload, dict)
    if payload.get("type") == 1 and "recipients" in payload:
        return {"name": None, **payload}
    if "token" in payload and "channel_id" in payload:
        return {"channel": {"id": payload["channel_id"], "type": 0}, **payload}
    return payload


@pytest.mark.timeout(SECONDS_MAX)
def test_discord_and_all_tests_say_what_the_types_allow(published: PublishedTypes, tmp_path: Path) -> None:
    check_recorded(tmp_path, "discord", partial(check_payload, published), shapes_min=SHAPES_MIN)
    assert published.report() == ""
