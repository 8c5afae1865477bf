"""Lists the workspaces, channels and users that the tokens reach, and posts the test message."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from bots.settings import Settings
from bots.setup.dialog import Choice
from bots.setup.service_checks import NoReply, ServiceClient
from core.domain.json import json_fields, json_objects

PAGES_MAX = 5
_TEXT_CHANNEL = 0
NO_ANSWER = "{} does not answer. Look whether the message is there, or try again in a minute."
TEST_MESSAGE = "Threadhand is set up. Mention me here, or write to me in a direct message."


@dataclass(frozen=True, slots=True)
class ChatDirectory:
    workspaces: list[Choice] = field(default_factory=list[Choice])
    channels: list[Choice] = field(default_factory=list[Choice])
    people: list[Choice] = field(default_factory=list[Choice])


async def load_chat_directory(client: ServiceClient, settings: Settings) -> ChatDirectory:
    """Returns the workspaces, channels and users that the tokens reach. What a platform does not report is left out."""
    found = ChatDirectory()
    for load in (_load_slack, _load_discord):
        with suppress(NoReply):
            await load(client, settings, found)
    return found


async def _load_slack(client: ServiceClient, settings: Settings, found: ChatDirectory) -> None:
    if settings.slack_bot_token:
        known = await client.call_slack(settings, "auth.test", settings.slack_bot_token.get_secret_value())
        if known.text("team_id"):
            found.workspaces.append(Choice(known.text("team_id"), f"{known.text('team')} (Slack)"))
        kinds = "public_channel,private_channel"
        options = {"types": kinds, "exclude_archived": "true"}
        for row in await _slack_rows(client, settings, "conversations.list", "channels", options):
            note = "" if row.get("is_member") else ", not invited yet"
            found.channels.append(Choice(_text(row, "id"), f"#{_text(row, 'name')} (Slack{note})"))
        for row in await _slack_rows(client, settings, "users.list", "members", {}):
            if not (row.get("deleted") or row.get("is_bot") or row.get("id") == "USLACKBOT"):
                name = _text(row, "real_name") or _text(row, "name")
                found.people.append(Choice(_text(row, "id"), f"{name} (Slack)"))


async def _load_discord(client: ServiceClient, settings: Settings, found: ChatDirectory) -> None:
    if settings.discord_token:
        for guild in (await client.call_discord(settings, "/users/@me/guilds")).rows:
            guild_id, name = _text(guild, "id"), _text(guild, "name")
            found.workspaces.append(Choice(guild_id, f"{name} (Discord)"))
            channels = await client.call_discord(settings, f"/guilds/{guild_id}/channels")
            for row in channels.rows:
                if row.get("type") == _TEXT_CHANNEL:
                    label = f"#{_text(row, 'name')} (Discord, {name})"
                    found.channels.append(Choice(_text(row, "id"), label))
        # listing all members requires an intent that the bot does not need otherwise
        application = (await client.call_discord(settings, "/applications/@me")).body
        owner = json_fields(application.get("owner"))
        if _text(owner, "id") and not application.get("team"):
            label = f"{_text(owner, 'username')} (Discord, owner of the application)"
            found.people.append(Choice(_text(owner, "id"), label))


async def _slack_rows(
    client: ServiceClient, settings: Settings, method: str, key: str, options: Mapping[str, str]
) -> list[Mapping[str, object]]:
    token, cursor = settings.slack_bot_token.get_secret_value(), ""
    rows: list[Mapping[str, object]] = []
    for _ in range(PAGES_MAX):
        form = {**options, "limit": "200", "cursor": cursor}
        reply = await client.call_slack(settings, method, token, **form)
        rows += json_objects(reply.body.get(key))
        cursor = _text(json_fields(reply.body.get("response_metadata")), "next_cursor")
        if not cursor:
            break
    return rows


async def post_test_message(client: ServiceClient, settings: Settings, channel_id: str) -> str:
    """Posts the test message. Returns an empty string, or a sentence that says why it failed and what to do."""
    if channel_id.isdecimal():
        try:
            reply = await client.call_discord(settings, f"/channels/{channel_id}/messages", message=TEST_MESSAGE)
        except NoReply:
            return NO_ANSWER.format("Discord")
        if reply.status == 200:
            return ""
        return f"Discord refuses the message: {reply.text('message') or f'status {reply.status}'}."
    bot_token = settings.slack_bot_token.get_secret_value()
    form = {"channel": channel_id, "text": TEST_MESSAGE}
    try:
        reply = await client.call_slack(settings, "chat.postMessage", bot_token, **form)
    except NoReply:
        return NO_ANSWER.format("Slack")
    if reply.body.get("ok") is True:
        return ""
    error = reply.text("error") or f"status {reply.status}"
    if error == "not_in_channel":
        return "The bot is not in that channel: write `/invite @threadhand` there, and pick it again."
    return f"Slack refuses the message: {error}."


def _text(row: Mapping[str, object], name: str) -> str:
    return str(row.get(name) or "")
