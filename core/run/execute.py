"""Executes one run: claims the lease, repairs the history after a crash, runs the agent loop and stores the result."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from core.context.background_messages import BackgroundMessageReader
from core.context.summary import count_turns
from core.domain.approval import Approval
from core.domain.errors import AgentError, LeaseLost, StorageUnavailable
from core.domain.events import MessageAdded, RunFailed
from core.domain.messages import Message
from core.domain.threads import Address, Lease, Run, Thread, ThreadInput
from core.flow.planner import Ended
from core.flow.planning_flow import build_flow
from core.flow.run_flow import (
    RepairHistory,
    block_steps_of_failed_run,
    recover_run_result,
    run_flow,
)
from core.loop.loop import RunContext, run_agent
from core.observability import set_log_context
from core.run.agent_config import (
    AgentConfig,
    add_knowledge_to_prompt,
    add_todo_to_prompt,
    check_budget,
    load_agent_config,
    usage_pricer,
    usage_recorder,
)
from core.run.deps import RunDeps
from core.run.finish import DRAWING_TOOL, attach_drawn_pictures, build_run_result, fail_poison_run
from core.run.history_repair import RepairContext, end_open_turns, repair_history
from core.run.inputs import Uploads, prepare_user_message, unread_message
from core.run.recorder import RunRecorder
from core.run.thread_sandbox import ThreadSandbox
from core.tasks import StopSwitch, cancel, spawn
from core.tools.tool import ThreadLinks, ThreadMessages, ToolContext

log = logging.getLogger(__name__)
RELEASE_PAUSE_SECONDS = 2.0
STOP_LOOK_SECONDS = 5.0
"""The seconds between checks of the store for a stop request, because the bus may lose the stop signal."""
HANDED_BACK = "handed_back"
BROKEN = "Something broke on our side. The operator has the details; you can try again."


async def execute(run_id: str, engine: RunDeps) -> None:
    """Executes the run until it finishes, fails or waits for people.

    Returns without doing anything if the run is over or another worker holds its lease. If the task is cancelled, the
    lease is released first, so that another worker can continue the run.
    """
    lease = await engine.claims.claim(run_id, engine.worker_id)
    if lease is None:
        return
    set_log_context(run_id=run_id, thread_id=lease.thread_id, worker=lease.worker_id)
    with engine.figures.timed("run", run_id=run_id, thread_id=lease.thread_id) as timing:
        timing.labels["state"] = await _executed(lease, engine)


async def _executed(lease: Lease, engine: RunDeps) -> str:
    """Executes the run and returns its new status, or `handed_back` if the run still has to be continued."""
    run_id = lease.run_id
    log.info("worker %s takes up run %s, attempt %d", lease.worker_id, run_id, lease.attempt)
    run = await engine.conversations.run(run_id)
    if run is None:
        return HANDED_BACK
    recorder = RunRecorder(lease, engine.journal, engine.bus, charge=usage_pricer(engine))
    execution = _Execution(lease, run, engine, recorder)
    watcher = spawn(execution.watch_for_stop(), name=f"stop of {run_id}")
    try:
        await execution.play()
    except LeaseLost:
        log.warning("run %s belongs to another worker now", run_id)
    except StorageUnavailable as error:
        log.warning("run %s is given back until the database is well again: %s", run_id, error)
        await _released(lease, engine)
    except asyncio.CancelledError:
        await asyncio.shield(spawn(engine.claims.release(lease), name=f"release {run_id}"))
        raise
    finally:
        await cancel(watcher)
        execution.rest()
    return execution.state


async def _released(lease: Lease, engine: RunDeps) -> None:
    """Releases the lease, retrying until the database is available; a worker's sweep then picks the run up."""
    while True:
        try:
            await engine.claims.release(lease)
        except StorageUnavailable:
            await asyncio.sleep(RELEASE_PAUSE_SECONDS)
        else:
            return


