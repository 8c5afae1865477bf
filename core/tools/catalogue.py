"""Finds all tools: every module-level `Tool` in this package. To add a tool, add a module that defines it."""

import importlib
import pkgutil
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


def tools_without_service(outside: WebServices) -> frozenset[str]:
    """Returns the names of the tools whose external service is not configured."""
    services: dict[Requirement, object] = {
        "search": outside.search,
        "page_reader": outside.pages,
        "image_model": outside.image_generator,
        "data_providers": outside.providers,
        "site_hosting": outside.sites,
    }
    missing = {requirement for requirement, service in services.items() if service is None}
    return frozenset(name for name, tool in all_tools().items() if not missing.isdisjoint(tool.requires))


def build_tool_set(
    *,
    disabled: frozenset[str] = frozenset(),
    has_sandbox: bool = True,
    has_knowledge: bool = False,
    has_browser: bool = True,
    has_agents: bool = False,
) -> ToolSet:
    """Returns the tools that a run can use.

    `disabled` lists the names of tools to leave out. The other parameters state whether the run has a sandbox, a
    knowledge base, a browser and agents that admins may change; tools that require a missing feature are left out.
    """
    available: dict[Requirement, bool] = {
        "sandbox": has_sandbox,
        "browser": has_browser,
        "knowledge": has_knowledge,
        "agents": has_agents,
    }
    missing = {requirement for requirement, is_there in available.items() if not is_there}
    return ToolSet(
        {name: tool for name, tool in all_tools().items() if name not in disabled and missing.isdisjoint(tool.requires)}
    )
