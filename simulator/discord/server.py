"""The simulated Discord as one object: its server, its people, its faults."""

import time
from collections.abc import AsyncGenerator, Sequence

from aiohttp import web

from simulator.discord.files import serve_attachment, serve_page_file
from simulator.discord.gateway.connection import Gateway
from simulator.discord.gateway.events import GUILDS, tell_channel
from simulator.discord.gateway.guild_payloads import guild_create_json
from simulator.discord.initial_world import build_world, found_guild
from simulator.discord.json_reading import Json, snowflake
from simulator.discord.people import actions as people
from simulator.discord.people import slash_commands
from simulator.discord.people.view import view_of
from simulator.discord.rest import channels, threads
from simulator.discord.rest.call import CallRecord
from simulator.discord.rest.handler import API_PATH, RestHandler
from simulator.discord.settings import DiscordSettings
from simulator.discord.world import THREAD, Channel, Event, Guild, Message, World
from simulator.serving import HOST, date_answers, start_listening, stop_server
from simulator.view import PlatformView, SelectOption, SentFile

SIMULATED_TOKEN = "simulated-discord-token"  # noqa: S105 - opens nothing but this simulator
_BODY_BYTES_MAX = 8 * 1024 * 1024


class DiscordSimulator:
    """Serves from `async with`; satisfies SimulatedPlatform. Port 0 takes a free one."""

    def __init__(
        self,
        *,
        port: int = 0,
        token: str = SIMULATED_TOKEN,
        people: Sequence[str] = ("alice", "bob"),
        channels: Sequence[str] = ("general",),
        bot_name: str = "threadhand",
        guild_name: str = "Simulated server",
        settings: DiscordSettings | None = None,
    ) -> None:
        self._port = port
        self.settings = settings or DiscordSettings()
        self.world: World = build_world(
            token=token,
            people=people,
            channels=channels,
            bot_name=bot_name,
            guild_name=guild_name,
            settings=self.settings,
        )
        self.gateway = Gateway(self.world)
        self._rest_handler: RestHandler | None = None
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "DiscordSimulator":
        self._rest_handler = RestHandler(self.world)
        self.world.publish = self.gateway.publish
        self._runner = web.AppRunner(
            self._application(self._rest_handler), access_log=None, handler_cancellation=True, shutdown_timeout=2.0
        )
        port = await start_listening(self._runner, self._port)
        self.world.http_url = f"http://{HOST}:{port}"
        self.world.gateway_url = f"ws://{HOST}:{port}/"
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.gateway.close()
        if self._rest_handler is not None:
            self._rest_handler.close()
        if self._runner is not None:
            await stop_server(self._runner)

    def _application(self, handler: RestHandler) -> web.Application:
        async def attachment(request: web.Request) -> web.Response:
            return await serve_attachment(self.world, request)

        async def page_file(request: web.Request) -> web.Response:
            return await serve_page_file(self.world, request)

        application = web.Application(client_max_size=_BODY_BYTES_MAX)
        application.router.add_get("/", self.gateway.serve)
        application.router.add_get("/attachments/{channel}/{attachment}/{name}", attachment)
        application.router.add_get("/files/{attachment}/{name}", page_file)
        application.router.add_route("*", API_PATH + "/{path:.*}", handler.serve)
        date_answers(application, lambda: self.settings.clock_seconds)
        return application

    @property
    def api_url(self) -> str:
        """The base of the REST API, without a slash at its end."""
        return self.world.http_url + API_PATH

    @property
    def gateway_url(self) -> str:
        return self.world.gateway_url

    @property
    def token(self) -> str:
        """What the bot logs in with."""
        return self.world.token

    @property
    def calls(self) -> list[CallRecord]:
        """The calls to the REST API, oldest first; only the last thousands are kept."""
        return [] if self._rest_handler is None else list(self._rest_handler.calls)

    def add_guild(
        self, name: str, *, people: Sequence[str], channels: Sequence[str] = ("general",), shard: int = 0
    ) -> Guild:
        """Another server with the bot in it, which is told at once; `shard` is its number where there are several."""
        guild = found_guild(self.world, name, people=people, channels=channels, shard=shard)
        self.world.publish(
            Event(
                name="GUILD_CREATE",
                payload=guild_create_json(self.world, guild),
                intent=GUILDS,
                guild_id=guild.guild_id,
            )
        )
        self.world.touch()
        return guild

    def view(self) -> PlatformView:
        return view_of(self.world, is_bot_connected=self.gateway.is_bot_connected)

    async def changes(self) -> AsyncGenerator[int]:
        yield (seen := self.world.version)
        while True:
            seen = await self.world.wait_for_change(seen)
            yield seen

    async def say(
        self,
        person: str,
        channel_id: str,
        text: str,
        *,
        thread_id: str | None = None,
        files: Sequence[SentFile] = (),
        reply_to: str = "",
        is_moderator: bool = False,
    ) -> str:
        """Moderators may write in locked threads."""
        user = people.find_person(self.world, person)
        place = people.find_place(self.world, user, channel_id, thread_id)
        sent = people.say(self.world, user, place, text, files, reply_to=reply_to, is_moderator=is_moderator)
        return sent.message_id

    async def post_as_app(
        self,
        channel_id: str,
        text: str = "",
        *,
        name: str = "Alerts",
        embeds: Sequence[Json] = (),
        thread_id: str | None = None,
    ) -> str:
        """Another bot of the server writes."""
        place = self.world.channel(thread_id or channel_id)
        return people.post_as_app(self.world, place, name, text, embeds).message_id

    def forward(
        self, person: str, channel_id: str, thread_id: str | None, from_channel_id: str, message_id: str
    ) -> str:
        """A person forwards a message of `from_channel_id`."""
        user = people.find_person(self.world, person)
        forwarded = people.find_message(self.world, user, from_channel_id, message_id)
        place = people.find_place(self.world, user, channel_id, thread_id)
        return people.forward(self.world, user, place, forwarded).message_id

    async def start_thread(self, person: str, channel_id: str, message_id: str, name: str) -> str:
        """A person starts a thread from a message, which has the message's id."""
        message = self._message(person, channel_id, message_id)
        channel = self.world.channel(channel_id)
        return threads.start(self.world, message, channel, {"name": name}).channel_id

    async def edit(self, person: str, channel_id: str, message_id: str, text: str) -> None:
        message = self._message(person, channel_id, message_id)
        user = people.find_person(self.world, person)
        people.edit(self.world, message, user, text, time.time())

    async def delete(self, person: str, channel_id: str, message_id: str) -> None:
        message = self._message(person, channel_id, message_id)
        people.delete(self.world, message, people.find_person(self.world, person))

    async def react(
        self, person: str, channel_id: str, message_id: str, emoji: str, *, is_removed: bool = False
    ) -> None:
        message = self._message(person, channel_id, message_id)
        user = people.find_person(self.world, person)
        people.set_reaction(self.world, message, user, emoji, is_removed=is_removed)

    async def press(self, person: str, channel_id: str, message_id: str, control_id: str, *, value: str = "") -> None:
        message = self._message(person, channel_id, message_id)
        user = people.find_person(self.world, person)
        await people.press(self.world, message, user, control_id, value)

    async def submit(self, person: str, form_id: str, values: dict[str, str]) -> None:
        await people.submit(self.world, people.find_person(self.world, person), form_id, values)

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
        user = people.find_person(self.world, person)
        place = people.find_place(self.world, user, channel_id, thread_id)
        return await slash_commands.call_command(self.world, user, place, name, options, files or {})

    async def use_shortcut(self, person: str, name: str, channel_id: str = "", message_id: str = "") -> str:
        if not message_id:
            raise ValueError("Discord has no such entry without a message")
        message = self._message(person, channel_id, message_id)
        user = people.find_person(self.world, person)
        return await people.use_shortcut(self.world, user, name, message)

    async def post_poll(
        self, person: str, channel_id: str, question: str, votes: dict[str, int], *, thread_id: str | None = None
    ) -> str:
        """A person posts a poll, with the votes that each answer has."""
        user = people.find_person(self.world, person)
        place = people.find_place(self.world, user, channel_id, thread_id)
        return people.post_poll(self.world, user, place, question, votes).message_id

    async def open_app(self, person: str, *, tab: str = "messages") -> None:
        raise ValueError(f"{person} sees no {tab} of the app here")

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
        user = people.find_person(self.world, person)
        place = people.find_place(self.world, user, channel_id, thread_id)
        return await slash_commands.suggest_values(self.world, user, place, name, options, option)

    def add_channel(self, name: str, kind: int, *, tags: Sequence[str] = ()) -> Channel:
        """Another channel of the first server, by Discord's channel types. `tags` are those of a forum."""
        channel = Channel(
            channel_id=snowflake(),
            kind=kind,
            name=name,
            guild_id=self.world.home.guild_id,
            available_tags={snowflake(): tag for tag in tags},
        )
        self.world.channels[channel.channel_id] = channel
        tell_channel(self.world, "CHANNEL_CREATE", channel)
        return channel

    def allow(self, channel_id: str, *, denied: int = 0, granted: int = 0) -> None:
        """An admin changes what everybody may do in the channel, by Discord's permission bits."""
        channel = self.world.channels[channel_id]
        overwrite: Json = {"id": channel.guild_id, "type": 0}
        overwrite |= {"allow": str(granted), "deny": str(denied)}
        self.settings.channel_overwrites[channel_id] = [overwrite]
        tell_channel(self.world, "CHANNEL_UPDATE", channel)

    async def open_thread(self, person: str, channel_id: str, name: str, kind: int = THREAD) -> str:
        """A person opens a thread without a message, such as a forum's post, and adds the bot."""
        user = people.find_person(self.world, person)
        return threads.open_by_person(self.world, user, channel_id, name, kind).channel_id

    def lock_thread(self, thread_id: str, *, is_archived: bool = False) -> None:
        """A moderator locks the thread, and closes it too if `is_archived`."""
        people.lock(self.world, self.world.channels[thread_id], is_archived=is_archived)

    def archive_thread(self, thread_id: str, *, is_archived: bool) -> None:
        """A moderator closes the thread, or opens it again."""
        people.archive(self.world, self.world.channels[thread_id], is_archived=is_archived)

    async def revoke_token(self) -> str:
        """The bot's token stops to work, and its connection closes. Returns the new token."""
        self.world.token = f"{SIMULATED_TOKEN}-{snowflake()}"
        await self.gateway.close_all(4004)
        return self.world.token

    def place(self, channel_id: str, thread_id: str | None) -> Channel:
        """The channel or the thread. Raises ValueError if there is none."""
        channel = self.world.channels.get(thread_id or channel_id)
        if channel is None or (thread_id is not None and channel.parent_id != channel_id):
            raise ValueError(f"there is no channel or thread {thread_id or channel_id!r}")
        return channel

    def delete_channel(self, channel_id: str) -> None:
        """A moderator deletes the channel or thread."""
        channels.remove(self.world, self.world.channels[channel_id])

    def delete_messages(self, channel_id: str, message_ids: Sequence[str]) -> None:
        """A moderator deletes several messages at once."""
        people.purge(self.world, self.world.channels[channel_id], message_ids)

    def misbehave(self, fault: str, **settings: str | float | int) -> None:
        """Those that concern the connection itself bite at once; the others wait for what they fit."""
        if fault == "refuse":
            raise ValueError("Discord has no error codes by name: use server_error or rate_limit")
        if fault == "drop_connection":
            self.gateway.drop()
        elif fault == "reconnect":
            self.gateway.ask_to_reconnect()
        else:
            self.world.faults.arm(fault, **settings)
            if fault == "none":
                self.gateway.release()
        self.world.touch()

    def _message(self, person: str, channel_id: str, message_id: str) -> Message:
        user = people.find_person(self.world, person)
        return people.find_message(self.world, user, channel_id, message_id)
