"""The master side of a session's pty."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

TIOCGPTPEER = 0x5441  # not in the module termios; ioctl_tty(2)


class Terminal:
    """What the shell ended or broke is met with silence here: who watches its process finds out."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self.quiet()

    @property
    def foreground(self) -> int:
        """The process group that it listens to; 0 when the terminal is gone."""
        try:
            return os.tcgetpgrp(self.descriptor)
        except OSError:
            return 0

    def quiet(self) -> None:
        """No echo, no translation, whatever the last command did to the terminal."""
        try:
            modes = termios.tcgetattr(self.descriptor)
            modes[0] = (modes[0] | termios.ICRNL) & ~termios.IXON
            modes[1] &= ~termios.ONLCR
            modes[3] = (modes[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
            termios.tcsetattr(self.descriptor, termios.TCSANOW, modes)
            size = struct.pack("HHHH", 50, 200, 0, 0)
            fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)
        except (OSError, termios.error):
            return

    def forget_input(self) -> None:
        """What was typed and not read: only a flush of the other side takes that, as ours is for what is under way."""
        try:
            peer = fcntl.ioctl(self.descriptor, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return
        try:
            termios.tcflush(peer, termios.TCIFLUSH)
        except (OSError, termios.error):
            return
        finally:
            os.close(peer)

    def write(self, text: bytes) -> None:
        """Raises OSError."""
        os.write(self.descriptor, text)

    def read(self) -> bytes | None:
        """What there is now; empty at the end; None when nothing has come."""
        try:
            return os.read(self.descriptor, 65536)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        os.close(self.descriptor)
