"""Executes one run: claims the lease, repairs the history after a crash, runs the agent loop and stores the result."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from core.context.message_text import build_link_rule, format_for_model, sources_of_message
from core.context.summary import count_turns
from core.domain.answer_links import hide_links_of_reply
from core.domain.approval import Approval
from core.domain.call_targets import may_hold_address
from core.domain.errors import BudgetExceeded, LeaseLost, RunError, StorageUnavailable
from core.domain.events import ReplyLeft, RunFailed, RunFinished
from core.domain.messages import Message
from core.domain.plans import LeaseCheckedPlans
from core.domain.sources import join_sources
from core.domain.threads import Lease, Reply, Run, Thread
from core.flow.planner import Ended
from core.flow.planning_flow import build_flow
from core.flow.run_flow import RepairHistory, block_steps_of_ended_run, run_flow
from core.loop.loop import CALL_STOPPED, STOPPED, budget_used_up, run_agent
from core.loop.run_answer import WrittenText, messages_since_reply, recover_answer
from core.loop.run_context import RunContext
from core.observability import set_log_context
from core.run.agent_config import (
    AgentConfig,
    add_knowledge_to_prompt,
    build_entry_pricer,
    build_run_context,
    build_tool_context,
    load_agent_config,
)
from core.run.deps import RunDeps
from core.run.history_repair import RepairContext, end_open_turns, repair_history
from core.run.input_reader import InputReader
from core.run.recorder import RunRecorder
from core.run.run_end import (
    DRAWING_TOOL,
    add_missing_results,
    attach_drawn_pictures,
    build_delivery_drafts,
    build_run_result,
    check_not_poison,
    turn_question_into_answer,
)
from core.run.thread_sandbox import ThreadSandbox
from core.stores import LoadedRun, RunEnd
from core.tasks import Stopped, StopSwitch, cancel, shield, spawn
from core.tools.tool import ToolSet

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
RELEASE_PAUSE_SECONDS = 2.0
STOP_LOOK_SECONDS = 5.0
"""The seconds between checks of the store for a stop request, because the bus may lose the stop signal."""
HANDED_BACK = "handed_back"
BROKEN = "Something broke on our side. The operator has the details; you can try again."


async def execute(run_id: str, deps: RunDeps) -> RunEnd:
    """Executes the run until it finishes, fails or waits for users. Returns its end, which names the run that was
    queued after it, if any.

    Does nothing if the run has ended or another worker holds its lease. If the task is cancelled, releases the lease
    first, so that another worker can continue the run."""
    lease = await deps.stores.claims.claim(run_id, deps.worker_id)
    if lease is None:
        return RunEnd()
    set_log_context(run_id=run_id, thread_id=lease.thread_id, worker=lease.worker_id)
    with deps.metrics.time_step("run", run_id=run_id, thread_id=lease.thread_id) as timing:
        timing.labels["state"], end = await _executed(lease, deps)
    return end


async def _executed(lease: Lease, deps: RunDeps) -> tuple[str, RunEnd]:
    """Executes the run. Returns its new status, or `handed_back` if another attempt must continue it, and its end."""
    run_id = lease.run_id
    log.info("worker %s takes up run %s, attempt %d", lease.worker_id, run_id, lease.attempt)
    # starts to listen before the run is loaded, so that no stop request is missed in between
    stop_signal = spawn(deps.messaging.signals.wait(run_id), name=f"stop signal of {run_id}")
    try:
        loaded = await deps.stores.conversations.load_run(run_id)
        if loaded:
            return await _execute_loaded(loaded, lease, deps, stop_signal)
    except StorageUnavailable as error:
        log.warning("run %s is given back until the database is well again: %s", run_id, error)
        # once released, the run is claimed again by a worker's sweep
        await _retry_until_stored(partial(deps.stores.claims.release, lease))
    except asyncio.CancelledError:
        await shield(deps.stores.claims.release(lease), name=f"release {run_id}")
        raise
    finally:
        stop_signal.cancel()
    return HANDED_BACK, RunEnd()


async def _execute_loaded(
    loaded: LoadedRun, lease: Lease, deps: RunDeps, stop_signal: asyncio.Task[None]
) -> tuple[str, RunEnd]:
    plans = LeaseCheckedPlans(deps.stores.plans, lease)
    deps = replace(deps, stores=replace(deps.stores, plans=plans))
    recorder = RunRecorder(lease, deps.stores.journal, deps.messaging.bus, charge=build_entry_pricer(deps))
    execution = _Execution(lease, loaded, deps, recorder)
    start = time.monotonic()
    watcher = spawn(execution.watch_for_stop(stop_signal), name=f"stop of {lease.run_id}")
    try:
        await execution.play()
    except LeaseLost as lost:
        log.warning("run %s belongs to another worker now: %s", lease.run_id, lost)
        await deps.stores.claims.release(lease)  # without effect if another worker has it
    finally:
        await cancel(watcher)
        execution.end_sandbox_hold()
    run, address = loaded.run, loaded.thread.address
    log.info(
        "run %s is %s: requester %s, %s %s %s, model %s, %d turns, %.1f s, %.4f US dollars",
        *(lease.run_id, execution.state, run.requester.person_id if run.requester else "unknown"),
        *(address.platform, address.workspace_id, address.channel_id),
        *(recorder.model or "none", recorder.turns, time.monotonic() - start),
        recorder.spent.cost_usd,
    )
    return execution.state, execution.end


async def _retry_until_stored(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Repeats the work until the database is available, and returns its result."""
    while True:
        try:
            return await work()
        except StorageUnavailable:
            await asyncio.sleep(RELEASE_PAUSE_SECONDS)


