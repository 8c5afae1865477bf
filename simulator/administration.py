"""What apps, moderators and admins do, and the rarer things that people do: more actions for the control API.

Each action is a model of its fields. A platform that lacks the action refuses it with a sentence.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from simulator.discord.rules import permissions
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator

PERMISSIONS: Mapping[str, int] = {
    "ADD_REACTIONS": permissions.ADD_REACTIONS,
    "VIEW_CHANNEL": permissions.VIEW,
    "SEND_MESSAGES": permissions.SEND,
    "SEND_MESSAGES_IN_THREADS": permissions.SEND_IN_THREADS,
    "ATTACH_FILES": permissions.ATTACH,
    "READ_MESSAGE_HISTORY": permissions.READ_HISTORY,
    "MANAGE_CHANNELS": permissions.MANAGE_CHANNELS,
    "MANAGE_MESSAGES": permissions.MANAGE_MESSAGES,
    "MANAGE_THREADS": permissions.MANAGE_THREADS,
    "CREATE_PUBLIC_THREADS": permissions.CREATE_THREADS,
    "CREATE_PRIVATE_THREADS": permissions.CREATE_PRIVATE_THREADS,
}
"""Discord's permissions by the names in its documentation (docs.discord.com, Permissions)."""

Json = dict[str, object]


class Fields(BaseModel):
    """The fields of an action."""

    model_config = ConfigDict(extra="forbid")


class AppPost(Fields):
    """Another app writes: with `attachments` or `blocks` in Slack, with `embeds` in Discord. In Slack, an app with a
    bot user has a `user_id`, and a webhook has none."""

    channel_id: str
    thread_id: str | None = None
    text: str = Field(default="", max_length=40_000)
    app_name: str = "Alerts"
    attachments: list[Json] = Field(default_factory=list[Json])
    blocks: list[Json] = Field(default_factory=list[Json])
    embeds: list[Json] = Field(default_factory=list[Json])
    user_id: str = ""


class Forward(Fields):
    """A person forwards a message of `from_channel_id`, by default of the same channel."""

    person: str
    channel_id: str
    message_id: str
    from_channel_id: str = ""
    thread_id: str | None = None
    text: str = Field(default="", max_length=40_000)


class PasteTable(Fields):
    """A person pastes cells of a spreadsheet into Slack's box."""

    person: str
    channel_id: str
    rows: list[list[str]]
    text: str = Field(default="", max_length=40_000)
    thread_id: str | None = None


class Reply(Fields):
    """A person answers one message of a Discord channel or thread."""

    person: str
    channel_id: str
    message_id: str
    text: str = Field(max_length=40_000)
    thread_id: str | None = None


class OpenThread(Fields):
    """A person opens a Discord thread, from a message if there is one."""

    person: str
    channel_id: str
    name: str
    message_id: str = ""


class Place(Fields):
    """A channel, or a Discord thread in it."""

    channel_id: str
    thread_id: str = ""


class Lock(Place):
    """A moderator locks a Discord thread, and closes it too if `is_archived`."""

    is_archived: bool = False


class Archive(Place):
    """A Slack channel or a Discord thread is archived, or taken out of the archive."""

    is_archived: bool = True


class Remove(Place):
    """The channel or the thread is deleted."""


class Purge(Place):
    """A moderator of Discord deletes several messages at once."""

    message_ids: list[str]


class Permissions(Place):
    """What everybody may do in the channel. Slack has only `is_read_only`, Discord only `denied` and `granted`."""

    denied: list[str] = Field(default_factory=list[str])
    granted: list[str] = Field(default_factory=list[str])
    is_read_only: bool = False


class Membership(Place):
    """Whether the bot is in a Slack channel."""

    is_member: bool


class RevokeToken(Fields):
    """The bot's token stops to work. Discord closes the connection, and the bot's new token is the answer's id."""


