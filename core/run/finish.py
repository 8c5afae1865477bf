"""What a run's end means: for the store, and for the thread that its reply goes to."""

from collections.abc import Sequence
from dataclasses import replace

from core.domain.events import RunFailed, RunFinished, Terminal
from core.domain.messages import JsonObject
from core.domain.threads import Reply, ToolCallRecord
from core.stores import DeliveryDraft, RunEnding

DRAWING_TOOL = "image_edit_or_generate"


def ending_of(terminal: Terminal) -> RunEnding:
    """What the terminal event means for the store and the outbox."""
    if isinstance(terminal, RunFailed):
        return RunEnding(status="failed", finish_reason=None, error=terminal.public_message)
    return RunEnding(
        status=terminal.status,
        finish_reason=terminal.finish_reason,
        reply=terminal.reply,
        deliveries=drafts_of(terminal.reply) if terminal.reply else (),
    )


def with_pictures(ended: RunFinished, calls: Sequence[ToolCallRecord]) -> RunFinished:
    """People get the pictures that were drawn for them, whether the reply names them or not."""
    reply = ended.reply
    if reply is None:
        return ended
    named = {path.removeprefix("/workspace/") for path in reply.attachments}
    drawn = dict.fromkeys(path for one in calls if (path := _picture(one)) and path not in named)
    return replace(ended, reply=replace(reply, attachments=(*reply.attachments, *drawn)))


def _picture(record: ToolCallRecord) -> str:
    output = (record.result or {}).get("output") if record.name == DRAWING_TOOL else None
    return str(output.get("file_path") or "") if isinstance(output, dict) else ""


def drafts_of(reply: Reply) -> tuple[DeliveryDraft, ...]:
    """The messages and files that a reply leaves to deliver; links are written under the text."""
    links = [one for one in reply.attachments if one.startswith(("http://", "https://"))]
    paths = [one for one in reply.attachments if one not in links]
    text = "\n".join([reply.text, *links]).strip()
    files = tuple(
        DeliveryDraft(slot="file", ordinal=ordinal, body={"path": path})
        for ordinal, path in enumerate(dict.fromkeys(paths))
    )
    if reply.kind == "answer":
        return (DeliveryDraft(slot="answer", body={"text": text}), *files) if text else files
    body: JsonObject = {"text": text, "options": list(reply.options)}
    return (DeliveryDraft(slot="ask", body=body), *files)
