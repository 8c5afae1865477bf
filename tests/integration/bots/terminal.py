"""A program in a terminal of 80 columns, with what it asks and what is typed."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ANSWER_SECONDS = 60.0
KEYS = {"^D": "\x04", "^C": "\x03"}


async def play_in_terminal(
    arguments: Sequence[str],
    turns: Sequence[tuple[str, str]],
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, int | None]:
    """Runs Python with the arguments and returns what the terminal showed, and the exit code.

    Each turn waits until what is shown since the last turn ends with a text, and types the answer and Enter; "^D" and
    "^C" are the keys.
    """
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        cwd=folder,
        env=None if environ is None else {**environ, "TERM": "xterm", "PYTHONUTF8": "1"},
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(child)
    screen = _Screen(parent)
    try:
        for awaited, answer in turns:
            await screen.wait_for(awaited)
            os.write(parent, KEYS.get(answer, f"{answer}\n").encode())
        await asyncio.wait_for(process.wait(), ANSWER_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        shown = screen.close()
    return shown, process.returncode


def _own_terminal() -> None:
    """Makes the terminal the child's own, so that its keys become signals."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Screen:
    """Reads what is written to the terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = b""
        self._seen = 0
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._descriptor, 1 << 16)
        except OSError:  # the other side is closed
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._changed.set()

    async def wait_for(self, text: str) -> None:
        """Waits until the output since the last wait ends with the text."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while not self._shown[self._seen :].decode(errors="replace").endswith(text):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {text!r} at the end of {self._shown.decode()}") from None
        self._seen = len(self._shown)

    def close(self) -> str:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.set_blocking(self._descriptor, False)
        try:
            while more := os.read(self._descriptor, 1 << 16):
                self._shown += more
        except OSError:
            pass
        os.close(self._descriptor)
        return self._shown.decode(errors="replace")
