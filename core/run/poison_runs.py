"""A run over which one worker after another dies is given up: what has killed so many would kill the next one, too."""

import logging

from core.domain.errors import AgentError, SandboxUnavailable
from core.domain.threads import Lease, Run, Thread
from core.ports import Sandbox
from core.run.agent_config import dialect_of
from core.run.engine import Engine
from core.run.history_repair import Workshop, mend
from core.run.recorder import RunRecorder
from core.tools.tool import Toolbox, ToolContext

log = logging.getLogger(__name__)

DEATHS_MAX = 5
"""So many workers may die over a run in a row; the next one ends it."""
STOPPED_AT_THE_SAME_PLACE = (
    "The work stopped several times at the same place; it is not tried again by itself. "
    "Retry starts it once more: asking for smaller steps may help."
)


async def refuse_the_deadly(
    lease: Lease, run: Run, thread: Thread, engine: Engine, recorder: RunRecorder
) -> None:
    """Raises AgentError for a run that too many workers have died over, with its history whole and nothing tried."""
    if not lease.deaths:
        return
    log.warning(
        "run %s: its worker died, which makes %d in a row before a turn was finished; more than %d are not tried",
        lease.run_id,
        lease.deaths,
        DEATHS_MAX,
    )
    if lease.deaths <= DEATHS_MAX:
        return
    if lease.deaths == DEATHS_MAX + 1:  # where even this kills, the next one does without
        await _make_whole(run, thread, engine, recorder)
    raise AgentError(
        STOPPED_AT_THE_SAME_PLACE,
        detail=f"{lease.deaths} workers in a row died over it; this was attempt {lease.attempt}",
    )


async def _make_whole(run: Run, thread: Thread, engine: Engine, recorder: RunRecorder) -> None:
    """Gives every call its result, for whatever is asked next in the thread, and runs none."""
    shop = Workshop(
        dialect=await dialect_of(run, thread, engine),
        toolbox=Toolbox({}),
        context=ToolContext(thread_id=run.thread_id, run_id=run.run_id, sandbox=_no_sandbox),
        run_log=recorder,
        runs_calls=False,
    )
    history = await engine.conversations.history(run.thread_id)
    await mend(history, await engine.journal.calls(run.run_id), shop)
    await recorder.commit()


async def _no_sandbox() -> Sandbox:
    raise SandboxUnavailable("Nothing is run here any more.")
