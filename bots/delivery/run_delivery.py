"""Shows runs in their chat threads: carries out the steps that `bots.delivery.next_step` returns for each run."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from bots.delivery import next_step
from bots.delivery.answer_stream import AnswerStream
from bots.delivery.content import RunStatus
from bots.delivery.next_step import (
    ChatState,
    FinishPosting,
    PostOutbox,
    ReadInputs,
    RunEnd,
    SetReaction,
    ShowStatus,
    Step,
    TellRequesterOfWait,
    Wait,
    add_event,
    add_unread_inputs,
    final_reactions,
    is_typing,
    needs_final_status,
    next_post_step,
    next_reaction_step,
)
from bots.delivery.outbox import (
    STATUS,
    close_open_deliveries,
    deliver_outbox,
    report_refusal_elsewhere,
    show_final_status,
    wait_for_earlier_runs,
)
from bots.delivery.poster import DeliveryDeps, Poster
from bots.delivery.run_view import RunView, ViewState, apply_event, stored_terminal_event
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRateLimited
from core.domain.threads import Run
from core.observability import set_log_context
from core.run.event_replay import Recheck, follow_events
from core.tasks import backoff_seconds, boot_seconds, cancel, spawn, spawn_awaited, wait_at_most

log = logging.getLogger(__name__)

SWEEP_SECONDS = 2.0
RETRY_SECONDS, RETRY_SECONDS_MAX = 2.0, 300.0
QUIET_SWEEPS = 5
LONG_POST_QUEUE = (
    "Your answer is ready, but many messages are waiting to be posted here and only a few are allowed at a time."
    " It appears in its thread when its turn comes."
)
STREAM_END_SECONDS_MAX = 10.0
TURN_SECONDS = 0.5
"""The shortest pause before a step that was rate limited is tried again."""
RUNS_PER_INTERVAL = 5
"""Number of active runs up to which each run edits its status at full speed. With more runs, each edits less often."""
NOTHING_SHOWN = RunEnd()
"""The end of a failed attempt to show a run, for which no reactions are set."""


class RunDelivery:
    """Delivers all runs of this process until `close`. The next process delivers the remaining messages."""

    def __init__(self, deps: DeliveryDeps, *, quiet_sweep_seconds: float = 0) -> None:
        """`quiet_sweep_seconds`: how often to look for forgotten deliveries while there are none. It may be long if no
        other process shares the database."""
        self._deps = deps
        self._quiet_sweep_seconds = max(quiet_sweep_seconds, SWEEP_SECONDS)
        self._shows: dict[str, tuple[_Show, asyncio.Task[None]]] = {}
        self._again: set[str] = set()
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeper = spawn(self._sweep(), name="delivery sweeper")

    def wake(self, run_id: str) -> None:
        """Starts delivery of a run that has new content. If the run is being delivered, looks at it again."""
        if run_id in self._shows:
            self._again.add(run_id)
            self._shows[run_id][0].look_again()
            return
        show = _Show(run_id, self._deps, self.active_runs)
        task = spawn(self._guarded(show), name=f"show {run_id}")
        self._shows[run_id] = show, task
        task.add_done_callback(lambda _task: self._ended(run_id))

    def active_runs(self) -> int:
        return len(self._shows)

    async def close(self, *, drain_seconds: float = 0.0) -> None:
        """Stops delivery. Waits up to `drain_seconds` for ended runs to finish posting, then cancels everything.

        Another process continues the cancelled deliveries and first searches for messages that may have been sent."""
        if self._sweeper is not None:
            await cancel(self._sweeper)
        self._again.clear()
        leaving = [task for show, task in self._shows.values() if show.is_leaving]
        if leaving and drain_seconds:
            await asyncio.wait(leaving, timeout=drain_seconds)
        await cancel(*(task for _, task in self._shows.values()))

    def _ended(self, run_id: str) -> None:
        self._shows.pop(run_id, None)
        if run_id in self._again:
            self._again.discard(run_id)
            self.wake(run_id)

    async def _guarded(self, show: "_Show") -> None:
        try:
            await show.play()
        except LeaseLost:
            log.info("another process shows run %s", show.run_id)
        except Exception:  # a bug in one run must not end the others; the next sweep tries again
            log.exception("showing run %s failed; it is tried again", show.run_id)

    async def _sweep(self) -> None:
        quiet_sweeps = 0
        while True:
            quiet_sweeps += 1
            try:
                room = self._deps
                for run_id in await room.deliveries.open_runs(for_worker=room.worker_id):
                    quiet_sweeps = 0
                    if run_id not in self._shows:
                        self.wake(run_id)
            except Exception:  # the sweep repeats failed deliveries, so it must outlive any bug
                log.exception("the delivery sweep failed")
            is_quiet = quiet_sweeps > QUIET_SWEEPS and not self._shows
            await asyncio.sleep(self._quiet_sweep_seconds if is_quiet else SWEEP_SECONDS)


class _Show:
    """Delivers one run: folds its events into a state, and carries out the steps that `bots.delivery.next_step` returns
    for it until nothing is left to do."""

    def __init__(self, run_id: str, deps: DeliveryDeps, active_runs: Callable[[], int]) -> None:
        self.run_id = run_id
        self._deps = deps
        self._active_runs = active_runs
        self._state = ChatState()
        self._changed = asyncio.Event()
        self._recheck = Recheck()
        self._stream = AnswerStream()

    def look_again(self) -> None:
        """Requests that the store be read again: it may have new messages from users, or the end of a run that no
        worker has begun."""
        self._change(inputs=self._state.inputs + 1)
        self._recheck.request()

    @property
    def is_leaving(self) -> bool:
        """Whether the run has ended, so that only its results remain to post."""
        return self._state.is_over

    async def play(self) -> None:
        """Shows the run to its end, unless another process does so. Raises LeaseLost if another process takes over."""
        deps, began = self._deps, boot_seconds()
        lease = await deps.deliveries.claim(self.run_id, deps.worker_id, platforms=deps.surfaces)
        if lease is None:
            return
        run, surface = lease.run, deps.surfaces[lease.address.platform]
        set_log_context(run_id=self.run_id, thread_id=run.thread_id, worker=deps.worker_id)
        poster = Poster(lease.address, surface, lease, deps.deliveries, began, metrics=deps.metrics)
        self._change(
            request_ref=run.request_ref,
            attention=run.attention,
            began_at=_now(),
            status_after_seconds=self._deps.status_after_seconds,
        )
        folding = spawn_awaited(self._fold(), name=f"events of {self.run_id}")
        if run.status not in ("queued", "running", "waiting"):
            # the run has ended: all its events are read first, so that no earlier state is posted
            await asyncio.gather(folding, return_exceptions=True)
        writing = spawn(self._stream.stream_until_end(run, poster), name=f"stream of {self.run_id}")
        typing = spawn(self._keep_typing(poster), name=f"typing of {self.run_id}")
        reactions = self._carry_out_steps(next_reaction_step, run, poster)
        reacting = spawn_awaited(reactions, name=f"reactions of {self.run_id}")
        try:
            await self._carry_out_steps(next_post_step, run, poster)
            await folding
            await reacting
            await self._deps.deliveries.close(poster.rendering)
        except LeaseLost:
            self._change(end=NOTHING_SHOWN)
            await asyncio.wait([reacting])
            await self._sign_late(run, poster)
            raise
        finally:
            # a reaction could replace one of the next attempt, and a stream may wait long for its turn
            await cancel(folding, reacting, typing, writing)

    def _change(self, **changes: Any) -> None:
        """Replaces fields of the state and wakes everything that waits for a change."""
        self._state = replace(self._state, **changes)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until if until < math.inf else None):
                await self._changed.wait()

    async def _fold(self) -> None:
        """Applies the run's events. If that fails, nothing more of the run is shown in this attempt."""
        stored, bus = self._deps.conversations, self._deps.bus
        events = follow_events(self.run_id, None, conversations=stored, bus=bus, recheck=self._recheck)
        try:
            async with aclosing(events):
                async for group in events:
                    for one in group:
                        self._stream.apply(one.event)
                        self._state = add_event(self._state, one.event)
                    self._change()
            run = None if self._state.is_over else await stored.run(self.run_id)
            if run is not None and (ended := stored_terminal_event(run)) is not None:
                self._state = add_event(self._state, ended)  # the run's events are deleted
        except Exception:  # whatever it is, the user must not wait for a view that never comes
            self._change(end=NOTHING_SHOWN)
            raise
        self._stream.leave_to_outbox()
        self._change(has_ended=True, tell_wait_at=_now() + next_step.LONG_WAIT_SECONDS)

    async def _keep_typing(self, poster: Poster) -> None:
        while not self._state.is_over:
            if not is_typing(self._state, now := _now()):
                until = next_step.typing_starts_at(self._state)
                await self._wait_for_change(until if until > now else math.inf)
                continue
            async with poster.surface.typing(poster.address):
                while is_typing(self._state, _now()):
                    await self._wait_for_change(math.inf)

    async def _carry_out_steps(
        self, choose: Callable[[ChatState, float], Step | None], run: Run, poster: Poster
    ) -> None:
        """Carries out one step after the other until there is none. A step that fails is chosen again after a pause,
        however long the platform or the database is unavailable."""
        failures = Counter[type[object]]()
        while True:
            state = replace(self._state, is_streaming=self._stream.is_growing)
            if (step := choose(state, _now())) is None:
                return
            kind = type(step)
            try:
                pause_seconds = await self._carry_out(step, run, poster)
                failures[kind] = 0
            except SurfaceRateLimited as limited:
                pause_seconds = min(max(limited.retry_after_seconds, TURN_SECONDS), RETRY_SECONDS_MAX)
            except (SurfaceError, StorageUnavailable) as error:
                log.warning("%s of run %s is tried again: %s", kind.__name__, self.run_id, error)
                is_platform = isinstance(error, SurfaceError)
                failures[kind] += is_platform
                pause_seconds = SWEEP_SECONDS
                if is_platform:
                    pause_seconds = backoff_seconds(failures[kind], first=RETRY_SECONDS, most=RETRY_SECONDS_MAX)
            if pause_seconds:
                until = {kind: _now() + pause_seconds}
                self._change(paused_until={**self._state.paused_until, **until})

    async def _carry_out(self, step: Step, run: Run, poster: Poster) -> float:
        """Carries out a step. Returns the number of seconds in which no step of this kind may follow. Raises
        SurfaceError or StorageUnavailable."""
        match step:
            case Wait(until=until):
                await self._wait_for_change(until)
            case ShowStatus(view=view):
                await self._show_status(view, poster)
                crowd = max(1.0, self._active_runs() / RUNS_PER_INTERVAL)
                return poster.surface.edit_interval_seconds * crowd
            case PostOutbox():
                # the copy caches no records, because a card may have been answered since
                await self._post_outbox(step, run, replace(poster))
            case FinishPosting():
                await self._post_end(run, replace(poster))
            case SetReaction():
                await self._react(step, poster)
            case ReadInputs(count=count):
                inputs = await self._deps.conversations.unread_inputs(run.thread_id)
                self._state = add_unread_inputs(self._state, count, inputs)
                self._change()
            case TellRequesterOfWait():
                self._change(tell_wait_at=math.inf)
                if run.requester is not None and not run.requester.is_app:
                    person_id = run.requester.person_id
                    await poster.surface.tell_privately(poster.address, person_id, LONG_POST_QUEUE)
        return 0.0

    async def _show_status(self, view: RunView, poster: Poster) -> None:
        status = await poster.plan_delivery(STATUS)
        await poster.post_or_edit(status, RunStatus(run_id=self.run_id, view=view), is_final=False)
        if any(one.error in poster.surface.closed_reasons for one in poster.refused_posts()):
            await self._deps.stop_run(self.run_id)  # no one would see the work
        self._change(status=view)

    async def _post_outbox(self, step: PostOutbox, run: Run, poster: Poster) -> None:
        if self._stream.has_ended:  # the stream may become the first of the replies
            await wait_at_most(self._stream.written, STREAM_END_SECONDS_MAX)
        await wait_for_earlier_runs(poster.rendering, self._deps)
        planned = await deliver_outbox(run, poster, self._deps)
        if any(one.slot == "ask" for one in poster.refused_posts(planned)):
            await self._deps.stop_run(self.run_id)  # the end of the run tells the requester
        self._change(outbox=step.version)

    async def _post_end(self, run: Run, poster: Poster) -> None:
        await self._stream.written.wait()
        await wait_for_earlier_runs(poster.rendering, self._deps)
        planned = await deliver_outbox(run, poster, self._deps)
        await close_open_deliveries(planned, poster)
        self._change(tell_wait_at=math.inf)
        view = self._state.view
        status = next((one for one in planned if one.slot == "status"), None)
        is_posted = status is not None and status.state != "pending"
        is_always = self._deps.status_after_seconds == 0
        if needs_final_status(view, is_posted=is_posted, is_always=is_always):
            # if nobody saw the run work, its answer is enough
            may_wait = is_posted or is_always or view.state not in ("completed", "asking")
            await show_final_status(view, poster, self._deps, may_wait=may_wait)
        elif status is not None:
            await poster.mark_done(status)
        is_refused = await report_refusal_elsewhere(run, planned, poster)
        self._change(end=await self._read_end(run, "failed" if is_refused else view.state))

    async def _react(self, step: SetReaction, poster: Poster) -> None:
        ref, sign = step.message_ref, step.sign
        refused = await poster.set_reaction(ref, sign, is_patient=step.is_patient)
        self._change(signs={**self._state.signs, ref: sign})
        is_closed = refused != "missing_scope" and refused in poster.surface.closed_reasons
        if is_closed and ref == self._state.request_ref:
            self._change(may_be_closed=True)  # the first status message shows whether that is so, before much is done

    async def _sign_late(self, run: Run, poster: Poster) -> None:
        """Sets the final reactions again after this process lost its lease.

        A reaction that this process sent late may have replaced the final reaction that the new owner set. Reactions of
        runs that have not ended are left to the process that shows them."""
        signs = dict(self._state.signs)
        with suppress(SurfaceError, StorageUnavailable):
            for other in reversed(await self._deps.conversations.runs(run.thread_id)):
                if not signs or (ended := stored_terminal_event(other)) is None:
                    return
                end = await self._read_end(other, apply_event(RunView(), ended).state)
                for ref, sign in final_reactions(end).items():
                    if signs.pop(ref, None) is not None:
                        await poster.surface.react(poster.address, ref, sign)

    async def _read_end(self, run: Run, state: ViewState) -> RunEnd:
        refs = await self._deps.conversations.message_refs_to_mark(run.run_id)
        asked = await self._deps.asks.ask_of_run(run.run_id) if state == "asking" else None
        return RunEnd(
            state=state,
            refs=refs,
            request_ref=run.request_ref,
            has_open_question=asked is not None and asked.state == "open",
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
