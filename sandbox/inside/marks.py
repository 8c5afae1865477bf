"""The marks that the shell's prompt leaves in the terminal's stream, told from what commands print.

A mark is an OSC sequence with a nonce: the last exit code, the number of the line begun last, and the pid of the shell.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK_BYTES_MAX = 64
NUMBER = "THREADHAND_LINE"  # a variable of the shell's, not of its environment


class Mark:
    """`number` is empty in a shell that has begun none of our lines."""

    __slots__ = ("exit_code", "number", "pid")

    def __init__(self, exit_code: int, number: bytes = b"", pid: bytes = b"") -> None:
        self.exit_code, self.number, self.pid = exit_code, number, pid

    def is_news_after(self, last: Mark) -> bool:
        """Otherwise the same shell has begun no line of ours since, and showed its prompt for another reason."""
        return (self.number, self.pid) != (last.number, last.pid)


def prompt_command(nonce: str) -> str:
    """For PROMPT_COMMAND. To /dev/tty, so that it survives `exec >file`."""
    return rf"""printf '\033]697;{nonce};%s;%s;%s\a' $? "${{{NUMBER}-}}" $$ >/dev/tty"""


class Marks:
    """Keeps what may be the start of a mark until the rest has come."""

    def __init__(self, nonce: str) -> None:
        self._start = f"\033]697;{nonce};".encode()
        self._held = b""

    def take(self, piece: bytes) -> Iterator[bytes | Mark]:
        text = self._held + piece
        self._held = b""
        while (start := text.find(b"\033")) >= 0:
            found = text.find(self._start, start)
            if found < 0:
                keep = overlap(text, self._start)
                yield text[: len(text) - keep]
                self._held = text[len(text) - keep :]
                return
            end = text.find(b"\a", found, found + MARK_BYTES_MAX)
            if end < 0 and len(text) - found < MARK_BYTES_MAX:
                yield text[:found]
                self._held = text[found:]
                return
            mark = _parsed(text[found + len(self._start) : end]) if end >= 0 else None
            cut = end + 1 if mark else found + 1  # it may look like ours and be none
            yield text[:found] if mark else text[:cut]
            if mark:
                yield mark
            text = text[cut:]
        yield text

    def rest(self) -> bytes:
        """What was held, when nothing more will come."""
        held, self._held = self._held, b""
        return held


def _parsed(body: bytes) -> Mark | None:
    parts = body.split(b";")
    if len(parts) != 3 or not (parts[0].isdigit() and parts[2].isdigit()):
        return None
    return Mark(int(parts[0]), parts[1], parts[2])


def overlap(text: bytes, start: bytes) -> int:
    """How many of the last bytes may be the beginning of a mark."""
    for length in range(min(len(text), len(start) - 1), 0, -1):
        if text.endswith(start[:length]):
            return length
    return 0
