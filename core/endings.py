"""What a run's end means: for the store, and for the thread that its reply goes to."""

from core.events import RunFailed, Terminal
from core.messages import JsonObject
from core.stores import DeliveryDraft, RunEnding
from core.threads import Reply


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
