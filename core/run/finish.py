"""Ends runs: builds their results and deliveries, and fails poison runs, whose workers keep dying."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from core.domain.errors import AgentError, SandboxUnavailable
from core.domain.events import RunFailed, RunFinished, Terminal
from core.domain.messages import JsonObject
from core.domain.threads import Lease, Reply, Run, Thread, ToolCallRecord
from core.ports import Sandbox
from core.run.agent_config import dialect_for_run
from core.run.deps import RunDeps
from core.run.history_repair import RepairContext, repair_history
from core.run.recorder import RunRecorder
from core.stores import DeliveryDraft, RunResult
from core.tools.tool import ToolContext, ToolSet

DRAWING_TOOL = "image_edit_or_generate"


def build_run_result(terminal: Terminal, earlier: Sequence[Reply] = ()) -> RunResult:
    """Returns the run result for the terminal event, with the deliveries for the outbox.

    A failed run still delivers its `earlier` replies.
    """
    if isinstance(terminal, RunFailed):
        kept = join_replies(earlier, None)
        return RunResult(
            status="failed",
            finish_reason=None,
            error=terminal.public_message,
            deliveries=delivery_drafts(kept) if kept else (),
        )
    return RunResult(
        status=terminal.status,
        finish_reason=terminal.finish_reason,
        reply=terminal.reply,
        deliveries=delivery_drafts(terminal.reply) if terminal.reply else (),
    )


def join_replies(earlier: Sequence[Reply], last: Reply | None) -> Reply | None:
    """Returns the run's last reply after those which messages from people kept from ending the run, because the model
    takes those for read."""
    texts = [text for one in earlier if (text := one.whole_text.strip())]
    files = dict.fromkeys(path for one in earlier for path in one.attachments)
    if not texts and not files:
        return last
    reply = last or Reply(kind="answer", text="")
    if reply.kind in ("answer", "silence"):
        own = reply.whole_text.strip()
        text = "\n\n".join([*texts, own]).strip()
        reply = replace(reply, kind="answer", text=text, preface="")
    else:
        reply = replace(reply, preface="\n\n".join([*texts, reply.preface]).strip())
    files |= dict.fromkeys(reply.attachments)
    return replace(reply, attachments=tuple(files))


def attach_drawn_pictures(ended: RunFinished, calls: Sequence[ToolCallRecord]) -> RunFinished:
    """Returns the finished run with every generated image attached to its reply, whether or not the model named it."""
    reply = ended.reply
    if reply is None:
        return ended
    named = {path.removeprefix("/workspace/") for path in reply.attachments}
    drawn = dict.fromkeys(path for one in calls if (path := _picture(one)) and path not in named)
    return replace(ended, reply=replace(reply, attachments=(*reply.attachments, *drawn)))


def _picture(record: ToolCallRecord) -> str:
    output = (record.result or {}).get("output") if record.name == DRAWING_TOOL else None
    return str(output.get("file_path") or "") if isinstance(output, dict) else ""


def delivery_drafts(reply: Reply) -> tuple[DeliveryDraft, ...]:
    """Returns the deliveries of the reply's text and one for each attached file. Attached links are added to the
    text."""
    links = [one for one in reply.attachments if one.startswith(("http://", "https://"))]
    paths = [one for one in reply.attachments if one not in links]
    first, last = reply.parts
    text = "\n".join([last, *links]).strip()
    files = tuple(
        DeliveryDraft(slot="file", ordinal=ordinal, body={"path": path})
        for ordinal, path in enumerate(dict.fromkeys(paths))
    )
    answer = text if reply.kind == "answer" else first
    answers = (DeliveryDraft(slot="answer", body={"text": answer}),) if answer else ()
    if reply.kind == "silence":
        return ()
    if reply.kind == "answer":
        return (*answers, *files)
    body: JsonObject = {"text": text, "options": list(reply.options)}
    return (*answers, DeliveryDraft(slot="ask", body=body), *files)


log = logging.getLogger(__name__)

WORKER_DEATHS_MAX = 5
"""A run fails if more workers than this die in a row while executing it."""
STOPPED_AT_THE_SAME_PLACE = (
    "The work stopped several times at the same place; it is not tried again by itself. "
    "Retry starts it once more: asking for smaller steps may help."
)


async def fail_poison_run(
    lease: Lease, run: Run, thread: Thread, deps: RunDeps, recorder: RunRecorder
) -> None:
    """Raises AgentError if more than WORKER_DEATHS_MAX workers in a row died while executing the run.

    Before the first such error, repairs the thread's history so that later runs can continue the thread.
    """
    if not lease.deaths:
        return
    log.warning(
        "run %s: its worker died, which makes %d in a row before a turn was finished; more than %d are not tried",
        lease.run_id,
        lease.deaths,
        WORKER_DEATHS_MAX,
    )
    if lease.deaths <= WORKER_DEATHS_MAX:
        return
    if (
        lease.deaths == WORKER_DEATHS_MAX + 1
    ):  # repairs only once, because the repair itself may kill the worker
        await _make_whole(run, thread, deps, recorder)
    raise AgentError(
        STOPPED_AT_THE_SAME_PLACE,
        detail=f"{lease.deaths} workers in a row died over it; this was attempt {lease.attempt}",
    )


async def _make_whole(run: Run, thread: Thread, deps: RunDeps, recorder: RunRecorder) -> None:
    """Adds a result for every open tool call without running it, so that later runs can continue the thread."""
    repair = RepairContext(
        dialect=await dialect_for_run(run, thread, deps),
        toolbox=ToolSet({}),
        context=ToolContext(thread_id=run.thread_id, run_id=run.run_id, sandbox=_no_sandbox),
        run_log=recorder,
        runs_calls=False,
    )
    history = await deps.stores.conversations.history(run.thread_id)
    await repair_history(history, await deps.stores.journal.calls(run.run_id), repair)
    await recorder.commit()


async def _no_sandbox() -> Sandbox:
    raise SandboxUnavailable("Nothing is run here any more.")
