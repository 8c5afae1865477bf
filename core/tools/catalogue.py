"""Finds all tools: every `Tool` at the top of a module below this package, so a new tool is one new file."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any, cast

import core.tools
from core.tools.tool import Requirement, Tool, Toolbox
from core.web_access.services import WebServices


@cache
def catalogue() -> dict[str, Tool[Any]]:
    """Returns every tool by its name. Raises ValueError if two tools have the same name."""
    tools: dict[str, Tool[Any]] = {}
    modules = pkgutil.walk_packages(core.tools.__path__, prefix="core.tools.")
    for module_name in sorted(info.name for info in modules if not info.ispkg):
        for tool in tools_of(importlib.import_module(module_name)):
            if tools.setdefault(tool.name, tool) is not tool:
                raise ValueError(f"two tools are named {tool.name!r}")
    return tools


def tools_of(module: ModuleType) -> list[Tool[Any]]:
    """Returns the tools at the top of a module."""
    return [cast(Tool[Any], value) for value in vars(module).values() if isinstance(value, Tool)]


def unserved(outside: WebServices) -> frozenset[str]:
    """Returns the names of the tools whose external service is not set up."""
    services: dict[Requirement, object] = {
        "search": outside.search,
        "page_reader": outside.pages,
        "image_model": outside.image_generator,
        "data_providers": outside.providers,
        "site_hosting": outside.sites,
    }
    missing = {requirement for requirement, service in services.items() if service is None}
    return frozenset(
        name for name, tool in catalogue().items() if not missing.isdisjoint(tool.requires)
    )


def toolbox(
    *,
    disabled: frozenset[str] = frozenset(),
    needs_sandbox: bool = True,
    with_knowledge: bool = False,
    with_browser: bool = True,
) -> Toolbox:
    """Returns all tools that work in a run with or without a sandbox, a browser in it, and a knowledge base."""
    available: dict[Requirement, bool] = {
        "sandbox": needs_sandbox,
        "browser": with_browser,
        "knowledge": with_knowledge,
    }
    missing = {requirement for requirement, is_there in available.items() if not is_there}
    return Toolbox(
        {
            name: tool
            for name, tool in catalogue().items()
            if name not in disabled and missing.isdisjoint(tool.requires)
        }
    )
