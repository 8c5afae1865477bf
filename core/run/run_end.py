"""Ends runs: builds their results and deliveries, and fails poison runs, whose workers keep dying."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from core.domain.errors import RunError, SandboxUnavailable
from core.domain.events import RunFailed, Terminal
from core.domain.json import JsonObject, json_fields
from core.domain.threads import Lease, Reply, ToolCallRecord
from core.ports import Sandbox
from core.run.deps import RunDeps
from core.run.history_repair import NEVER_STARTED, RepairContext, repair_history
from core.run.recorder import RunRecorder
from core.stores import REPLY_ORDINALS, DeliveryDraft, RunResult
from core.tools.pictures import is_web_url
from core.tools.tool import ToolContext, ToolSet

DRAWING_TOOL = "image_edit_or_generate"


def build_run_result(terminal: Terminal, *, earlier_replies: int = 0) -> RunResult:
    """Returns the run result for the terminal event, with the deliveries for the outbox.

    If the run ended with a notice to users (it was stopped or reached a limit), it stays ended even if they write
    again."""
    if isinstance(terminal, RunFailed):
        return RunResult(status="failed", finish_reason=None, error=terminal.public_message)
    return RunResult(
        status=terminal.status,
        finish_reason=terminal.finish_reason,
        reply=terminal.reply,
        deliveries=build_delivery_drafts(terminal.reply, earlier_replies) if terminal.reply else (),
        yields_to_input=terminal.status == "completed" and not terminal.message,
    )


def turn_question_into_answer(reply: Reply) -> Reply:
    """Turns a question into an answer that waits for no reply, because users wrote before the question was posted."""
    if reply.kind in ("answer", "silence"):
        return reply
    options = "\n".join(f"- {option}" for option in reply.options)
    text = "\n\n".join(part for part in (reply.whole_text, options) if part)
    return replace(reply, kind="answer", text=text, preface="", options=())


def attach_drawn_pictures(reply: Reply, calls: Sequence[ToolCallRecord]) -> Reply:
    """Returns the reply with every image attached that the calls generated, whether or not the model named it."""
    named = {path.removeprefix("/workspace/") for path in reply.attachments}
    outputs = (json_fields((call.result or {}).get("output")) for call in calls if call.name == DRAWING_TOOL)
    paths = (str(output.get("file_path") or "") for output in outputs)
    drawn = dict.fromkeys(path for path in paths if path and path not in named)
    return replace(reply, attachments=(*reply.attachments, *drawn))


def build_delivery_drafts(reply: Reply, earlier_replies: int) -> tuple[DeliveryDraft, ...]:
    """Returns the deliveries of the reply's text and one for each attached file. Attached links are added to the text.
    `earlier_replies` is the number of replies that the run has already left."""
    start = earlier_replies * REPLY_ORDINALS
    links = [one for one in reply.attachments if is_web_url(one)]
    paths = [one for one in reply.attachments if one not in links]
    first, last = reply.parts
    text = "\n".join([last, *links]).strip()
    files = tuple(
        DeliveryDraft(slot="file", ordinal=ordinal, body={"path": path})
        for ordinal, path in enumerate(dict.fromkeys(paths), start)
    )
    answer = text if reply.kind == "answer" else first
    body: JsonObject = {"text": answer}
    answers = (DeliveryDraft(slot="answer", ordinal=start, body=body),) if answer else ()
    if reply.kind == "silence":
        return ()
    if reply.kind == "answer":
        return (*answers, *files)
    asked: JsonObject = {"text": text, "options": list(reply.options)}
    return (*answers, DeliveryDraft(slot="ask", body=asked), *files)


log = logging.getLogger(__name__)

WORKER_DEATHS_MAX = 5
"""A run fails if more workers than this die in a row while executing it."""
STOPPED_AT_THE_SAME_PLACE = (
    "The work stopped several times at the same place; it is not tried again by itself. "
    "Retry starts it once more: asking for smaller steps may help."
)


def check_not_poison(lease: Lease) -> None:
    """Raises RunError if more than WORKER_DEATHS_MAX workers in a row died while executing the run."""
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
    raise RunError(
        STOPPED_AT_THE_SAME_PLACE,
        detail=f"{lease.deaths} workers in a row died over it; this was attempt {lease.attempt}",
    )


async def add_missing_results(
    lease: Lease, deps: RunDeps, recorder: RunRecorder, *, not_run: str = NEVER_STARTED
) -> None:
    """Adds a result for every open tool call of an ended run without running it, so that later runs can continue the
    thread. `not_run` is the error of calls that were never started."""
    if lease.deaths > WORKER_DEATHS_MAX + 1:
        return  # completing the history may itself have killed the last worker
    repair = RepairContext(
        toolbox=ToolSet({}),
        context=ToolContext(thread_id=lease.thread_id, run_id=lease.run_id, sandbox=_no_sandbox),
        run_log=recorder,
        runs_calls=False,
        not_run=not_run,
    )
    await recorder.commit()
    history = await deps.stores.conversations.llm_messages(lease.thread_id)
    await repair_history(history, await deps.stores.journal.tool_call_records(lease.run_id), repair)
    await recorder.commit()


async def _no_sandbox() -> Sandbox:
    raise SandboxUnavailable("Nothing is run here any more.")
