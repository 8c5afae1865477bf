"""Shows a program every payload that the simulated platforms take and send, as it passes.

    with recording(lambda kind, payload: print(kind, payload)):
        ...

A kind names the platform, then what is sent: `slack chat.postMessage: arguments`, `slack events_api`,
`discord POST /channels/{channel}/messages: answer`, `discord frame to the bot`. Calls that are refused have the kind
`slack refusal` or `discord refusal`, and are shown without their arguments.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Recorder = Callable[[str, object], None]
"""Receives a kind and a payload, which must not be changed. Frames are JSON text."""

_recorders: list[Recorder] = []


@contextmanager
def recording(recorder: Recorder) -> Generator[None]:
    """Context manager: inside the block, the recorder is called with every payload of every simulator."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.remove(recorder)


def record(kind: str, payload: object) -> None:
    """Shows a payload to those who record."""
    for recorder in _recorders:
        recorder(kind, payload)
