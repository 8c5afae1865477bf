"""What the browser's server is told at its start, and the refusals that it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 1280, 800


class Refused(Exception):
    """An action cannot be done; the text tells the model why and what to do next."""


@dataclass(frozen=True)
class Setting:
    """`root` is the workspace's folder, `scratch` one for what need not last. `proxy` may be empty."""

    socket: str
    root: str
    scratch: str
    chromium: str
    proxy: str = ""

    @property
    def profile(self) -> str:
        return f"{self.root}/.browser"

    @property
    def downloads(self) -> str:
        return f"{self.root}/downloads"

    @classmethod
    def of(cls, value: dict[str, Any]) -> Setting:
        return cls(**{name: str(value.get(name, "")) for name in cls.__dataclass_fields__})
