"""The threads in which discord.py keeps connections alive."""

import threading

import discord
from discord.gateway import KeepAliveHandler


def end(client: discord.Client) -> None:
    """Ends those that the client's `close` does not know.

    A connection is the client's only once it has identified itself, for which several shards wait five seconds each;
    its heart beats from the greeting on, and would do so after the event loop's end.
    """
    for thread in threading.enumerate():
        if isinstance(thread, KeepAliveHandler) and _is_of(thread, client):
            thread.stop()


def _is_of(thread: KeepAliveHandler, client: discord.Client) -> bool:
    return thread.ws._dispatch == client.dispatch  # noqa: SLF001 - nothing else says whose it is # pyright: ignore[reportPrivateUsage]
