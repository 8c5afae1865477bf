"""Showing that the agent is at work in a thread, with Slack's own stop button where the app is an agent."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.threads import Address
from core.failpoints import Failpoint

TYPING_SECONDS_MAX = 2.0
TYPING = Failpoint("slack.typing")
# The app is no agent, or its workspace has none: no later session of it fares better.
_NO_SESSIONS = frozenset(
    {"feature_not_enabled", "missing_scope", "not_authorized", "unknown_method"}
)

log = logging.getLogger(__name__)


class Presence:
    """What Slack shows of the agent's work. Nothing here fails: it is a courtesy."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._has_sessions = True

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncGenerator[None]:
        """While entered, the thread shows the agent at work."""
        await self._show(address, is_busy=True)
        try:
            yield
        finally:
            await self._show(address, is_busy=False)

    async def _show(self, address: Address, *, is_busy: bool) -> None:
        try:
            async with asyncio.timeout(TYPING_SECONDS_MAX):
                with TYPING:
                    await self._set_status(address, is_busy=is_busy)
        except (SurfaceError, TimeoutError) as error:
            log.debug("slack does not show whether the agent is at work: %s", error)

    async def _set_status(self, address: Address, *, is_busy: bool) -> None:
        """A session offers the stop button; the line of an assistant thread, which shares its place, does not."""
        thread = {"channel_id": address.channel_id, "thread_ts": address.thread_key}
        if self._has_sessions:
            status = "processing" if is_busy else "active"
            try:
                await self._client.write("agents.sessions.setStatus", {**thread, "status": status})
                return
            except SurfaceRefused as error:
                if error.code not in _NO_SESSIONS:
                    raise
                log.info("slack offers no stop button of its own here (%s)", error.code)
                self._has_sessions = False
        line = "is working…" if is_busy else ""
        await self._client.write("assistant.threads.setStatus", {**thread, "status": line})
