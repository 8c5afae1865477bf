"""Reading the JSON object of an action's input, as long as it takes, whatever stands in its strings."""

import re

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class ObjectReader:
    """Follows one JSON object piece by piece up to its last bracket. Work is linear in the text."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def feed(self, text: str, at: int) -> int | None:
        """Where the object ends, just after its last bracket; None while it goes on."""
        if self._is_escaped and at < len(text):
            self._is_escaped, at = False, at + 1
        while match := (_INSIDE if self._is_string else _OUTSIDE).search(text, at):
            at = match.end()
            match match.group():
                case '"':
                    self._is_string = not self._is_string
                case "\\":
                    self._is_escaped = at == len(text)
                    at += 1
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None
