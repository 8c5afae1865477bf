"""A mention comes twice, as `app_mention` and as `message`; only the second has files, so the first waits for it."""

import asyncio
from collections import OrderedDict

_REMEMBERED_MAX = 2000

Key = tuple[str, str]


class Twins:
    """The messages that were taken up a moment ago, by (channel, ts), and who waits for one."""

    def __init__(self) -> None:
        self._taken: OrderedDict[Key, None] = OrderedDict()
        self._waiting: dict[Key, asyncio.Event] = {}

    def took(self, channel: str, ts: str) -> None:
        """Says that the message is stored."""
        self._taken[channel, ts] = None
        while len(self._taken) > _REMEMBERED_MAX:
            self._taken.popitem(last=False)
        if event := self._waiting.get((channel, ts)):
            event.set()

    async def comes(self, channel: str, ts: str, *, timeout_seconds: float) -> bool:
        """Whether the message was taken up, now or before the time is over."""
        key = (channel, ts)
        if key in self._taken:
            return True
        event = self._waiting.setdefault(key, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            if self._waiting.get(key) is event:
                del self._waiting[key]
        return True
