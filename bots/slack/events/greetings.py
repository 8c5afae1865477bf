"""Greets users and channels that are new to the app, and keeps the App Home up to date while a run is active."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bots.inbound.access import NOT_ALLOWED
from bots.inbound.actions import CommandCalled
from bots.inbound.home import GreetingsAndHome
from bots.slack.events.parse import ParseContext
from bots.slack.events.payload_fields import get_objects, get_text
from bots.slack.render.home import home_view, home_view_without_access
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.notices import notice_body
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.failpoints import Failpoint
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

GREETED_EVENTS = frozenset({"app_home_opened", "member_joined_channel"})
HOME_INTERVAL_SECONDS = 3.0
HOME_LIVE_SECONDS = 600.0
"""How long an opened Home is kept up to date. Slack does not report when it is closed."""
HOMES_LIVE_MAX = 200
WELCOME = (
    "Hello! Write what you need, and attach files if they help: I plan, run programs, search the web and answer in the"
    " thread of your message. `help` lists what else I understand."
)
GREET = Failpoint("slack.greet")
PUBLISH = Failpoint("slack.publish_home")


@dataclass(slots=True)
class Greeter:
    """Greets users and channels of one workspace. `find_access` returns the action with facts about its person from
    Slack, and whether the person has access."""

    client: SlackClient
    greetings: GreetingsAndHome
    find_access: Callable[[CommandCalled], Awaitable[tuple[CommandCalled, bool]]]
    _live: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]], init=False)

    async def handle_event(self, event: JsonObject, context: ParseContext) -> None:
        """Handles one of GREETED_EVENTS. Raises StorageUnavailable, so that Slack sends the event again."""
        person_id, channel = get_text(event, "user"), get_text(event, "channel")
        if get_text(event, "type") == "member_joined_channel":
            key = context.dedupe_key(channel, "joined", get_text(event, "event_ts"))
            if person_id == context.identity.user_id and await self.greetings.claim(key):
                greeting = await self.greetings.format_join_greeting(
                    context.address(channel, ""), f"@{context.identity.name}"
                )
                await self._post(channel, greeting)
            return
        opened = CommandCalled(
            address=context.address(channel, ""),
            dedupe_key="",
            name="status",
            argument="",
            person=context.person(person_id),
        )
        opened, has_access = await self.find_access(opened)
        if get_text(event, "tab") == "home":
            self._show_home(opened, has_access=has_access)
        elif has_access:
            try:
                page = await self.client.look_up("conversations.history", {"channel": channel, "limit": 1})
            except SurfaceError as error:
                log.info("slack: whether a person is new is not known: %s", error)
                return
            # welcome only a person whose direct messages with the bot are empty
            if not get_objects(page, "messages") and await self.greetings.claim(context.dedupe_key(channel, "welcome")):
                await self._post(channel, WELCOME)

    async def _post(self, channel: str, markdown: str) -> None:
        try:
            with GREET:
                await self.client.write("chat.postMessage", notice_body(channel, markdown))
        except SurfaceError as error:
            log.warning("slack: a greeting could not be posted in %s: %s", channel, error)

    def _show_home(self, opened: CommandCalled, *, has_access: bool) -> None:
        person_id = opened.person.person_id
        before = self._live.get(person_id)
        if before is None and len(self._live) >= HOMES_LIVE_MAX:
            self._live.pop(next(iter(self._live))).cancel()
        elif before is not None:
            before.cancel()
        task = spawn(self._keep_home(opened, has_access), name=f"home of {person_id}")
        self._live[person_id] = task

        def forget(done: asyncio.Task[None]) -> None:
            if self._live.get(person_id) is done:
                del self._live[person_id]

        task.add_done_callback(forget)

    async def _keep_home(self, opened: CommandCalled, has_access: bool) -> None:
        """Publishes the person's page until it is shown, and publishes it again when it changes while one of their
        runs is active."""
        person_id, shown = opened.person.person_id, None
        with suppress(TimeoutError):
            async with asyncio.timeout(HOME_LIVE_SECONDS):
                while True:
                    try:
                        view, is_active = await self._draw_home(opened, has_access=has_access)
                        if view != shown:
                            with PUBLISH:
                                await self.client.write("views.publish", {"user_id": person_id, "view": view})
                            shown = view
                        if not is_active:
                            return
                    except SurfaceRefused as error:
                        log.warning("slack: the Home of %s could not be shown: %s", person_id, error)
                        return
                    except (StorageUnavailable, SurfaceError) as error:
                        log.warning("slack: the Home of %s cannot be shown yet: %s", person_id, error)
                    await asyncio.sleep(HOME_INTERVAL_SECONDS)

    async def _draw_home(self, opened: CommandCalled, *, has_access: bool) -> tuple[JsonObject, bool]:
        """Returns the person's page, and whether a run is active, so that the page will change."""
        if not has_access:
            return home_view_without_access(NOT_ALLOWED), False
        page = await self.greetings.read_home_page(opened.person, opened.address, opened.actor)
        return home_view(page), page.is_active

    async def close(self) -> None:
        await cancel(*self._live.values())
