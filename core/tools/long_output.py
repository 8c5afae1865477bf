"""Long text from outside: shown as far as there is room, and kept whole in the workspace."""

from collections.abc import AsyncIterator
from contextlib import suppress

from core.context.untrusted_text import wrap_untrusted
from core.domain.errors import AgentError, ToolError
from core.tools.tool import ToolContext


async def shown(text: str, *, source: str, room: int, path: str, context: ToolContext) -> str:
    """The text as data. What has no room goes to the file, where there is a sandbox."""
    if len(text) <= room:
        return wrap_untrusted(text, source=source)
    note = f"[{len(text) - room} characters more are left out"
    with suppress(AgentError, ToolError):
        files = (await context.sandbox()).files
        await files.write(path, _pieces(text))
        note += f"; all of it is in {path}"
    return f"{wrap_untrusted(text[:room], source=source)}\n{note}]"


async def _pieces(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