class _Execution:
    """One attempt to execute a run."""

    def __init__(self, lease: Lease, loaded: LoadedRun, deps: RunDeps, recorder: RunRecorder) -> None:
        self.state, self.end = HANDED_BACK, RunEnd()
        self._lease = lease
        self._loaded = loaded
        self._deps = deps
        self._recorder = recorder
        self._switch = StopSwitch()
        self._machine = ThreadSandbox(
            deps.sandboxes, lease.thread_id, lease.fence, recorder, bind=recorder.bind_sandbox, metrics=deps.metrics
        )
        self._inputs = InputReader(lease, loaded.thread, deps, recorder, self._machine)
        self._inputs.must_answer = loaded.run.attention == "addressed"
        self._tool_context = build_tool_context(
            loaded,
            deps,
            recorder,
            sandbox=self._machine.open,
            chat=self._inputs.chat,
            must_answer=lambda: self._inputs.must_answer,
        )
        self._toolboxes = list[ToolSet]()
        self._setup: tuple[AgentConfig, RunContext] | None = None
        self._replies_left = 0

    def end_sandbox_hold(self) -> None:
        self._machine.release()

    async def watch_for_stop(self, signal: asyncio.Task[None]) -> None:
        """Stops the run once a stop request is stored. The stop signal only triggers an early check of the store."""
        is_unwanted = self._loaded.run.stop_requested
        try:
            while not is_unwanted:
                await asyncio.wait([signal], timeout=STOP_LOOK_SECONDS)
                signal.cancel()
                signal = spawn(self._deps.messaging.signals.wait(self._lease.run_id), name="stop signal")
                run = await _retry_until_stored(partial(self._deps.stores.conversations.run, self._lease.run_id))
                is_unwanted = run is None or run.stop_requested  # a run may have been deleted
        finally:
            signal.cancel()
        self._switch.turn_on()
        await self._machine.interrupt()

    async def play(self) -> None:
        """Executes the run until it ends or waits for an approval. If an error occurs, the run fails with a message for
        users.

        Raises LeaseLost or StorageUnavailable if the run is left for a later attempt."""
        try:
            if self._lease.attempt > 1:
                told = await self._deps.stores.conversations.events(self._lease.run_id)
                end_open_turns(told, self._recorder)
                self._replies_left = sum(isinstance(one.event, ReplyLeft) for one in told)
                self._inputs.must_answer &= self._replies_left == 0
            check_not_poison(self._lease)
            await self._play_to_the_end(self._loaded.run, self._loaded.thread)
        except (LeaseLost, StorageUnavailable):
            raise
        except RunError as error:
            log.warning("run %s failed: %s %s", self._lease.run_id, error, error.detail)
            await self._fail(str(error))
        except Exception:
            log.exception("run %s broke", self._lease.run_id)
            await self._fail(BROKEN)

    async def _play_to_the_end(self, run: Run, thread: Thread) -> None:
        repair_history = self._repair_history if self._lease.attempt > 1 else None
        history: Sequence[Message] = self._loaded.history
        while True:
            self._inputs.remember_history(history)
            ended = await self._play_once(run, thread, history, repair_history)
            if isinstance(ended, Approval):
                await self._recorder.suspend_run(ended)
                self.state = "waiting"
                return
            if ended.status == "stopped":
                stopped = await self._deps.stores.conversations.run(self._lease.run_id)
                await self._inputs.store_unread_inputs(until=stopped.stopped_until if stopped else None)
            if ended.reply is not None:
                reply = await self._attach_pictures(ended.reply)
                ended = replace(ended, reply=await self._hide_links(reply))
            result = build_run_result(ended, earlier_replies=self._replies_left)
            if (end := await self._recorder.finish(ended, result)) is not None:
                self.state, self.end = ended.status, end
                return
            # the reply is delivered although the run continues, because the model assumes that users have read it
            drafts = (
                build_delivery_drafts(turn_question_into_answer(ended.reply), self._replies_left) if ended.reply else ()
            )
            if drafts:
                self._recorder.leave_reply(drafts)
                self._replies_left += 1
                self._inputs.must_answer = False
            await self._recorder.commit()
            repair_history = None
            history = await self._deps.stores.conversations.history(self._lease.thread_id)

    async def _play_once(
        self, run: Run, thread: Thread, history: Sequence[Message], repair_history: RepairHistory | None
    ) -> Ended:
        """Runs turns until the run ends or waits for an approval. A stop request ends whatever is done at that
        moment."""
        try:
            async with self._switch.stoppable():
                config, context = self._setup = self._setup or await self._set_up(run, thread, history)
                flow = await build_flow(
                    config, run, thread, context, self._deps, self._recorder, build_context=self._build_context
                )
                if flow:
                    return await run_flow(flow, repair_history=repair_history)
                return await self._looped(context, history, repair_history)
        except Stopped:
            ended, why = RunFinished(status="stopped", finish_reason="stopped", message=STOPPED), CALL_STOPPED
        except BudgetExceeded as limit:
            ended = budget_used_up(limit)
            why = str(limit)
            if not self._inputs.has_read:
                await self._inputs.store_unread_inputs()
        await add_missing_results(self._lease, self._deps, self._recorder, not_run=why)
        blocked = "stopped" if ended.status == "stopped" else ended.message
        await block_steps_of_ended_run(self._lease, self._deps, self._recorder, blocked)
        return ended

    async def _set_up(self, run: Run, thread: Thread, history: Sequence[Message]) -> tuple[AgentConfig, RunContext]:
        config = await load_agent_config(run, thread, self._deps, self._recorder)
        read_inputs = partial(self._deps.stores.journal.read_inputs, self._lease)
        context = self._build_context(config)
        return config, await add_knowledge_to_prompt(context, config.knowledge, history, read_inputs)

    def _build_context(self, config: AgentConfig) -> RunContext:
        """Returns the context of the run's agent, or of a member of its team."""
        context = build_run_context(
            config,
            self._loaded,
            self._deps,
            self._recorder,
            self._tool_context,
            switch=self._switch,
            take_steering=self._inputs.take_steering,
            reserve=self._inputs.begin_turn,
        )
        self._toolboxes.append(context.toolbox)
        return context

    async def _attach_pictures(self, reply: Reply) -> Reply:
        """Returns the reply with the pictures that the run has drawn since its newest reply."""
        if not any(DRAWING_TOOL in toolbox.tools for toolbox in self._toolboxes):
            return reply
        await self._recorder.commit()
        run_id, stores = self._lease.run_id, self._deps.stores
        calls = [call for call in await stores.journal.tool_call_records(run_id) if call.name == DRAWING_TOOL]
        messages = await stores.conversations.messages(self._lease.thread_id) if calls else ()
        own_ids = {message.message_id for message in messages_since_reply(messages, run_id)}
        return attach_drawn_pictures(reply, [call for call in calls if call.assistant_message_id in own_ids])

    async def _hide_links(self, reply: Reply) -> Reply:
        """Returns the reply with its links shown as code if users must not be able to click them."""
        if not may_hold_address("\n".join((reply.text, reply.preface, *reply.options, *reply.attachments))):
            return reply
        await self._recorder.commit()
        history = await self._deps.stores.conversations.history(self._lease.thread_id)
        described = [toolbox.sources() for toolbox in self._toolboxes]
        sources = join_sources([*described, *map(sources_of_message, history)])
        if not sources.outside:
            return reply
        sent = [format_for_model(message, is_native=True) for message in history]
        # a thread of 2,000 messages takes a third of a second
        return await asyncio.to_thread(hide_links_of_reply, reply, build_link_rule(sent, sources))

    async def _looped(
        self, context: RunContext, history: Sequence[Message], repair_history: RepairHistory | None
    ) -> Ended:
        """Runs turns until the agent is done, after recovering the turns and the result of an earlier attempt."""
        written = WrittenText()
        if repair_history:
            if approval := await repair_history(context):
                return approval
            stores, run_id, thread_id = self._deps.stores, self._lease.run_id, self._lease.thread_id
            calls = partial(stores.journal.tool_call_records, run_id)
            written, ended = await recover_answer(await stores.conversations.messages(thread_id), calls, context)
            if ended is not None:
                return ended
            history = await stores.conversations.history(thread_id)
        turns_done = count_turns(history, self._lease.run_id)
        written = replace(written, is_answered=self._replies_left > 0)
        return await run_agent(history, context, turns_done=turns_done, written=written)

    async def _repair_history(self, context: RunContext) -> Approval | None:
        history = await self._deps.stores.conversations.llm_messages(self._lease.thread_id)
        repair = RepairContext(
            toolbox=context.toolbox,
            context=context.tool_context,
            run_log=self._recorder,
            answer=await self._deps.stores.journal.find_approval(self._lease.run_id),
            granted=context.policy.granted,
        )
        repaired = await repair_history(
            history, await self._deps.stores.journal.tool_call_records(self._lease.run_id), repair
        )
        await self._recorder.commit()
        return repaired.approval

    async def _fail(self, public_message: str) -> None:
        """Ends the run as failed.

        If the run has read no input yet, its inputs are stored as unread messages, because an input that made this run
        fail would otherwise make every later run fail too.
        """
        failed = RunFailed(public_message=public_message)
        with suppress(LeaseLost):
            if not self._inputs.has_read:
                await self._inputs.store_unread_inputs()
            try:
                await add_missing_results(self._lease, self._deps, self._recorder)
            except (LeaseLost, StorageUnavailable):
                raise
            except Exception:  # the run must end all the same
                log.exception("the history of run %s was not completed", self._lease.run_id)
            await block_steps_of_ended_run(self._lease, self._deps, self._recorder)
            end = await self._recorder.finish(failed, build_run_result(failed))
            self.state, self.end = "failed", end or RunEnd()