class _Execution:
    """One attempt to execute a run."""

    def __init__(self, lease: Lease, run: Run, engine: RunDeps, recorder: RunRecorder) -> None:
        self.state = HANDED_BACK
        self._lease = lease
        self._run = run
        self._engine = engine
        self._recorder = recorder
        self._switch = StopSwitch()
        self._machine = ThreadSandbox(
            engine.sandboxes,
            lease.thread_id,
            lease.fence,
            recorder,
            bind=recorder.bind_sandbox,
            figures=engine.figures,
        )
        self._listener = BackgroundMessageReader(engine.thread_talks, lease.thread_id, lease.run_id)
        self._address: Address | None = None
        self._has_read = False
        self._is_informed = False

    def rest(self) -> None:
        self._machine.rest()

    async def watch_for_stop(self) -> None:
        """Stops the run once a stop request is stored. The stop signal only triggers an early check of the store."""
        while True:
            signal = spawn(self._engine.signals.wait(self._lease.run_id), name="stop signal")
            try:
                if await self._is_unwanted():
                    break
                await asyncio.wait([signal], timeout=STOP_LOOK_SECONDS)
            finally:
                signal.cancel()
        self._switch.turn_on()
        await self._machine.interrupt()

    async def _is_unwanted(self) -> bool:
        """Returns whether a stop was requested for the run, or the run was deleted."""
        while True:
            try:
                run = await self._engine.conversations.run(self._lease.run_id)
            except StorageUnavailable:
                await asyncio.sleep(RELEASE_PAUSE_SECONDS)
            else:
                return run is None or run.stop_requested

    async def play(self) -> None:
        """Executes the run until it ends or waits for an approval. An error fails the run with a message for people.

        Raises LeaseLost or StorageUnavailable if the run is left for a later attempt.
        """
        try:
            snapshot = await self._engine.conversations.snapshot(self._lease.thread_id)
            if snapshot is None:
                raise LeaseLost(f"the thread of run {self._lease.run_id} is forgotten")
            self._address = snapshot.thread.address
            if self._lease.attempt > 1:
                told = await self._engine.conversations.events(self._lease.run_id)
                end_open_turns(told, self._recorder)
            await fail_poison_run(
                self._lease, self._run, snapshot.thread, self._engine, self._recorder
            )
            await self._play_to_the_end(snapshot.thread)
        except (LeaseLost, StorageUnavailable):
            raise
        except AgentError as error:
            log.warning("run %s failed: %s %s", self._lease.run_id, error, error.detail)
            await self._fail(str(error))
        except Exception:
            log.exception("run %s broke", self._lease.run_id)
            await self._fail(BROKEN)

    async def _play_to_the_end(self, thread: Thread) -> None:
        config = await load_agent_config(
            self._run, thread, self._engine, self._recorder, self._switch
        )
        around = await self._build_run_context(config)
        repair_history = self._mended if self._lease.attempt > 1 else None
        while True:
            history = await self._engine.conversations.recent(self._lease.thread_id)
            self._listener.remember(history)
            around = await self._informed(around, history)
            flow = await build_flow(config, self._run, around, self._engine, self._recorder)
            played = (
                run_flow(flow, mend=repair_history)
                if flow
                else self._looped(around, history, repair_history)
            )
            ended = await played
            if isinstance(ended, Approval):
                await self._recorder.suspend(ended)
                self.state = "waiting"
                return
            if ended.status == "stopped":
                await self._take_unread()
            if DRAWING_TOOL in around.toolbox.tools:
                await self._recorder.commit()
                calls = await self._engine.journal.calls(self._lease.run_id)
                ended = attach_drawn_pictures(ended, calls)
            if await self._recorder.finish(ended, build_run_result(ended)):
                self.state = ended.status
                return
            await self._recorder.commit()
            repair_history = None

    async def _looped(
        self, around: RunContext, history: Sequence[Message], repair_history: RepairHistory | None
    ) -> Ended:
        """Runs turns until the agent is done, after recovering the turns and the result of an earlier attempt."""
        if repair_history:
            ended = await repair_history(around) or await recover_run_result(
                self._lease, self._engine, around
            )
            if ended is not None:
                return ended
            history = await self._engine.conversations.recent(self._lease.thread_id)
        turns_done = count_turns(history, self._lease.run_id)
        return await run_agent(history, add_todo_to_prompt(around, history), turns_done=turns_done)

    async def _mended(self, around: RunContext) -> Ended | None:
        history = await self._engine.conversations.history(self._lease.thread_id)
        repair = RepairContext(
            dialect=around.dialect,
            toolbox=around.toolbox,
            context=around.context,
            run_log=self._recorder,
            answer=await self._engine.journal.approval(self._lease.run_id),
        )
        mended = await repair_history(
            history, await self._engine.journal.calls(self._lease.run_id), repair
        )
        await self._recorder.commit()
        return mended.ended

    async def _informed(self, around: RunContext, history: Sequence[Message]) -> RunContext:
        desk = around.context.knowledge
        if desk is None or self._is_informed:
            return around
        self._is_informed = True
        read_inputs = partial(self._engine.journal.inputs, self._lease)
        return await add_knowledge_to_prompt(around, desk, history, read_inputs)

    async def _build_run_context(self, config: AgentConfig) -> RunContext:
        engine = self._engine
        return RunContext(
            model=config.model,
            system_prompt=config.system_prompt,
            dialect=config.dialect,
            toolbox=config.toolbox,
            context=ToolContext(
                thread_id=self._lease.thread_id,
                run_id=self._lease.run_id,
                approved_tools=await engine.journal.approved_tools(self._lease.thread_id),
                plans=engine.plans,
                emit=self._recorder.emit,
                sandbox=self._machine.sandbox,
                links=ThreadLinks(
                    preview_url=partial(engine.preview_url, self._lease.thread_id),
                    port_url=partial(engine.port_url, self._lease.thread_id),
                    takeover_url=partial(engine.takeover_url, self._lease.thread_id),
                ),
                messages=ThreadMessages(
                    find=partial(engine.conversations.message, self._lease.thread_id),
                    read_all=partial(engine.conversations.history, self._lease.thread_id),
                ),
                outside=engine.outside,
                figures=engine.figures,
                knowledge=config.desk,
                spent=usage_recorder(self._recorder),
            ),
            policy=engine.policy,
            run_log=self._recorder,
            ask_model=engine.ask_model,
            take_steering=self._take_steering,
            check_budget=partial(check_budget, self._lease.run_id, engine, self._recorder),
            switch=self._switch,
            context_policy=engine.context_policy,
        )

    async def _take_steering(self) -> Sequence[Message]:
        uploads = Uploads(
            sources=self._engine.file_sources,
            platform=self._address.platform if self._address else "api",
            bytes_max=self._engine.file_bytes_max,
            is_repeated=self._lease.attempt > 1,
        )
        inputs = await self._recorder.inputs()
        if self._engine.draining.is_set():
            raise asyncio.CancelledError("handed over between two turns, with everything stored")
        messages = await self._overheard(inputs)
        for one in inputs:
            message = await prepare_user_message(one, self._lease.run_id, self._machine, uploads)
            self._recorder.emit(MessageAdded(message=message))
            self._recorder.take([one.input_id])
            messages.append(message)
        self._has_read = True
        return messages

    async def _overheard(self, inputs: Sequence[ThreadInput]) -> list[Message]:
        if self._address is None:
            return []
        message = await self._listener.listen(self._address, inputs)
        if message is None:
            return []
        self._recorder.emit(MessageAdded(message=message))
        return [message]

    async def _take_unread(self) -> None:
        """Adds the inputs that the run did not read to the history, so that they do not start another run."""
        await self._recorder.commit()
        for one in await self._engine.journal.inputs(self._lease):
            message = unread_message(one, self._lease.run_id)
            self._recorder.emit(MessageAdded(message=message))
            self._recorder.take([one.input_id])

    async def _fail(self, public_message: str) -> None:
        """Ends the run as failed.

        If the run has read no input yet, its inputs are stored as unread messages, because an input that made this run
        fail would otherwise make every later run fail too.
        """
        failed = RunFailed(public_message=public_message)
        with suppress(LeaseLost):
            if not self._has_read:
                await self._take_unread()
            await block_steps_of_failed_run(self._lease, self._engine, self._recorder)
            await self._recorder.finish(failed, build_run_result(failed))
            self.state = "failed"
