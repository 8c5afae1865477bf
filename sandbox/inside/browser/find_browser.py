"""Finds a Python with Playwright and a Chromium in a sandbox.

Imports nothing of this package, because a probe also sends the text of this file to a sandbox and runs it there, with
the search paths as JSON in its first argument.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from typing import Any


def find_browser(places: dict[str, Any]) -> dict[str, str] | None:
    """Returns the settings for `BrowserLauncher`, or None. `pythons` and `chromiums` are path patterns, best first."""
    from glob import iglob  # only here: not every sandbox needs it

    def first(patterns: list[str]) -> str | None:
        paths = (path for pattern in patterns for path in sorted(iglob(pattern), reverse=True))
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def has_playwright(python: str) -> bool:
        prefix = os.path.dirname(os.path.dirname(python))
        return any(iglob(f"{prefix}/lib/python3*/*-packages/playwright/__init__.py"))

    pythons = [path for path in places["pythons"] if has_playwright(path)]
    python, chromium = first(pythons), first(places["chromiums"])
    return {"python": python, "chromium": chromium} if python and chromium else None


if __name__ == "__main__":
    import json  # only here: its import is slow

    print("browser" if find_browser(json.loads(sys.argv[1])) else "no browser")  # noqa: T201
