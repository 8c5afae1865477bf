"""Finds all tools: every module-level `Tool` in this package. To add a tool, add a module that defines it."""

import importlib
import pkgutil
from collections.abc import Collection
from functools import cache
from types import ModuleType
from typing import Any, cast

import core.tools
from core.tools.tool import Requirement, Tool, ToolSet
from core.web_access.services import WebServices


@cache
def all_tools() -> dict[str, Tool[Any]]:
    """Returns every tool by its name. Raises ValueError if two tools have the same name."""
    tools: dict[str, Tool[Any]] = {}
    modules = pkgutil.walk_packages(core.tools.__path__, prefix="core.tools.")
    for module_name in sorted(info.name for info in modules if not info.ispkg):
        for tool in module_tools(importlib.import_module(module_name)):
            if tools.setdefault(tool.name, tool) is not tool:
                raise ValueError(f"two tools are named {tool.name!r}")
    return tools


def module_tools(module: ModuleType) -> list[Tool[Any]]:
    """Returns the tools that a module defines at its top level."""
    return [cast(Tool[Any], value) for value in vars(module).values() if isinstance(value, Tool)]


def missing_services(outside: WebServices) -> set[Requirement]:
    """Returns the external services that are not configured."""
    services: dict[Requirement, object] = {
        "search": outside.search,
        "page_reader": outside.pages,
        "image_model": outside.image_generator,
        "data_providers": outside.providers,
        "site_hosting": outside.sites,
    }
    return {requirement for requirement, service in services.items() if service is None}


def build_tool_set(missing: Collection[Requirement] = ("knowledge", "agents")) -> ToolSet:
    """Returns all tools, except those that require something that is missing."""
    return ToolSet(all_tools()).without(missing)