KINDS: Mapping[str, type[Fields]] = {
    "post_as_app": AppPost,
    "forward": Forward,
    "paste_table": PasteTable,
    "reply": Reply,
    "open_thread": OpenThread,
    "lock": Lock,
    "archive": Archive,
    "remove": Remove,
    "purge": Purge,
    "permissions": Permissions,
    "membership": Membership,
    "revoke_token": RevokeToken,
}


async def administer(platform: SlackSimulator | DiscordSimulator, action: Fields) -> str:
    """Returns the id of what was made, or an empty string. Raises ValueError with a sentence if it makes no sense."""
    if isinstance(platform, SlackSimulator):
        return await _administer_slack(platform, action)
    return await _administer_discord(platform, action)


async def _administer_slack(slack: SlackSimulator, action: Fields) -> str:
    match action:
        case AppPost(embeds=[]):
            return await slack.post_as_app(
                action.channel_id,
                action.text,
                name=action.app_name,
                attachments=action.attachments,
                blocks=action.blocks,
                thread_id=action.thread_id,
                user_id=action.user_id,
            )
        case Forward():
            return await slack.forward(
                action.person,
                action.channel_id,
                action.message_id,
                action.text,
                thread_id=action.thread_id,
                from_channel_id=action.from_channel_id,
            )
        case PasteTable():
            place = (action.person, action.channel_id)
            return await slack.paste_table(*place, action.rows, action.text, thread_id=action.thread_id)
        case Archive(thread_id=""):
            slack.set_archived(action.channel_id, is_archived=action.is_archived)
        case Remove(thread_id=""):
            slack.remove_channel(action.channel_id)
        case Permissions(denied=[], granted=[]):
            slack.set_read_only(action.channel_id, is_read_only=action.is_read_only)
        case Membership(is_member=True):
            await slack.invite(action.channel_id)
        case Membership():
            slack.expel(action.channel_id)
        case RevokeToken():
            slack.oauth.uninstall(slack.workspace.team_id)
        case _:
            raise ValueError("Slack has no such action with these fields.")
    return ""


async def _administer_discord(discord: DiscordSimulator, action: Fields) -> str:
    match action:
        case AppPost(attachments=[], blocks=[], user_id=""):
            return await discord.post_as_app(
                action.channel_id, action.text, name=action.app_name, embeds=action.embeds, thread_id=action.thread_id
            )
        case Forward(text=""):
            source = action.from_channel_id or action.channel_id
            place = (action.channel_id, action.thread_id)
            return discord.forward(action.person, *place, source, action.message_id)
        case Reply():
            return await discord.say(
                action.person, action.channel_id, action.text, thread_id=action.thread_id, reply_to=action.message_id
            )
        case OpenThread(message_id=""):
            return await discord.open_thread(action.person, action.channel_id, action.name)
        case OpenThread():
            place = (action.person, action.channel_id, action.message_id)
            return await discord.start_thread(*place, action.name)
        case Permissions(is_read_only=False):
            denied, granted = _bits(action.denied), _bits(action.granted)
            discord.allow(action.channel_id, denied=denied, granted=granted)
        case RevokeToken():
            return await discord.revoke_token()
        case Place():
            _change_discord_place(discord, action)
        case _:
            raise ValueError("Discord has no such action with these fields.")
    return ""


def _change_discord_place(discord: DiscordSimulator, action: Place) -> None:
    place = discord.place(action.channel_id, action.thread_id or None).channel_id
    match action:
        case Lock():
            discord.lock_thread(place, is_archived=action.is_archived)
        case Archive():
            discord.archive_thread(place, is_archived=action.is_archived)
        case Remove():
            discord.delete_channel(place)
        case Purge():
            discord.delete_messages(place, action.message_ids)
        case _:
            raise ValueError("Discord has no such action with these fields.")


def _bits(names: list[str]) -> int:
    unknown = [name for name in names if name not in PERMISSIONS]
    if unknown:
        raise ValueError(f"There is no permission {unknown[0]}; use {', '.join(PERMISSIONS)}.")
    return sum(PERMISSIONS[name] for name in set(names))
