"""Keeps at most one of the bot's reactions on a message."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from weakref import WeakValueDictionary

from core.ports import Reaction

SURE_SECONDS = 4.0
"""How long a cached reaction is trusted. Other processes take over a run only after a longer silence."""
MESSAGES_MAX = 2000
_NOTHING = ("", float("-inf"))


class Reactions:
    """Keeps at most one reaction of the bot on each message. Remembers the last reaction on a message and until when no
    other process can have changed it. After that, fetches the bot's reactions before it changes them."""

    def __init__(self, emoji: dict[Reaction, str], *, sure_seconds: float = SURE_SECONDS) -> None:
        self._emoji = emoji
        self._sure_seconds = sure_seconds
        self._began_at_seconds = time.time()
        self._signs: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def set_only_reaction(
        self,
        message: str,
        reaction: Reaction | None,
        *,
        sent_at_seconds: float,
        add: Callable[[str], Awaitable[object]],
        remove: Callable[[str], Awaitable[object]],
        fetch_own: Callable[[], Awaitable[Iterable[str] | None]],
    ) -> None:
        """Makes `reaction` the bot's only reaction on the message, or removes all of them if None. Adds the new
        reaction before it removes others.

        `message` identifies the message, and `sent_at_seconds` is its Unix time. `fetch_own` returns the bot's
        reactions on it, or None if they cannot be read. Calls for the same message wait for each other, because the end
        of one run and the start of the next may set reactions on it."""
        lock = self._locks.setdefault(message, asyncio.Lock())
        async with lock:
            wanted = self._emoji[reaction] if reaction else ""
            is_new, is_sure = message not in self._signs, self.is_cache_valid(message)
            last, _ = self._signs.get(message, _NOTHING)
            self._put(message, last, is_sure=False)
            if is_new and reaction in ("seen", "queued"):
                # a reaction left by an earlier process is removed when the run ends
                await add(wanted)
                # an earlier process may have reacted to older messages
                is_recent = time.time() - sent_at_seconds < self._sure_seconds
                self._put(message, wanted, is_sure=is_recent and sent_at_seconds > self._began_at_seconds)
                return
            known = {last}
            found = known if is_sure else await fetch_own()
            if wanted and (found is None or wanted not in found):
                await add(wanted)
            for emoji in {*(known if found is None else found)} - {wanted, ""}:
                await remove(emoji)
            self._put(message, wanted, is_sure=True)

    def is_cache_valid(self, message: str) -> bool:
        """Whether the remembered reaction is certainly the only reaction of the bot on `message`."""
        return time.monotonic() < self._signs.get(message, _NOTHING)[1]

    def _put(self, message: str, sign: str, *, is_sure: bool) -> None:
        until = time.monotonic() + self._sure_seconds if is_sure else float("-inf")
        self._signs[message] = (sign, until)
        self._signs.move_to_end(message)
        while len(self._signs) > MESSAGES_MAX:
            self._signs.popitem(last=False)
