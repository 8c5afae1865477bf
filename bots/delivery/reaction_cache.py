"""The sign that stands on a message, as this process knows it: another one may have shown the run meanwhile."""

import time
from collections import OrderedDict

SURE_SECONDS = 4.0
"""So long a process has to be silent before another shows its runs."""
_KEPT_MAX = 2000


class ReactionCache:
    """By message, what was put there last and since when nobody else can have put anything."""

    def __init__(self, *, sure_seconds: float = SURE_SECONDS) -> None:
        self._sure_seconds = sure_seconds
        self._signs: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def last(self, message: str) -> str | None:
        """ "" after all were taken away, None where this process never put one."""
        return self._signs.get(message, (None, 0.0))[0]

    def is_sure(self, message: str) -> bool:
        """Whether the last one is all that stands there."""
        until = self._signs.get(message, ("", float("-inf")))[1]
        return time.monotonic() < until

    def put(self, message: str, sign: str, *, is_sure: bool = True) -> None:
        until = time.monotonic() + self._sure_seconds if is_sure else float("-inf")
        self._signs[message] = (sign, until)
        self._signs.move_to_end(message)
        while len(self._signs) > _KEPT_MAX:
            self._signs.popitem(last=False)
