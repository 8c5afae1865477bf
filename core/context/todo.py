"""Following todo.md while the agent works: its checklist is told again whenever a call has written the file."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from core.context.checklist import TODO_BYTES_MAX, TODO_PATH, checklist_of, writes_todo
from core.domain.errors import AgentError, ToolError
from core.domain.events import AgentEvent
from core.domain.messages import ToolCall
from core.ports import Sandbox

log = logging.getLogger(__name__)
READ_SECONDS = 5.0


class TodoWatch:
    """Reads the file as it is, one call after the other, so that the last word is the newest. State: the lock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def look(
        self,
        call: ToolCall,
        sandbox: Callable[[], Awaitable[Sandbox]],
        emit: Callable[[AgentEvent], None],
    ) -> None:
        """After a call that did its work. A file that cannot be read changes nothing: the list is for show."""
        if not writes_todo(call.name, call.arguments):
            return
        try:
            async with self._lock, asyncio.timeout(READ_SECONDS):
                text = await _todo_text(await sandbox())
                emit(checklist_of(text))
        except (AgentError, TimeoutError) as error:
            log.warning("todo.md was not read: %s", type(error).__name__)


async def _todo_text(sandbox: Sandbox) -> str:
    """Empty where the file is gone."""
    content = bytearray()
    try:
        async for piece in sandbox.files.read(TODO_PATH, length=TODO_BYTES_MAX):
            content += piece
    except ToolError:
        return ""
    return content[:TODO_BYTES_MAX].decode(errors="replace")
