"""All tools by name: every `Tool` at the top of a module of this package. A new tool is one new file."""

import importlib
import pkgutil
from functools import cache
from typing import Any

import core.tools
from core.tools.tool import Tool, Toolbox


@cache
def catalogue() -> dict[str, Tool[Any]]:
    """Every tool there is. Raises ValueError where two share a name."""
    found: dict[str, Tool[Any]] = {}
    for module_name in sorted(info.name for info in pkgutil.iter_modules(core.tools.__path__)):
        module = importlib.import_module(f"core.tools.{module_name}")
        for value in vars(module).values():
            if isinstance(value, Tool) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"two tools are named {value.name!r}")
    return found


def toolbox(*, disabled: frozenset[str] = frozenset(), needs_sandbox: bool = True) -> Toolbox:
    """The tools of a run. Without a sandbox those that live in one are left out."""
    from core.tools import files, shell

    sandboxed = {
        value.name
        for module in (files, shell)
        for value in vars(module).values()
        if isinstance(value, Tool)
    }
    left_out = disabled if needs_sandbox else disabled | sandboxed
    return Toolbox({name: tool for name, tool in catalogue().items() if name not in left_out})
