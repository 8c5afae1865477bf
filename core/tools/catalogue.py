"""All tools by name: every `Tool` at the top of a module below this package. A new tool is one new file."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any, cast

import core.tools
from core.tools import knowledge, python_execute, search_conversation, shell
from core.tools.browser import input, pages
from core.tools.images import image_edit_or_generate
from core.tools.tool import Tool, Toolbox
from core.tools.web import data_providers, deploy, expose_port, scrape_webpage, web_search
from core.tools.workspace import files, str_replace_editor
from core.web_access.services import WebServices


@cache
def catalogue() -> dict[str, Tool[Any]]:
    """Every tool there is. Raises ValueError where two share a name."""
    found: dict[str, Tool[Any]] = {}
    modules = pkgutil.walk_packages(core.tools.__path__, prefix="core.tools.")
    for module_name in sorted(info.name for info in modules if not info.ispkg):
        for tool in tools_of(importlib.import_module(module_name)):
            if found.setdefault(tool.name, tool) is not tool:
                raise ValueError(f"two tools are named {tool.name!r}")
    return found


def tools_of(module: ModuleType) -> list[Tool[Any]]:
    """The tools that stand at the top of a module."""
    return [cast(Tool[Any], value) for value in vars(module).values() if isinstance(value, Tool)]


def unserved(outside: WebServices) -> frozenset[str]:
    """The tools whose service outside is not set up."""
    served: dict[ModuleType, object] = {
        web_search: outside.search,
        scrape_webpage: outside.pages,
        image_edit_or_generate: outside.image_generator,
        data_providers: outside.providers,
        deploy: outside.sites,
    }
    return frozenset(
        tool.name
        for module, service in served.items()
        if service is None
        for tool in tools_of(module)
    )


def toolbox(
    *,
    disabled: frozenset[str] = frozenset(),
    needs_sandbox: bool = True,
    with_knowledge: bool = False,
    with_browser: bool = True,
) -> Toolbox:
    """The tools of a run. Without a sandbox those that live in one are left out, without a browser in it those that use
    it, without a knowledge base those that look things up there."""
    left_out = set(disabled)
    if not needs_sandbox or not with_browser:
        left_out |= {tool.name for module in (pages, input) for tool in tools_of(module)}
    if not needs_sandbox:
        in_sandbox = (
            files,
            shell,
            python_execute,
            str_replace_editor,
            expose_port,
            deploy,
            image_edit_or_generate,
        )
        left_out |= {tool.name for module in in_sandbox for tool in tools_of(module)}
        left_out.add(knowledge.ask_document.name)
    if not with_knowledge:
        looking_up = (knowledge, search_conversation)
        left_out |= {tool.name for module in looking_up for tool in tools_of(module)}
    return Toolbox({name: tool for name, tool in catalogue().items() if name not in left_out})
