"""Opens the thread of a message, and makes posts wait until the thread is open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.discord.limits import THREAD_NAME_MAX, to_single_line
from bots.discord.rest.client import THREAD_EXISTS, RestClient
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import Precondition

OPEN_THREAD = Failpoint("discord.open_thread")
ARCHIVE_MINUTES = 1440


class ThreadOpener:
    """Opens threads, and tracks those that this process is opening.

    A thread that is created from a message has the message's id, so its address is known before it exists.
    """

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._opening: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def opening(self, thread_key: str) -> AsyncGenerator[None]:
        """Context manager: inside the block, `wait_until_open` waits for the thread."""
        event = self._opening.setdefault(thread_key, asyncio.Event())
        try:
            yield
        finally:
            event.set()
            if self._opening.get(thread_key) is event:
                del self._opening[thread_key]

    def mark_open(self, thread_key: str) -> None:
        """Records that the gateway reported the thread. discord.py's call may return later if rate-limited."""
        event = self._opening.get(thread_key)
        if event is not None:
            event.set()

    async def wait_until_open(self, address: Address) -> None:
        """Waits while this process is opening the thread. Returns immediately if it is not."""
        event = self._opening.get(address.thread_key)
        if event is not None:
            await event.wait()

    async def open_thread(
        self, address: Address, title: str, *, precondition: Precondition | None = None
    ) -> None:
        """Opens the thread of the message that the address names, unless it is open already.

        Raises SurfaceError.
        """
        name = to_single_line(title, THREAD_NAME_MAX) or "Agent"
        try:
            with OPEN_THREAD:
                await self._rest.call(
                    "POST",
                    "/channels/{channel_id}/messages/{message_id}/threads",
                    body={"name": name, "auto_archive_duration": ARCHIVE_MINUTES},
                    precondition=precondition,
                    channel_id=address.channel_id,
                    message_id=address.thread_key,
                )
        except SurfaceRefused as error:
            if error.code != THREAD_EXISTS:
                raise
