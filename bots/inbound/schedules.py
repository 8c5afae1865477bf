"""Begins the tasks of schedules that are due. The database decides which process does it; each time begins one run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bots.inbound.actions import Outcome, UserAction
from core.domain.actions import ActorContext, IncomingMessage
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.outside_text import shown_name
from core.domain.schedules import LATE_SECONDS, DueSchedule, Firing, Schedule, format_time, is_quiet, plan_firing
from core.domain.threads import Address, Person
from core.ports import Precondition
from core.stores import Conversations, Schedules

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
CLAIM_SECONDS = 60.0
"""How long a process may take to begin a run, until another one does it."""
NO_ACCESS = "whoever armed it has left or may no longer ask me there"
PROGRAM = Person(person_id="", name="Threadhand")
PAUSED = "I paused the schedule “{task}” (`{id}`), because {problem}. `schedules resume {id}` arms it again."


class ScheduleChats(Protocol):
    """The chat platforms as schedules use them. Every method raises SurfaceError."""

    async def announce(self, firing: Firing, text: str, *, may_be_posted: bool, precondition: Precondition) -> str:
        """Posts the text about a firing into the schedule's thread, or into its channel, which opens a thread. Returns
        the message's id. With `may_be_posted`, looks for it first."""
        ...

    async def find_standing(self, address: Address, person_id: str) -> ActorContext:
        """Returns what the platform tells of a user now."""
        ...

    async def tell(self, address: Address, text: str) -> object:
        """Posts Markdown into a thread."""
        ...

    async def tell_person(self, address: Address, person_id: str, text: str) -> None:
        """Posts Markdown to the user's direct messages."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRunner:
    """Looks for schedules that are due and begins their runs.

    `admits` checks the access of the person who armed it at that time, and `receive` takes the task in like a message
    of theirs. `serves` tells whether this process posts on a platform, and `closed_reasons` names its refusals.
    `quiet_hours` are the hours of the day in which nothing fires.
    """

    schedules: Schedules
    conversations: Conversations
    chats: ScheduleChats
    admits: Callable[[UserAction], Awaitable[bool]]
    receive: Callable[[UserAction], Awaitable[Outcome]]
    serves: Callable[[str], bool]
    closed_reasons: Callable[[str], Mapping[str, str]]
    quiet_hours: tuple[int, int] | None = None

    async def look(self) -> None:
        """Begins what is due, and goes on with what another process has left. Raises StorageUnavailable."""
        now = datetime.now(UTC)
        if not await self.schedules.has_work(now):
            return
        fired = [firing for due in await self.schedules.due(now) if (firing := await self._begin(due, now))]
        until = now + timedelta(seconds=CLAIM_SECONDS)
        left = await self.schedules.take_pending(now, until)
        await asyncio.gather(
            *(self._fire(one, until, may_be_posted=False) for one in fired),
            *(self._fire(one, until, may_be_posted=True) for one in left),
        )

    async def _begin(self, due: DueSchedule, now: datetime) -> Firing | None:
        schedule = due.schedule
        if not self.serves(schedule.address.platform) or is_quiet(now, schedule.timing.time_zone, self.quiet_hours):
            return None
        plan = plan_firing(due, now)
        if plan.pause:
            await self._pause(schedule, plan.pause)
            return None
        until = now + timedelta(seconds=CLAIM_SECONDS)
        return await self.schedules.begin(due, plan, due_at=schedule.timing.due_at, claimed_until=until)

    async def _fire(self, firing: Firing, until: datetime, *, may_be_posted: bool) -> None:
        schedule = firing.schedule
        if not self.serves(schedule.address.platform):
            return
        try:
            async with asyncio.timeout(CLAIM_SECONDS / 2):
                if firing.note:
                    await self._say_skipped(firing)
                else:
                    await self._begin_run(firing, until, may_be_posted=may_be_posted)
        except SurfaceRefused as refused:
            reasons = self.closed_reasons(schedule.address.platform)
            await self._give_up(firing, reasons.get(refused.code) or f"the chat platform refused it: {refused}")
        except (SurfaceError, StorageUnavailable, LeaseLost, TimeoutError) as error:
            log.info("schedule %s fires later: %s", schedule.schedule_id, error or type(error).__name__)

    async def _begin_run(self, firing: Firing, until: datetime, *, may_be_posted: bool) -> None:
        """Announces the firing and begins its run. After a crash in between, the announcement is found again, and the
        run has begun already if its key is claimed."""

        async def is_claimed() -> None:
            if datetime.now(UTC) >= until:
                raise LeaseLost("another process has taken it over")

        schedule = firing.schedule
        actor = await self.chats.find_standing(schedule.address, schedule.owner.person_id)
        request = IncomingMessage(
            address=schedule.address,
            dedupe_key=f"schedule:{firing.firing_id}",
            person=schedule.owner,
            sent_at=datetime.now(UTC),
            text=_request(firing),
            actor=actor,
            agent_id=schedule.agent_id,
            is_automatic=True,
        )
        if schedule.address.platform != "api" and not await self.admits(request):
            await self._give_up(firing, NO_ACCESS)
            return
        ref = firing.message_ref
        if not ref:
            text = announcement(firing)
            ref = await self.chats.announce(firing, text, may_be_posted=may_be_posted, precondition=is_claimed)
            if not await self.schedules.announce(firing.firing_id, ref):
                return  # the schedule was deleted meanwhile
        address = schedule.address
        if schedule.opens_thread:
            address = replace(address, thread_key=ref)
        message_ref = "" if address.platform == "api" else ref
        outcome = await self.receive(replace(request, address=address, message_ref=message_ref))
        if outcome.run_id is None and outcome.notice:
            await self.chats.tell(address, outcome.notice)
        await self.schedules.close(firing.firing_id, "fired" if outcome.run_id else "skipped", run_id=outcome.run_id)

    async def _say_skipped(self, firing: Firing) -> None:
        """Says in the thread of the time before that this one is skipped."""
        found = await self.conversations.run_with_thread(firing.run_id) if firing.run_id else None
        if found is not None and found[1].address.platform != "api":
            await self.chats.tell(found[1].address, f"{format_time(firing.due_local)} · {firing.note}")
        await self.schedules.close(firing.firing_id, "skipped", run_id=firing.run_id)

    async def _give_up(self, firing: Firing, problem: str) -> None:
        await self._pause(firing.schedule, problem)
        await self.schedules.close(firing.firing_id, "skipped")

    async def _pause(self, schedule: Schedule, problem: str) -> None:
        """Pauses the schedule and tells its owner why."""
        if not await self.schedules.pause(schedule.schedule_id, problem=problem, by=PROGRAM):
            return
        log.warning("schedule %s is paused: %s", schedule.schedule_id, problem)
        text = PAUSED.format(task=schedule.task[:200], id=schedule.schedule_id, problem=problem)
        try:
            if schedule.address.platform != "api":
                await self.chats.tell_person(schedule.address, schedule.owner.person_id, text)
        except SurfaceError as error:
            log.warning("schedule %s: its owner was not told: %s", schedule.schedule_id, error)


def announcement(firing: Firing) -> str:
    """Returns the line under which a scheduled run begins."""
    schedule, parts = firing.schedule, list[str]()
    parts.append(f"Scheduled by **{shown_name(schedule.owner.name)}**")
    if schedule.timing.rule:
        parts.append(schedule.rule_in_words)
    if firing.missed:
        parts.append(f"{firing.missed + 1} times came while I was away or quiet, this is for all of them")
    elif (datetime.now(UTC) - firing.due_at).total_seconds() > LATE_SECONDS:
        parts.append(f"planned for {format_time(firing.due_local)}")
    parts.append("`schedules` manages it")
    return " · ".join(parts)


def _request(firing: Firing) -> str:
    schedule = firing.schedule
    missed = f" It stands for {firing.missed + 1} times." if firing.missed else ""
    return f"This is the scheduled task that is due now ({schedule.rule_in_words}).{missed} Do it:\n{schedule.task}"
