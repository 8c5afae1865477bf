"""Shows runs in their chat threads.

One task per run applies its events to a view, keeps the status message up to date, and finally posts the results.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from bots.delivery.answer_stream import AnswerStream
from bots.delivery.content import RunStatus
from bots.delivery.outbox import (
    deliver_outbox,
    end_streams,
    finish_view,
    tell_refusal,
    wait_for_earlier_runs,
)
from bots.delivery.poster import DeliveryDeps, DeliverySurface, Poster
from bots.delivery.run_view import RunView, ViewState, apply_event, has_steps, terminal_event
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRateLimited
from core.domain.events import MessageAdded
from core.domain.threads import Address, Run, ThreadInput
from core.observability import set_log_context
from core.ports import Reaction
from core.run.event_replay import Recheck, follow
from core.stores import Delivery, DeliveryDraft
from core.tasks import boot_seconds, cancel, spawn, wait_at_most, wait_for_first

log = logging.getLogger(__name__)

SWEEP_SECONDS = 2.0
QUIET_SWEEPS = 5
QUEUED_AFTER_SECONDS = 1.5
TYPING_AFTER_SECONDS = 1.0
READ_NEXT = "I will read your new message next"
LONG_WAIT_SECONDS = 60.0
"""People are told if their request, or the answer to it, waits longer than this."""
LONG_QUEUE = "Many requests are being worked on. Yours starts as soon as another ends"
LONG_POST_QUEUE = (
    "Your answer is ready, but many messages are waiting to be posted here and only a few are allowed at a time."
    " It appears in its thread when its turn comes."
)
STREAM_END_SECONDS_MAX = 10.0
RUNS_PER_INTERVAL = 5
"""Number of active runs up to which each run edits its status at full speed. With more runs, each edits less often."""


class RunDelivery:
    """Delivers all runs of this process until `close`. The next process delivers the remaining messages."""

    def __init__(self, deps: DeliveryDeps, *, quiet_sweep_seconds: float = 0) -> None:
        """`quiet_sweep_seconds`: how often to look for forgotten deliveries while there are none. It may be long if no
        other process shares the database."""
        self._deps = deps
        self._quiet_sweep_seconds = max(quiet_sweep_seconds, SWEEP_SECONDS)
        self._shows: dict[str, asyncio.Task[None]] = {}
        self._playing: dict[str, _Show] = {}
        self._again: set[str] = set()
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeper = spawn(self._sweep(), name="delivery sweeper")

    def wake(self, run_id: str) -> None:
        """Starts delivery for a run that has new content, or repeats delivery after the current pass."""
        if run_id in self._shows:
            self._again.add(run_id)
            self._playing[run_id].look_again()
            return
        show = _Show(run_id, self._deps, self.active_runs)
        task = spawn(self._guarded(show), name=f"show {run_id}")
        self._shows[run_id], self._playing[run_id] = task, show
        task.add_done_callback(lambda _task: self._ended(run_id))

    def active_runs(self) -> int:
        return len(self._shows)

    async def close(self, *, drain_seconds: float = 0.0) -> None:
        """Stops delivery. Waits up to `drain_seconds` for ended runs to finish posting, then cancels everything.

        Another process continues the cancelled deliveries and first searches for messages that may have been sent.
        """
        if self._sweeper is not None:
            await cancel(self._sweeper)
        self._again.clear()
        leaving = [self._shows[run_id] for run_id, show in self._playing.items() if show.is_leaving]
        if leaving and drain_seconds:
            await asyncio.wait(leaving, timeout=drain_seconds)
        for task in tuple(self._shows.values()):
            await cancel(task)

    def _ended(self, run_id: str) -> None:
        self._shows.pop(run_id, None)
        self._playing.pop(run_id, None)
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
            except (
                Exception
            ):  # the sweep must outlive any bug, because it repeats failed deliveries
                log.exception("the delivery sweep failed")
            is_quiet = quiet_sweeps > QUIET_SWEEPS and not self._shows
            await asyncio.sleep(self._quiet_sweep_seconds if is_quiet else SWEEP_SECONDS)


class _Show:
    """Delivers one run: applies its events to a view, updates the status message and posts the results."""

    def __init__(self, run_id: str, deps: DeliveryDeps, active_runs: Callable[[], int]) -> None:
        self.run_id = run_id
        self._deps = deps
        self._active_runs = active_runs
        self._view = RunView()
        self._shown: RunView | None = None
        self._asked = (False, 0)
        self._replies_shown = 0
        self._has_queued_long = False
        self._signing: asyncio.Task[None] | None = None
        self._waits = asyncio.Event()
        self._works = asyncio.Event()
        self._changed = asyncio.Event()
        self._taken_up = asyncio.Event()
        self._has_steps = asyncio.Event()
        self._has_replied = asyncio.Event()
        self._may_be_closed = asyncio.Event()
        self._over = asyncio.Event()
        self._unread: set[str] = set()
        self._stream = AnswerStream()
        self._signs_changed = asyncio.Event()
        self._signs: dict[str, Reaction] = {}
        self._follow_ups: dict[str, None] = {}
        self._noted: set[ThreadInput] = set()
        self._inputs_changed = False
        self._recheck = Recheck()

    def look_again(self) -> None:
        """Reads what the store has of the run: new messages from people, or its end before a worker began it."""
        self._inputs_changed = True
        self._signs_changed.set()
        self._recheck.request()

    @property
    def is_leaving(self) -> bool:
        """Whether the run has ended, so that only its results remain to post."""
        return self._over.is_set()

    async def play(self) -> None:
        deps = self._deps
        found = await deps.conversations.run_with_thread(self.run_id)
        if found is None:
            return
        run, address = found[0], found[1].address
        if (surface := deps.surfaces.get(address.platform)) is None:
            return
        set_log_context(run_id=self.run_id, thread_id=run.thread_id, worker=deps.worker_id)
        began = boot_seconds()
        rendering = await deps.deliveries.claim(self.run_id, deps.worker_id)
        if rendering is None:
            return
        try:
            await self._show(run, Poster(address, surface, rendering, deps.deliveries, began))
        except LeaseLost:
            await self._sign_late(run, address, surface)
            raise
        finally:
            if self._signing is not None:
                self._signing.cancel()  # otherwise it could replace a reaction of the next try

    async def _show(self, run: Run, poster: Poster) -> None:
        if run.status in ("queued", "running", "waiting"):
            signing = self._keep_signs(run, poster)
            self._signing = spawn(signing, name=f"reactions of {self.run_id}")
        writing = self._stream.write(run, poster, self._over)
        writer = spawn(writing, name=f"stream of {self.run_id}")
        editor = spawn(self._keep_status(run, poster, writer), name=f"status of {self.run_id}")
        typing = self._keep_typing(run, poster.address, poster.surface)
        typist = spawn(typing, name=f"typing of {self.run_id}")
        queueing = spawn(self._note_long_queue(), name=f"queueing of {self.run_id}")
        try:
            await self._fold()
        except asyncio.CancelledError:
            editor.cancel()  # only here: a cancelled post may still arrive, so a normal end lets it finish
            raise
        finally:
            self._over.set()
            queueing.cancel()
            await asyncio.wait([editor, typist, writer])
        planned = await self._leave(run, poster)
        is_told = await tell_refusal(run, planned, poster)
        await self._sign_end(run, poster, is_refused=is_told)
        await self._deps.deliveries.close(poster.rendering)

    async def _fold(self) -> None:
        deps = self._deps
        stream = follow(
            self.run_id, None, conversations=deps.conversations, bus=deps.bus, recheck=self._recheck
        )
        async with aclosing(stream):
            async for one in stream:
                self._view = apply_event(self._view, one.event)
                self._stream.apply(one.event)
                self._changed.set()
                self._signs_changed.set()
                if self._view.state != "queued":
                    self._taken_up.set()
                if has_steps(self._view):
                    self._has_steps.set()
                if self._view.replies:
                    self._has_replied.set()
                if isinstance(one.event, MessageAdded):
                    self._unread.discard(str(one.event.message.metadata.get("message_ref")))
                now, no_more = self._works, self._waits
                if self._view.state == "waiting":
                    now, no_more = no_more, now
                now.set()
                no_more.clear()
        await self._end_view()

    async def _end_view(self) -> None:
        """Draws the end of the run from its row if its events are deleted."""
        if self._view.state not in UNENDED_STATES:
            return
        run = await self._deps.conversations.run(self.run_id)
        if run is not None and (ended := terminal_event(run)) is not None:
            self._view = apply_event(self._view, ended)

    async def _note_long_queue(self) -> None:
        await wait_at_most(self._taken_up, LONG_WAIT_SECONDS)
        self._has_queued_long = not self._taken_up.is_set()
        self._changed.set()

    async def _keep_signs(self, run: Run, poster: Poster) -> None:
        """Keeps the reactions on the request, and on what people write during the run, up to date until it ends."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(QUEUED_AFTER_SECONDS, self._signs_changed.set)
        waits_from = loop.time() + QUEUED_AFTER_SECONDS
        while not self._over.is_set():
            self._signs_changed.clear()
            await self._note_follow_ups(run)
            signs = self._current_signs(run, is_slow=loop.time() >= waits_from)
            for ref, sign in signs.items():
                if self._signs.get(ref) != sign and not self._over.is_set():
                    self._signs[ref] = sign
                    await self._sign(ref, sign, run, poster)
            await wait_for_first(self._signs_changed, self._over)
        timer.cancel()

    async def _sign(self, ref: str, sign: Reaction, run: Run, poster: Poster) -> None:
        with suppress(StorageUnavailable):  # the end of the run sets the reaction that counts
            refused = await poster.set_reaction(ref, sign, is_patient=sign == "asking")
            is_closed = refused != "missing_scope" and refused in poster.surface.closed_reasons
            if ref == run.request_ref and is_closed:
                self._may_be_closed.set()  # the status message finds out, before much work is done

    def _current_signs(self, run: Run, *, is_slow: bool) -> dict[str, Reaction]:
        """Returns the reactions of a run that has not ended. A request that may be meant for other people gets none
        before the first step, and one that begins at once is never "queued"."""
        signs: dict[str, Reaction] = dict.fromkeys(self._follow_ups, "seen")
        state = self._view.state
        is_meant = run.attention != "unsure" or has_steps(self._view)
        if run.request_ref and is_meant and state in UNENDED_STATES:
            if self._asked[0]:
                signs[run.request_ref] = "asking"
            elif state != "queued" or is_slow:
                signs[run.request_ref] = "queued" if state == "queued" else "seen"
        return signs

    async def _note_follow_ups(self, run: Run) -> None:
        """Notes messages and edits that came during the run, except those that may be meant for other people."""
        if not self._inputs_changed:
            return
        self._inputs_changed = False
        try:
            inputs = await self._deps.conversations.unread_inputs(run.thread_id)
        except StorageUnavailable as error:
            log.info("new messages during run %s wait for the database: %s", run.run_id, error)
            self._inputs_changed = True
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._signs_changed.set)
            return
        meant = (one for one in inputs if one.attention != "unsure")
        new = {one for one in meant if one.is_news_for(run.request_ref)} - self._noted
        self._noted |= new
        refs = dict.fromkeys(one.message_ref for one in new)
        self._follow_ups |= refs
        self._unread |= refs.keys()
        self._changed.set()

    async def _keep_typing(self, run: Run, address: Address, surface: DeliverySurface) -> None:
        """Shows the typing indicator until the run ends, except while the run waits for an approval."""
        delay = min(TYPING_AFTER_SECONDS, self._deps.status_after_seconds)
        await wait_at_most(self._over, delay)
        if run.attention != "addressed":
            await wait_for_first(self._has_steps, self._over)
        while not self._over.is_set():
            async with surface.typing(address):
                await wait_for_first(self._over, self._waits)
            await wait_for_first(self._over, self._works)

    async def _keep_status(self, run: Run, poster: Poster, writer: asyncio.Task[None]) -> None:
        """Edits the status message to the newest view, at the platform's edit interval, until the run ends.

        Posts it at the first step, or after `status_after_seconds`. `_leave` shows the final state, after the answer.
        """
        reasons = (self._has_steps, self._has_replied, self._over)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deps.status_after_seconds):
                await wait_for_first(*reasons, self._may_be_closed)
        if run.attention != "addressed":
            await wait_for_first(*reasons)  # the agent may still decide to say nothing
        while not self._over.is_set():
            await wait_for_first(self._changed, self._over)
            if self._over.is_set() or self._view.state not in UNENDED_STATES:
                return
            self._changed.clear()
            try:
                await self._show_status(poster)
                await self._show_approval(run, poster)
                await self._show_replies(run, poster, writer)
            except LeaseLost:
                log.info("another process shows run %s now", self.run_id)
                return
            pace = poster.surface.edit_interval_seconds
            crowd = max(1.0, self._active_runs() / RUNS_PER_INTERVAL)
            await wait_at_most(self._over, pace * crowd)

    async def _show_approval(self, run: Run, poster: Poster) -> None:
        """Posts an approval request as a separate message, and updates that message with the decision.

        Compares the number of requests as well as the state, because a run can resume and ask again between two calls.
        """
        waits = self._view.state == "waiting"
        asked = (waits, self._view.approvals)
        if asked == self._asked:
            return
        posting = replace(poster)
        try:
            await wait_for_earlier_runs(poster.rendering, self._deps)
            await deliver_outbox(run, posting, self._deps)
        except (SurfaceError, StorageUnavailable) as error:
            log.warning("the approval of run %s was not shown: %s", self.run_id, error)
            self._changed.set()
            return
        self._asked = asked
        self._signs_changed.set()
        if any(one.slot == "ask" for one in posting.refused_posts()):
            await self._deps.stop_run(
                self.run_id
            )  # nobody can answer it, and the end of the run tells the requester

    async def _show_replies(self, run: Run, poster: Poster, writer: asyncio.Task[None]) -> None:
        """Posts the replies that the run has left while it goes on, the first of them as the message of `writer`."""
        replies = self._view.replies
        if replies == self._replies_shown:
            return
        await asyncio.wait([writer], timeout=STREAM_END_SECONDS_MAX)
        try:
            await wait_for_earlier_runs(poster.rendering, self._deps)
            await deliver_outbox(run, replace(poster), self._deps)
        except (SurfaceError, StorageUnavailable) as error:
            log.warning("a reply of run %s was not posted yet: %s", self.run_id, error)
            self._changed.set()
            return
        self._replies_shown = replies

    async def _show_status(self, poster: Poster) -> None:
        view = self._current_view()
        if view == self._shown:
            return
        try:
            status = await poster.plan_one(STATUS)
            await poster.show(status, RunStatus(run_id=self.run_id, view=view), is_final=False)
            self._shown = view
            if any(one.error in poster.surface.closed_reasons for one in poster.refused_posts()):
                await self._deps.stop_run(self.run_id)  # no one would see the work
        except SurfaceRateLimited as limited:
            self._changed.set()
            await wait_at_most(self._over, limited.retry_after_seconds)
        except SurfaceError as error:
            log.warning("the status of run %s was not shown: %s", self.run_id, error)
        except StorageUnavailable as error:
            log.warning("the status of run %s waits for the database: %s", self.run_id, error)
            self._changed.set()

    def _current_view(self) -> RunView:
        if self._view.state == "queued" and self._has_queued_long:
            return replace(self._view, activity=LONG_QUEUE)
        view = replace(self._view, preview="") if self._stream.is_growing else self._view
        if self._unread:
            activity = f"{view.activity} · {READ_NEXT}".removeprefix(" · ")
            return replace(view, activity=activity)
        return view

    async def _leave(self, run: Run, poster: Poster) -> Sequence[Delivery]:
        """Posts the results of the ended run, then shows the final state in the status message.

        A run without steps whose status was never posted gets none, because its answer says it all. Returns all
        deliveries.
        """
        telling = spawn(_tell_long_wait(run, poster), name=f"wait of {self.run_id}")
        try:
            await wait_for_earlier_runs(poster.rendering, self._deps)
            planned = await deliver_outbox(run, poster, self._deps)
            await end_streams(planned, poster)
        finally:
            await cancel(telling)
        is_posted = any(one.slot == "status" for one in planned)
        if self._view.state == "silent" and not is_posted:
            return planned
        is_needed = self._view.state not in ("completed", "asking") or has_steps(self._view)
        if not (is_posted or is_needed or self._deps.status_after_seconds == 0):
            return planned
        status = await poster.plan_one(STATUS)
        final = RunStatus(
            run_id=self.run_id, view=await finish_view(self._view, self.run_id, self._deps)
        )
        await poster.show(status, final, is_final=True)
        if (shown := poster.newest(status)).state == "failed" and shown.message_ref:
            # the message can no longer be edited, so it would say "Working" for ever
            again = await poster.plan_one(DeliveryDraft(slot="status", ordinal=1, body={}))
            await poster.show(again, final)
            if poster.newest(again).state == "delivered":
                with suppress(SurfaceError):  # somebody may have deleted it
                    await poster.surface.delete(poster.address, shown.message_ref)
        return planned

    async def _sign_end(self, run: Run, poster: Poster, *, is_refused: bool) -> None:
        """Sets the final reactions, after all earlier ones are done: a cross if a message of the run was refused.

        A delivery that resumes after a crash sets them again.
        """
        if self._signing is not None:
            await asyncio.wait([self._signing])
        state = "failed" if is_refused else self._view.state
        if state == "silent" and run.attention == "unsure" and not has_steps(self._view):
            return  # it never had a reaction
        for ref, sign in (await self._final_signs(run, state)).items():
            await poster.set_reaction(ref, sign)

    async def _sign_late(self, run: Run, address: Address, surface: DeliverySurface) -> None:
        """Sets the final reactions again after this process lost its lease.

        A reaction that this process sent late may have replaced the final reaction that the new owner set. Reactions of
        runs that have not ended are left to the process that shows them.
        """
        if self._signing is None:
            return
        await asyncio.wait([self._signing])
        with suppress(SurfaceError, StorageUnavailable):
            for other in reversed(await self._deps.conversations.runs(run.thread_id)):
                ended = terminal_event(other)
                state = apply_event(RunView(), ended).state if ended else "working"
                if state in UNENDED_STATES or not self._signs:
                    return
                for ref, sign in (await self._final_signs(other, state)).items():
                    if self._signs.pop(ref, None) is not None:
                        await surface.react(address, ref, sign)

    async def _final_signs(self, run: Run, state: ViewState) -> dict[str, Reaction | None]:
        """Returns the reactions on the messages that show the end of the run. The request shows an open question."""
        refs = await self._deps.conversations.refs_shown_by(run.run_id)
        signs: dict[str, Reaction | None] = dict.fromkeys(refs, FINAL_SIGNS.get(state))
        if state == "asking" and run.request_ref in signs:
            asked = await self._deps.asks.ask_of_run(run.run_id)
            if asked is not None and asked.state == "open":
                signs[run.request_ref] = "asking"
        return signs


async def _tell_long_wait(run: Run, poster: Poster) -> None:
    """Tells the requester that the answer waits for its turn, without a message that would wait as well."""
    await asyncio.sleep(LONG_WAIT_SECONDS)
    if run.requester is None or run.requester.is_app:
        return
    try:
        await poster.surface.tell_privately(
            poster.address, run.requester.person_id, LONG_POST_QUEUE
        )
    except SurfaceError as error:
        log.info("the wait of run %s was not told: %s", run.run_id, error)


UNENDED_STATES = frozenset({"queued", "working", "waiting"})
STATUS = DeliveryDraft(slot="status", body={})
FINAL_SIGNS: Mapping[str, Reaction] = {
    "completed": "done",
    "limited": "limited",
    "asking": "done",
    "stopped": "failed",
    "failed": "failed",
}
