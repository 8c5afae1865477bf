"""A cache of the last reaction that this process set on each message."""

import time
from collections import OrderedDict

SURE_SECONDS = 4.0
"""How long a cached reaction is trusted. Other processes take over a run only after a longer silence."""
_KEPT_MAX = 2000


class ReactionCache:
    """Remembers the last reaction on each message and until when no other process can have changed it."""

    def __init__(self, *, sure_seconds: float = SURE_SECONDS) -> None:
        self._sure_seconds = sure_seconds
        self._began_at_seconds = time.time()
        self._signs: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def last(self, message: str) -> str | None:
        """Returns the last reaction set on `message`.

        Returns an empty string if all reactions were removed, and None if this process never set a reaction there.
        """
        return self._signs.get(message, (None, 0.0))[0]

    def is_sure(self, message: str) -> bool:
        """Whether the cached reaction is certainly the only reaction of the bot on `message`."""
        until = self._signs.get(message, ("", float("-inf")))[1]
        return time.monotonic() < until

    def is_new(self, sent_at_seconds: float) -> bool:
        """Whether only this process can have reacted to the message with this Unix time.

        The process that this one replaces may have reacted to older messages.
        """
        age_seconds = time.time() - sent_at_seconds
        return sent_at_seconds > self._began_at_seconds and age_seconds < self._sure_seconds

    def put(self, message: str, sign: str, *, is_sure: bool = True) -> None:
        until = time.monotonic() + self._sure_seconds if is_sure else float("-inf")
        self._signs[message] = (sign, until)
        self._signs.move_to_end(message)
        while len(self._signs) > _KEPT_MAX:
            self._signs.popitem(last=False)
