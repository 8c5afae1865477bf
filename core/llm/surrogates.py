"""Characters that a stream cut in two: servers that write JSON in ASCII may cut between the halves of one."""

import re

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]")


class Halves:
    """Makes the texts of one answer valid Unicode. State: the first half that each text ended with."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str | int, str] = {}

    def joined(self, place: str | int, piece: str) -> str:
        """The next piece of the text at that place. Its last half waits for the other one; a half that gets none is
        a replacement character, or nothing at the end of the text."""
        if not self._waiting and (piece.isascii() or _HALF.search(piece) is None):
            return piece
        whole = self._waiting.pop(place, "") + piece if piece else ""
        if _FIRST_HALF.match(whole, len(whole) - 1):
            self._waiting[place] = whole[-1]
            whole = whole[:-1]
        return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
