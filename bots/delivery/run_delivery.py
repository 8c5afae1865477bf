"""Shows runs in their chat threads.

One task per run applies its events to a view, keeps the status message up to date, and finally posts the results.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress

from bots.delivery.content import RunStatus
from bots.delivery.outbox import deliver_outbox
from bots.delivery.poster import DeliveryDeps, DeliverySurface, Poster
from bots.delivery.run_view import RunView, apply_event
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRateLimited
from core.domain.threads import Address, Run
from core.observability import set_log_context
from core.ports import Reaction
from core.run.event_replay import follow
from core.stores import Delivery, DeliveryDraft
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

SWEEP_SECONDS = 2.0
QUEUED_AFTER_SECONDS = 1.5
RUNS_PER_INTERVAL = 5
"""Number of active runs up to which each run edits its status at full speed. With more runs, each edits less often."""


class RunDelivery:
    """Delivers all runs of this process until `close`. The next process delivers the remaining messages."""

    def __init__(self, showroom: DeliveryDeps) -> None:
        self._showroom = showroom
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
            return
        show = _Show(run_id, self._showroom, self.active_runs)
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
        except Exception:
            log.exception("showing run %s failed; it is tried again", show.run_id)

    async def _sweep(self) -> None:
        while True:
            try:
                room = self._showroom
                for run_id in await room.deliveries.open_runs(for_worker=room.worker_id):
                    if run_id not in self._shows:
                        self.wake(run_id)
            except Exception:
                log.exception("the delivery sweep failed")
            await asyncio.sleep(SWEEP_SECONDS)


class _Show:
    """Delivers one run: applies its events to a view, updates the status message and posts the results."""

    def __init__(self, run_id: str, showroom: DeliveryDeps, active_runs: Callable[[], int]) -> None:
        self.run_id = run_id
        self._showroom = showroom
        self._active_runs = active_runs
        self._view = RunView()
        self._shown: RunView | None = None
        self._asked = (False, 0)
        self._signing: asyncio.Task[None] | None = None
        self._waits = asyncio.Event()
        self._works = asyncio.Event()
        self._changed = asyncio.Event()
        self._taken_up = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def is_leaving(self) -> bool:
        """Whether the run has ended, so that only its results remain to post."""
        return self._over.is_set()

    async def play(self) -> None:
        showroom = self._showroom
        run = await showroom.conversations.run(self.run_id)
        snapshot = await showroom.conversations.snapshot(run.thread_id) if run else None
        if run is None or snapshot is None:
            return
        address = snapshot.thread.address
        if (surface := showroom.surfaces.get(address.platform)) is None:
            return
        set_log_context(run_id=self.run_id, thread_id=run.thread_id, worker=showroom.worker_id)
        rendering = await showroom.deliveries.claim(self.run_id, showroom.worker_id)
        if rendering is None:
            return
        try:
            await self._show(run, Poster(address, surface, rendering, showroom.deliveries))
        except LeaseLost:
            await self._sign_late(run, address, surface)
            raise

    async def _show(self, run: Run, poster: Poster) -> None:
        if run.status in ("queued", "running"):
            self._signing = spawn(self._sign_start(run, poster), name="reaction")
        planned = await poster.plan([DeliveryDraft(slot="status", body={})])
        status = next(one for one in planned if one.slot == "status")
        editor = spawn(self._keep_status(run, status, poster), name=f"status of {self.run_id}")
        typing = self._keep_typing(poster.address, poster.surface)
        typist = spawn(typing, name=f"typing of {self.run_id}")
        try:
            await self._fold()
        except asyncio.CancelledError:
            editor.cancel()  # only here: a cancelled post may still arrive, so a normal end lets it finish
            raise
        finally:
            self._over.set()
            await asyncio.wait([editor, typist])
        await self._leave(run, status, poster)
        await self._sign_end(run, poster)
        await self._showroom.deliveries.close(poster.rendering)

    async def _fold(self) -> None:
        showroom = self._showroom
        stream = follow(self.run_id, None, conversations=showroom.conversations, bus=showroom.bus)
        async with aclosing(stream):
            async for one in stream:
                self._view = apply_event(self._view, one.event)
                self._changed.set()
                if self._view.state != "queued":
                    self._taken_up.set()
                now, no_more = self._works, self._waits
                if self._view.state == "waiting":
                    now, no_more = no_more, now
                now.set()
                no_more.clear()

    async def _keep_typing(self, address: Address, surface: DeliverySurface) -> None:
        """Shows the typing indicator until the run ends, except while the run waits for an approval."""
        while not self._over.is_set():
            async with surface.typing(address):
                await _first_of(self._over, self._waits)
            await _first_of(self._over, self._works)

    async def _keep_status(self, run: Run, status: Delivery, poster: Poster) -> None:
        """Edits the status message to the newest view, at the platform's edit interval, until the run ends.

        The final state is not shown here; `_leave` posts it after the answer.
        """
        await _wait_at_most(self._taken_up, QUEUED_AFTER_SECONDS)
        while not self._over.is_set():
            await _first_of(self._changed, self._over)
            if self._over.is_set():
                return
            self._changed.clear()
            await self._show_status(status, poster)
            await self._show_approval(run, poster)
            pace = poster.surface.edit_interval_seconds
            crowd = max(1.0, self._active_runs() / RUNS_PER_INTERVAL)
            await _wait_at_most(self._over, pace * crowd)

    async def _show_approval(self, run: Run, poster: Poster) -> None:
        """Posts an approval request as a separate message, and updates that message with the decision.

        Compares the number of requests as well as the state, because a run can resume and ask again between two calls.
        """
        waits = self._view.state == "waiting"
        asked = (waits, self._view.approvals)
        if asked == self._asked:
            return
        fresh = Poster(poster.address, poster.surface, poster.rendering, poster.deliveries)
        try:
            await deliver_outbox(run, fresh, self._showroom)
        except (SurfaceError, StorageUnavailable) as error:
            log.warning("the approval of run %s was not shown: %s", self.run_id, error)
            self._changed.set()
            return
        self._asked = asked
        sign = self._sign_wait(run, poster, "asking" if waits else "seen", after=self._signing)
        self._signing = spawn(sign, name="reaction")

    async def _show_status(self, status: Delivery, poster: Poster) -> None:
        view = self._view
        if view == self._shown:
            return
        try:
            await poster.show(status, RunStatus(run_id=self.run_id, view=view), is_final=False)
            self._shown = view
        except SurfaceRateLimited as limited:
            self._changed.set()
            await _wait_at_most(self._over, limited.retry_after_seconds)
        except SurfaceError as error:
            log.warning("the status of run %s was not shown: %s", self.run_id, error)
        except StorageUnavailable as error:
            log.warning("the status of run %s waits for the database: %s", self.run_id, error)
            self._changed.set()
        except LeaseLost:
            log.info("another process shows run %s now", self.run_id)

    async def _leave(self, run: Run, status: Delivery, poster: Poster) -> None:
        """Posts the results of the ended run, then shows the final state in the status message."""
        await deliver_outbox(run, poster, self._showroom)
        final = RunStatus(run_id=self.run_id, view=self._view)
        await poster.show(status, final, is_final=True)

    async def _sign_wait(
        self, run: Run, poster: Poster, sign: Reaction, *, after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        if run.request_ref:
            await poster.sign(run.request_ref, sign)

    async def _sign_end(self, run: Run, poster: Poster) -> None:
        """Sets the final reaction on the request, after all earlier reactions are done.

        A delivery that resumes after a crash sets the reaction again. Skips the "asking" reaction if the question is
        already answered, because the next run then sets the reactions.
        """
        if self._signing is not None:
            await asyncio.wait([self._signing])
        sign = FINAL_SIGNS.get(self._view.state)
        if sign is None or not run.request_ref:
            return
        if sign == "asking":
            asked = await self._showroom.asks.ask_of_run(run.run_id)
            if asked is None or asked.state != "open":
                return
        await poster.sign(run.request_ref, sign)

    async def _sign_start(self, run: Run, poster: Poster) -> None:
        """Sets the "seen" reaction, or "queued" if the run does not start within QUEUED_AFTER_SECONDS."""
        if not run.request_ref:
            return
        await _wait_at_most(self._taken_up, QUEUED_AFTER_SECONDS)
        sign: Reaction = "queued" if self._view.state == "queued" else "seen"
        await poster.sign(run.request_ref, sign, is_patient=False)

    async def _sign_late(self, run: Run, address: Address, surface: DeliverySurface) -> None:
        """Sets the final reaction again after this process lost its lease.

        A reaction that this process sent late may have replaced the final reaction that the new owner set.
        """
        sign = FINAL_SIGNS.get(self._view.state, "asking")
        if self._signing is not None and run.request_ref and sign != "asking":
            await asyncio.wait([self._signing])
            with suppress(SurfaceError):
                await surface.react(address, run.request_ref, sign)


FINAL_SIGNS: Mapping[str, Reaction] = {
    "completed": "done",
    "limited": "done",
    "asking": "asking",
    "stopped": "failed",
    "failed": "failed",
}


async def _first_of(*events: asyncio.Event) -> None:
    waits = [spawn(event.wait(), name="wait") for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
