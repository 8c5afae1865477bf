"""Reading an answer out of server-sent events as the pieces of the stream come."""

import json
from collections.abc import Iterator, Sequence
from typing import cast

import jiter

from core.domain.errors import ModelUnavailable
from core.llm import errors
from core.llm.openai_chunks import AnswerReader
from core.ports import ModelDelta

LINE_BYTES_MAX = 16 * 1024 * 1024


class EventReader:
    """State: the line that has only begun, and whether the end was told."""

    __slots__ = ("_answer", "_pending", "_pending_bytes", "is_over")

    def __init__(self, answer: AnswerReader) -> None:
        self._answer = answer
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.is_over = False

    def feed(self, piece: bytes) -> Iterator[ModelDelta]:
        """What the piece made whole; what follows [DONE] is passed over. Raises a ModelError for what is no answer."""
        *whole, rest = piece.split(b"\n")
        if whole and self._pending:
            whole[0] = b"".join((*self._pending, whole[0]))
            self._pending, self._pending_bytes = [], 0
        for line in whole:
            if line.startswith(b"data:"):
                yield from self._read(line[5:].strip())
                if self.is_over:
                    return
        if rest:
            self._pending.append(rest)
            self._pending_bytes += len(rest)
            if self._pending_bytes > LINE_BYTES_MAX:
                raise ModelUnavailable(errors.UNREADABLE, detail="a line of the stream is too long")

    def close(self) -> Iterator[ModelDelta]:
        """The stream is over, perhaps without the end of its last line. Raises ModelUnavailable where the answer is
        not over with it."""
        if self._pending and not self.is_over:
            yield from self.feed(b"\n")
        if not self.is_over and not self._answer.is_finished:
            raise ModelUnavailable(errors.BROKEN_OFF, detail="the stream ended without its end")
        yield from self._answer.rest()

    def _read(self, content: bytes) -> Sequence[ModelDelta]:
        if content == b"[DONE]":
            self.is_over = True
        elif content:
            return self._answer.read(json_object(content))
        return ()


def json_object(content: bytes) -> dict[str, object]:
    """Raises ModelUnavailable for anything else."""
    try:
        body = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(errors.UNREADABLE, detail=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ModelUnavailable(errors.UNREADABLE, detail="not a JSON object")
    return cast(dict[str, object], body)


def _parsed(content: bytes) -> object:
    """Half of a surrogate pair is taken, too: the other one may come with the next piece."""
    try:
        return cast(object, jiter.from_json(content, cache_mode="keys"))
    except ValueError:
        if b"\\ud" not in content.lower():
            raise
        return cast(object, json.loads(content))
