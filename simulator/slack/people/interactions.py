"""What people do with what the app shows: press controls, fill in forms, call commands, stop a session."""

import time

from simulator.slack.events.delivery import Delivery
from simulator.slack.events.payloads import Payload, Refused, as_payload
from simulator.slack.events.recipients import installation_form, is_organisations
from simulator.slack.members import home_of
from simulator.slack.people.actions import People
from simulator.slack.people.controls import Control, chosen, find_control, state_of
from simulator.slack.people.forms import read_form, submitted_values
from simulator.slack.people.responses import apply_response
from simulator.slack.people.view import platform_view
from simulator.slack.shapes import message_form, view_form
from simulator.slack.web_api.views import checked_view, close_views, new_hash, show_view
from simulator.slack.world import Channel, Member, Message, OpenView, ResponseUrl
from simulator.view import PlatformView, SelectOption, SentFile

_RESPONSE_SECONDS = 30 * 60


class BusyPeople(People):
    """People who also use the app's controls, forms and commands."""

    def view(self) -> PlatformView:
        """See SimulatedPlatform.view."""
        is_connected = self.outbox.transport.is_connected()
        return platform_view(self.workspace, is_connected=is_connected, faults=self.faults.seen())

    async def press(self, person: str, channel_id: str, message_id: str, control_id: str, *, value: str = "") -> None:
        """See SimulatedPlatform.press."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        message = self.message(channel, message_id)
        if message.visible_to not in (None, member.user_id):
            raise ValueError(f"{member.name} does not see {message_id}")
        control = find_control(message.blocks, control_id)
        allowed = control.element.get("visible_to_user_ids")
        if allowed and member.user_id not in allowed:
            raise ValueError(f"{member.name} does not see {control_id}")
        choice = chosen(control.element, value, control.part)
        if control.has_state:
            message.state[f"{control.block_id}/{control.action_id}"] = choice
        body = self._pressed(member, channel, message)
        body["actions"] = [_action(control, choice)]
        await self.outbox.ask(Delivery(kind="interactive", payload=body), name="interactive")

    def _pressed(self, member: Member, channel: Channel, message: Message) -> Payload:
        container: Payload = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": channel.channel_id,
            "is_ephemeral": message.visible_to is not None,
        }
        if message.thread_ts is not None:
            container["thread_ts"] = message.thread_ts
        body = self._interaction("block_actions", member)
        body |= {
            "container": container,
            "channel": {"id": channel.channel_id, "name": _channel_name(channel)},
            "state": {"values": state_of(message.blocks, message.state)},
            "response_url": self._response_url(member, channel, message),
        }
        if message.visible_to is None:
            body["message"] = message_form(self.workspace, message)
        return body

    def _interaction(self, kind: str, member: Member) -> Payload:
        workspace = self.workspace
        is_expired = self.faults.take("interactive", "expire_trigger") is not None
        return {
            "type": kind,
            "user": {
                "id": member.user_id,
                "username": member.name,
                "name": member.name,
                "team_id": home_of(member, workspace.team_id, workspace.organisation),
            },
            "api_app_id": workspace.app_id,
            "token": "simulated",
            "trigger_id": workspace.new_trigger(member.user_id, is_expired=is_expired),
            **installation_form(workspace),
        }

    def _response_url(self, member: Member, channel: Channel, message: Message | None = None) -> str:
        response = ResponseUrl(
            channel_id=channel.channel_id,
            user_id=member.user_id,
            expires_at=time.monotonic() + _RESPONSE_SECONDS,
            message_ts=message.ts if message is not None else None,
            thread_ts=message.thread_ts if message is not None else None,
        )
        return self.workspace.new_response_url(response)

    async def submit(self, person: str, form_id: str, values: dict[str, str]) -> None:
        """See SimulatedPlatform.submit. Raises ValueError with the app's sentences where it refuses the values."""
        member = self.member(person)
        view = self.workspace.views.get(form_id)
        if view is None or view.user_id != member.user_id or view.is_home:
            raise ValueError(f"{member.name} has no form {form_id} open")
        touched = read_form(view, values)
        form = view_form(self.workspace, view, submitted_values(view, touched))
        body = self._interaction("view_submission", member) | {"view": form}
        body["response_urls"] = []
        delivery = Delivery(kind="interactive", payload=body, accepts_answer=True)
        answer = await self.outbox.ask(delivery, name="interactive")
        try:
            self._answer_form(member, view, answer or {})
        except Refused as refusal:
            raise ValueError(f"the app's answer was refused: {refusal.code}") from refusal

    def _answer_form(self, member: Member, view: OpenView, answer: Payload) -> None:
        match answer.get("response_action"):
            case "errors":
                errors = as_payload(answer.get("errors")) or {}
                raise ValueError("; ".join(f"{key}: {text}" for key, text in errors.items()))
            case "update":
                view.content = checked_view(answer.get("view"), "modal")
                view.version = new_hash()
                self.workspace.changed()
            case "push":
                content = checked_view(answer.get("view"), "modal")
                show_view(self.workspace, member.user_id, content, previous=view)
            case "clear":
                close_views(self.workspace, member.user_id)
            case _:
                self.workspace.views.pop(view.view_id, None)
                self.workspace.changed()

    async def suggest(
        self,
        person: str,
        channel_id: str,
        name: str,
        options: dict[str, str],
        option: str,
        *,
        thread_id: str | None = None,
    ) -> tuple[SelectOption, ...]:
        """Slack suggests no values for slash commands."""
        del person, channel_id, name, options, option, thread_id
        return ()

    async def command(
        self,
        person: str,
        channel_id: str,
        name: str,
        options: dict[str, str],
        *,
        thread_id: str | None = None,
        files: dict[str, SentFile] | None = None,
    ) -> str:
        """See SimulatedPlatform.command. The options' values make up the text after the command."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        slashed = f"/{name.removeprefix('/')}"
        if thread_id is not None:
            raise ValueError(f"{slashed} is not supported in threads. Sorry!")
        if files:
            raise ValueError("a slash command takes no files in Slack")
        settings = self.workspace.settings
        is_granted = "commands" in settings.scopes
        if not is_granted or slashed not in {command.name for command in settings.commands}:
            raise ValueError(f"{slashed} is not a valid command")
        body = self._called(member, channel, slashed, options)
        delivery = Delivery(kind="slash_commands", payload=body, accepts_answer=True)
        answer = await self.outbox.ask(delivery, name="slash_commands")
        if answer:
            key = body["response_url"].rpartition("/")[2]
            try:
                apply_response(self.workspace, self.workspace.response_urls[key], answer)
            except Refused as refusal:
                raise ValueError(f"the app's answer was refused: {refusal.code}") from refusal
        return str(body["trigger_id"])

    async def use_shortcut(self, person: str, name: str, channel_id: str = "", message_id: str = "") -> str:
        """See SimulatedPlatform.use_shortcut."""
        member, workspace = self.member(person), self.workspace
        found = [one for one in workspace.settings.shortcuts if one.name == name]
        kind = "message" if message_id else "global"
        shortcut = next((one for one in found if one.kind == kind), None)
        if shortcut is None or "commands" not in workspace.settings.scopes:
            raise ValueError(f"the app has no {kind} shortcut {name}")
        body = self._interaction("message_action" if message_id else "shortcut", member)
        body |= {"callback_id": shortcut.callback_id, "action_ts": f"{time.time():.6f}"}
        if message_id:
            channel = self._entered(member, channel_id)
            message = self.message(channel, message_id)
            if message.visible_to is not None:
                raise ValueError("ephemeral messages have no shortcuts")
            body |= {
                "channel": {"id": channel.channel_id, "name": _channel_name(channel)},
                "message_ts": message.ts,
                "message": message_form(workspace, message),
                "response_url": self._response_url(member, channel, message),
            }
        await self.outbox.ask(Delivery(kind="interactive", payload=body), name="interactive")
        return str(body["trigger_id"])

    def _called(self, member: Member, channel: Channel, command: str, options: dict[str, str]) -> Payload:
        workspace = self.workspace
        is_expired = self.faults.take("slash_commands", "expire_trigger") is not None
        return {
            "token": "simulated",
            "team_id": workspace.team_id,
            "team_domain": workspace.settings.workspace_name,
            "channel_id": channel.channel_id,
            "channel_name": _channel_name(channel),
            "user_id": member.user_id,
            "user_name": member.name,
            "command": command,
            "text": " ".join(value for value in options.values() if value),
            "api_app_id": workspace.app_id,
            "is_enterprise_install": "true" if is_organisations(workspace) else "false",
            "response_url": self._response_url(member, channel),
            "trigger_id": workspace.new_trigger(member.user_id, is_expired=is_expired),
        }

    async def stop_session(self, person: str, channel_id: str, thread_id: str) -> None:
        """Presses the platform's own stop button, which is there while a session is processing."""
        member = self.member(person)
        channel = self._entered(member, channel_id)
        session = self.workspace.sessions.get((channel.channel_id, thread_id))
        if session is None or session.status != "processing":
            raise ValueError("no session is processing there")
        if "agent_session_stopped" not in self.workspace.settings.subscriptions:
            raise ValueError("the app offers no stop button")
        root = channel.messages[thread_id]
        streaming = [
            ts for ts in root.replies if (stream := channel.messages[ts].stream) is not None and stream.is_open
        ]
        self.workspace.emit(
            "agent_session_stopped",
            {
                "type": "agent_session_stopped",
                "channel": channel.channel_id,
                "thread_ts": thread_id,
                "user": member.user_id,
                "streaming_message_ts": streaming,
                "event_ts": self.workspace.new_ts(),
            },
        )

    async def open_app(self, person: str, *, tab: str = "messages") -> None:
        """See SimulatedPlatform.open_app."""
        member = self.member(person)
        if tab == "home" and not self.workspace.settings.has_home:
            raise ValueError("the app has no Home tab")
        channel = self.workspace.direct_with(member.user_id, self.workspace.bot.user_id)
        event: Payload = {
            "type": "app_home_opened",
            "user": member.user_id,
            "channel": channel.channel_id,
            "tab": tab,
            "event_ts": self.workspace.new_ts(),
        }
        views = self.workspace.views.values()
        home = next((view for view in views if view.is_home and view.user_id == member.user_id), None)
        if tab == "home" and home is not None:
            event["view"] = view_form(self.workspace, home)
        self.workspace.emit("app_home_opened", event)

    async def open_assistant(self, person: str) -> str:
        """Opens a new thread in the app's assistant view; its id."""
        member, workspace = self.member(person), self.workspace
        channel = workspace.direct_with(member.user_id, workspace.bot.user_id)
        root = Message(
            ts=workspace.new_ts(),
            channel_id=channel.channel_id,
            user_id=workspace.bot.user_id,
            is_bot=True,
            text="New Assistant Thread",
        )
        workspace.add_message(root)
        workspace.emit(
            "assistant_thread_started",
            {
                "type": "assistant_thread_started",
                "assistant_thread": {
                    "user_id": member.user_id,
                    "context": {"team_id": workspace.team_id, "enterprise_id": None},
                    "channel_id": channel.channel_id,
                    "thread_ts": root.ts,
                },
                "event_ts": root.ts,
            },
        )
        return root.ts

    def expel(self, channel_id: str) -> None:
        """Takes the app out of a channel."""
        channel, bot = self.channel(channel_id), self.workspace.bot
        if channel.members.pop(bot.user_id, "") is not None:
            raise ValueError(f"{bot.name} is not in {channel.name}")
        self.workspace.changed()

    def set_archived(self, channel_id: str, *, is_archived: bool) -> None:
        """An admin archives the channel, or takes it out of the archive."""
        self.channel(channel_id).is_archived = is_archived
        self.workspace.changed()

    def set_read_only(self, channel_id: str, *, is_read_only: bool) -> None:
        """An admin decides whether only admins may write in the channel."""
        self.channel(channel_id).is_read_only = is_read_only
        self.workspace.changed()

    def remove_channel(self, channel_id: str) -> None:
        """An admin deletes the channel."""
        channel = self.workspace.channels.pop(self.channel(channel_id).channel_id)
        self.workspace.channel_names.pop(channel.name, None)
        self.workspace.changed()

    async def invite(self, channel_id: str) -> None:
        """Takes the app into a channel."""
        channel, bot = self.channel(channel_id), self.workspace.bot
        if bot.user_id in channel.members:
            raise ValueError(f"{bot.name} is already in {channel.name}")
        channel.members[bot.user_id] = None
        self.workspace.changed()
        self.workspace.emit(
            "member_joined_channel",
            {
                "type": "member_joined_channel",
                "user": bot.user_id,
                "channel": channel.channel_id,
                "channel_type": "C" if channel.kind == "channel" else "G",
                "team": self.workspace.team_id,
                "event_ts": self.workspace.new_ts(),
            },
        )


def _channel_name(channel: Channel) -> str:
    return "directmessage" if channel.kind == "im" else channel.name


def _action(control: Control, choice: Payload) -> Payload:
    return {
        "type": control.element["type"],
        "action_id": control.action_id,
        "block_id": control.block_id,
        "action_ts": f"{time.time():.6f}",
        **choice,
    }
