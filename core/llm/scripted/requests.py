"""What was sent to the scripted model."""

import json
from collections import deque
from collections.abc import Sequence
from typing import cast, overload

from core.domain.messages import JsonObject

KEPT_MAX = 1000


class Requests(Sequence[JsonObject]):
    """The newest bodies, in order, kept as text: the garbage collector would walk through a thousand trees again and
    again, which took a quarter of the time of this endpoint."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=KEPT_MAX)

    def add(self, text: str) -> None:
        """`text` is JSON that has been read before."""
        self._texts.append(text)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> JsonObject: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JsonObject]: ...
    def __getitem__(self, index: int | slice) -> JsonObject | Sequence[JsonObject]:
        if isinstance(index, slice):
            return [_read(text) for text in list(self._texts)[index]]
        return _read(self._texts[index])

    def __repr__(self) -> str:
        return repr(list(self))


def _read(text: str) -> JsonObject:
    return cast(JsonObject, json.loads(text))
