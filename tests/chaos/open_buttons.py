"""The buttons of a message that still wait for a click."""

from bots.demo.thread_reader import buttons_of
from simulator.view import Button, SeenMessage

LASTING = ("Details", "Good answer", "Bad answer")
"""These stay when a run is over."""


def open_buttons_of(message: SeenMessage) -> tuple[Button, ...]:
    return tuple(one for one in buttons_of(message) if one.label not in LASTING)
