"""The chat command `export`, which uploads a conversation as a file."""

import json
from collections.abc import AsyncIterator

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.forget import ForgetDeps
from core.context.message_text import full_message_text
from core.domain.errors import SurfaceError
from core.domain.threads import Selection, ThreadSnapshot
from core.ports import OutgoingFile

EXPORT_NAME = "conversation.json"


async def answer_export(called: CommandCalled, snapshot: ThreadSnapshot, deps: ForgetDeps) -> Outcome:
    """Answers `export`: posts the conversation and its schedules as a JSON file."""
    thread_id = snapshot.thread.thread_id
    entries = [
        {
            "at": message.created_at.isoformat(),
            "type": message.type,
            "from": str(message.metadata.get("author") or ""),
            "text": full_message_text(message),
        }
        for message in await deps.conversations.llm_messages(thread_id)
        if message.is_dialogue
    ]
    entries += [
        {
            "at": schedule.armed_at.isoformat(),
            "type": "schedule",
            "from": schedule.owner.name,
            "text": f"{schedule.task} ({schedule.headline})",
        }
        for schedule in await deps.schedules.list_schedules(Selection.of_channel(called.address))
        if schedule.thread_id == thread_id
    ]
    content = json.dumps(entries, ensure_ascii=False, indent=1).encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    file = OutgoingFile(name=EXPORT_NAME, size_bytes=len(content), pieces=pieces())
    try:
        await deps.upload(called.address, file)
    except SurfaceError as error:
        return Outcome(notice=f"The export could not be posted: {error}")
    return Outcome(notice=f"The conversation is in `{EXPORT_NAME}`.", is_private=False)
