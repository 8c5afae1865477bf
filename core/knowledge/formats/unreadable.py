"""Why a file is not read, as codes that the parent process has sentences for."""

from typing import Literal

Reason = Literal[
    "broken",
    "protected",
    "empty",
    "scanned",
    "unsupported",
    "old_office",
    "pages",
    "cells",
    "unpacked",
    "hostile",
    "nested",
    "text",
    "memory",
]


class Unreadable(Exception):
    """`fact` is a figure for the sentence: the number of pages, of bytes."""

    def __init__(self, reason: Reason, fact: str = "") -> None:
        super().__init__(reason, fact)
        self.reason: Reason = reason
        self.fact = fact
