"""What people do in a simulated workspace: write, edit, delete, react, and press what the app shows them."""

import secrets
import time
from collections.abc import Sequence

from simulator.faults import Faults
from simulator.slack.emoji import is_emoji
from simulator.slack.events import message_events
from simulator.slack.events.delivery import Outbox
from simulator.slack.events.payloads import Payload
from simulator.slack.people.typed_text import encode, rich_text
from simulator.slack.shapes import bot_form, message_form
from simulator.slack.world import Channel, Member, Message, StoredFile, Workspace
from simulator.view import SentFile


class People:
    """The people of one workspace. They and the channels may be named by id or by name."""

    def __init__(self, workspace: Workspace, outbox: Outbox, faults: Faults) -> None:
        self.workspace = workspace
        self.outbox = outbox
        self.faults = faults
        self._said = 0

    def member(self, person: str) -> Member:
        """Raises ValueError for somebody who is not here, or is the app."""
        member = self.workspace.names.get(person) or self.workspace.members.get(person)
        if member is None or member.is_bot:
            raise ValueError(f"there is nobody called {person}")
        return member

    def channel(self, channel_id: str) -> Channel:
        """Raises ValueError for a channel that does not exist."""
        name = channel_id.removeprefix("#")
        found = self.workspace.channels.get(channel_id) or self.workspace.channel_names.get(name)
        if found is None:
            raise ValueError(f"there is no channel {channel_id}")
        return found

    def _entered(self, member: Member, channel_id: str) -> Channel:
        channel = self.channel(channel_id)
        if member.user_id not in channel.members:
            raise ValueError(f"{member.name} is not in {channel.name}")
        return channel

    def message(self, channel: Channel, message_id: str) -> Message:
        """Raises ValueError for a message that is not there (any more)."""
        message = channel.messages.get(message_id)
        if message is None or message.is_tombstone:
            raise ValueError(f"there is no message {message_id} in {channel.name}")
        return message

    async def say(
        self, person: str, channel_id: str, text: str, *, thread_id: str | None = None, files: Sequence[SentFile] = ()
    ) -> str:
        """See SimulatedPlatform.say."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        if not text and not files:
            raise ValueError("a message needs a text or a file")
        if channel.is_archived or channel.is_read_only:
            raise ValueError(f"nobody can write in {channel.name}")
        if thread_id is not None:
            root = channel.messages.get(thread_id)
            if root is None or root.is_reply or root.visible_to is not None:
                raise ValueError(f"there is no thread {thread_id} in {channel.name}")
        spoken = encode(self.workspace, text)
        message = Message(
            ts=self.workspace.new_ts(),
            channel_id=channel.channel_id,
            user_id=member.user_id,
            text=spoken,
            blocks=rich_text(self.workspace, spoken) if spoken else [],
            thread_ts=thread_id,
            subtype="file_share" if files else "",
        )
        for file in files:
            stored = self._store(member, file)
            stored.shares.setdefault(channel.channel_id, []).append(message.ts)
            message.file_ids.append(stored.file_id)
        self.workspace.add_message(message)
        self._tell_said(channel, message)
        return message.ts

    async def post_as_app(
        self,
        channel_id: str,
        text: str = "",
        *,
        name: str = "Alerts",
        app_id: str = "A0ALERTS",
        attachments: Sequence[Payload] = (),
        blocks: Sequence[Payload] = (),
        thread_id: str | None = None,
        user_id: str = "",
    ) -> str:
        """Another app writes. Incoming webhooks and workflows have a `bot_id` and no user (subtype `bot_message`), apps
        with a bot user have one (docs.slack.dev/reference/events/message/bot_message)."""
        channel = self.channel(channel_id)
        app: Payload = {"bot_id": f"B{app_id[1:]}", "app_id": app_id, "username": name}
        if user_id:
            own = {"id": app["bot_id"], "app_id": app_id, "name": name, "user_id": user_id}
            profile = bot_form(self.workspace) | own
            app = {"bot_id": app["bot_id"], "app_id": app_id, "user": user_id, "bot_profile": profile}
        message = Message(
            ts=self.workspace.new_ts(),
            channel_id=channel.channel_id,
            user_id=user_id or str(app["bot_id"]),
            text=encode(self.workspace, text),
            attachments=list(attachments),
            blocks=list(blocks),
            thread_ts=thread_id,
            subtype="" if user_id else "bot_message",
            overrides={"username": name},
            app=app,
        )
        self.workspace.add_message(message)
        self._tell_said(channel, message)
        return message.ts

    async def forward(
        self,
        person: str,
        channel_id: str,
        message_id: str,
        text: str,
        *,
        thread_id: str | None = None,
        from_channel_id: str = "",
    ) -> str:
        """A person forwards a message with words of their own: it is an attachment that is shared, with its files."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        source = self._entered(member, from_channel_id) if from_channel_id else channel
        shared = self.message(source, message_id)
        form = message_form(self.workspace, shared)
        attachment: Payload = {
            "is_msg_unfurl": True,
            "is_share": True,
            "author_id": shared.user_id,
            "author_name": self.workspace.members[shared.user_id].name,
            "channel_id": source.channel_id,
            "ts": shared.ts,
            "text": shared.text,
            "fallback": shared.text,
            "files": form.get("files", []),
            "message_blocks": [
                {
                    "team": self.workspace.team_id,
                    "channel": source.channel_id,
                    "ts": shared.ts,
                    "message": {"blocks": shared.blocks, "attachments": shared.attachments},
                }
            ],
        }
        return self._attach(member, channel, text, attachment, thread_id)

    async def paste_table(
        self,
        person: str,
        channel_id: str,
        rows: Sequence[Sequence[str]],
        text: str = "",
        *,
        thread_id: str | None = None,
    ) -> str:
        """A person pastes cells of a spreadsheet, with words of their own: it is an attachment whose block is a table
        (github.com/vercel/chat/issues/803)."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        if not rows:
            raise ValueError("a table needs a row")
        table = {
            "type": "table",
            "rows": [[rich_text(self.workspace, encode(self.workspace, cell))[0] for cell in row] for row in rows],
        }
        attachment: Payload = {"id": 1, "blocks": [table], "fallback": "[no preview available]"}
        return self._attach(member, channel, text, attachment, thread_id)

    def _attach(self, member: Member, channel: Channel, text: str, attachment: Payload, thread_id: str | None) -> str:
        spoken = encode(self.workspace, text)
        message = Message(
            ts=self.workspace.new_ts(),
            channel_id=channel.channel_id,
            user_id=member.user_id,
            text=spoken,
            blocks=rich_text(self.workspace, spoken) if spoken else [],
            thread_ts=thread_id,
            attachments=[attachment],
        )
        self.workspace.add_message(message)
        self._tell_said(channel, message)
        return message.ts

    def _tell_said(self, channel: Channel, message: Message) -> None:
        if not self._is_mention(channel, message):
            message_events.tell_posted(self.workspace, message)
            return
        self._said += 1
        order = self.workspace.settings.mentions_first
        is_mention_first = self._said % 2 == 1 if order is None else order
        if not is_mention_first:
            message_events.tell_posted(self.workspace, message)
        self._tell_mention(channel, message)
        if is_mention_first:
            message_events.tell_posted(self.workspace, message)

    def _is_mention(self, channel: Channel, message: Message) -> bool:
        return channel.kind != "im" and f"<@{self.workspace.bot.user_id}>" in message.text

    def _tell_mention(self, channel: Channel, message: Message) -> None:
        if not message_events.is_bot_in(self.workspace, channel):
            return
        # The platform's app_mention names no files and no subtype: they come with the message event alone.
        event = message_events.posted_event(self.workspace, channel, message)
        for key in ("files", "upload", "display_as_bot", "subtype", "channel_type"):
            event.pop(key, None)
        event["type"] = "app_mention"
        event["event_ts"] = message.edited_ts or message.ts
        self.workspace.emit("app_mention", event)

    def _store(self, member: Member, file: SentFile) -> StoredFile:
        stored = StoredFile(
            file_id=self.workspace.new_id("F"),
            key=secrets.token_urlsafe(24),
            name=file.name,
            title=file.name,
            mime_type=file.mime_type,
            declared_bytes=len(file.content),
            user_id=member.user_id,
            created=int(time.time()),
            content=file.content,
            is_uploaded=True,
            is_complete=True,
        )
        self.workspace.files[stored.file_id] = stored
        self.workspace.file_keys[stored.key] = stored
        return stored

    def _own(self, person: str, channel_id: str, message_id: str) -> Message:
        member = self.member(person)
        message = self.message(self._entered(member, channel_id), message_id)
        if message.user_id != member.user_id:
            raise ValueError(f"{member.name} did not write {message_id}")
        return message

    async def edit(self, person: str, channel_id: str, message_id: str, text: str) -> None:
        """See SimulatedPlatform.edit. An edit whose text has a mention is told as a mention, too, with `edited`
        (github.com/slack-go/slack/pull/1256)."""
        message = self._own(person, channel_id, message_id)
        previous = message_form(self.workspace, message)
        message.text = encode(self.workspace, text)
        message.blocks = rich_text(self.workspace, message.text)
        message.edits += 1
        message.edited_ts = self.workspace.new_ts()
        self.workspace.changed(message)
        message_events.tell_changed(self.workspace, message, previous)
        channel = self.workspace.channels[message.channel_id]
        if self._is_mention(channel, message):
            self._tell_mention(channel, message)

    async def delete(self, person: str, channel_id: str, message_id: str) -> None:
        """See SimulatedPlatform.delete."""
        message = self._own(person, channel_id, message_id)
        previous = message_form(self.workspace, message)
        self.workspace.remove_message(message)
        message_events.tell_deleted(self.workspace, message, previous)

    async def react(
        self, person: str, channel_id: str, message_id: str, emoji: str, *, is_removed: bool = False
    ) -> None:
        """See SimulatedPlatform.react."""
        member, name = self.member(person), emoji.strip(":")
        message = self.message(self._entered(member, channel_id), message_id)
        if not is_emoji(name):
            raise ValueError(f"there is no emoji {emoji}")
        users = message.reactions.get(name, [])
        if is_removed == (member.user_id not in users):
            raise ValueError(f"{member.name} {'has not' if is_removed else 'has'} reacted so")
        if is_removed:
            users.remove(member.user_id)
            if not users:
                del message.reactions[name]
        else:
            message.reactions.setdefault(name, []).append(member.user_id)
        self.workspace.changed(message)
        message_events.tell_reaction(self.workspace, message, user_id=member.user_id, name=name, is_removed=is_removed)
