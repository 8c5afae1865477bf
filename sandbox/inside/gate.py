"""The proxy's end in a sandbox without a network: a socket that listens inside and is served by the host."""

from __future__ import annotations

import os
import socket

ADDRESS = ("127.0.0.1", 3128)
BACKLOG = 128


def hand_out(descriptor: int) -> None:
    """Listens, and sends the listening socket over that UNIX socket; keeps neither. Done before anything else runs."""
    with socket.socket(fileno=descriptor) as to_the_host, socket.socket() as listening:
        os.set_inheritable(descriptor, False)
        listening.bind(ADDRESS)
        listening.listen(BACKLOG)
        socket.send_fds(to_the_host, [b"egress"], [listening.fileno()])
