"""Starts the tasks of schedules: at their times, and when an event happens that a trigger waits for.

The database decides which process starts a task, so that each time and each event starts one run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, get_args

from bots.inbound.actions import Admits, Receive
from core.domain.actions import ActorContext, IncomingMessage
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.outside_text import escape_markdown, escape_name, quote_lines, single_line
from core.domain.schedules import (
    EVENTS_PER_HOUR_MAX,
    FAILING,
    LATE_SECONDS,
    EventRefusal,
    Firing,
    Schedule,
    Trigger,
    TriggerEvent,
    format_time,
    is_in_quiet_hours,
    plan_firing,
)
from core.domain.threads import Address, Person, Platform
from core.ports import Precondition
from core.prompt.system_prompt import find_time_zone
from core.stores import Conversations, Schedules
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
CLAIM_SECONDS = 60.0
"""How long a process may take to start a run before another process takes over."""
CLOCKS_SECONDS = 60.0
GROUP_SECONDS = 1.0
"""How often the firing of an event checks whether an earlier event has opened the thread of their group."""
NO_ACCESS = "whoever armed it has left or may no longer ask me there"
TITLE_CHARACTERS_MAX = 200
TOO_OFTEN = f"it began {EVENTS_PER_HOUR_MAX} tasks within an hour, as something does that sets itself off"
PROGRAM = Person(person_id="", name="Threadhand")
PAUSED = "I paused the schedule “{task}” (`{id}`), because {problem}. {remedy}"


LocateTriggerEvent = Callable[[], Awaitable[TriggerEvent]]
"""Returns the event with its thread, and with the app that caused it, which may take calls to the platform. Raises
SurfaceError."""


class TriggerEventHandler(Protocol):
    async def __call__(self, event: TriggerEvent, locate: LocateTriggerEvent | None = None) -> None:
        """Handles an event in a channel that is not addressed to the agent.

        `locate` is called only if a schedule waits for the event. After StorageUnavailable or SurfaceError, the caller
        must deliver the event again."""
        ...


class ScheduleChats(Protocol):
    """What schedules need of the chat platforms. Every method raises SurfaceError."""

    async def post_announcement(
        self, firing: Firing, text: str, *, may_be_posted: bool, precondition: Precondition
    ) -> str:
        """Posts the text about a firing into its thread, or into its channel, which opens a thread. Returns the
        message's id.

        With `may_be_posted`, first looks for the message of an earlier attempt."""
        ...

    async def fetch_actor_context(self, address: Address, person_id: str) -> ActorContext:
        """Returns what the platform reports about a user now."""
        ...

    async def post_notice(self, address: Address, text: str) -> object:
        """Posts Markdown into a chat thread. Does nothing for a thread of the HTTP API."""
        ...

    async def send_direct_message(self, address: Address, person_id: str, text: str) -> None:
        """Posts Markdown to a user's direct messages."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRunner:
    """Finds schedules that are due, handles events that triggers wait for, and starts their runs.

    `admits` checks whether the owner of the schedule has access at that time, and `receive` takes in the task like a
    message from them. `serves` returns whether this process posts on a platform, and `closed_reasons` explains the
    platform's refusals. `quiet_hours` are the hours of the day in which nothing is due. `apps` are the apps whose
    messages may start a task. `watched` holds the channels in which a trigger waited at the last check."""

    schedules: Schedules
    conversations: Conversations
    chats: ScheduleChats
    admits: Admits
    receive: Receive
    serves: Callable[[str], bool]
    closed_reasons: Callable[[str], Mapping[str, str]]
    quiet_hours: tuple[int, int] | None = None
    apps: Collection[str] = ()
    watched: set[Address] = field(default_factory=set[Address])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def close(self) -> None:
        """Cancels the firings that events have started. Another process continues them."""
        await cancel(*self.tasks)

    async def fire_due_schedules(self) -> None:
        """Starts the schedules that are due, and continues firings that another process has left. Raises
        StorageUnavailable."""
        watched = {replace(one.address, thread_key="") for one in await self.schedules.list_triggers()}
        self.watched.clear()
        self.watched.update(watched)
        looked_at = asyncio.get_running_loop().time()  # measured before the database reads its own clock
        if (now := await self.schedules.find_time_of_work()) is None:
            return
        until = now + timedelta(seconds=CLAIM_SECONDS)
        fired: list[Firing] = []
        for due in await self.schedules.due_schedules(now, partial(self._may_fire, now)):
            due_at = due.schedule.timing.due_at
            firing = await self.schedules.begin_firing(due, plan_firing(due, now), due_at=due_at, claimed_until=until)
            if firing is not None:
                fired.append(firing)
        served = tuple(filter(self.serves, get_args(Platform)))
        left = await self.schedules.claim_pending_firings(now, until, served)
        await asyncio.gather(
            *(self._fire(one, looked_at, may_be_posted=False) for one in fired),
            *(self._fire(one, looked_at, may_be_posted=True) for one in left),
        )

    async def handle_trigger_event(self, event: TriggerEvent, locate: LocateTriggerEvent | None = None) -> None:
        """Implements `Hear`: stores a firing for each schedule that waits for the event, and starts their runs."""
        try:
            waiting = await self.schedules.list_triggers(event.address)
        except StorageUnavailable:
            if replace(event.address, thread_key="") in self.watched:
                raise
            return  # events where no trigger waits need not be delivered again, and there are many of them
        for schedule in waiting:
            # allow for a difference between the two clocks
            armed_at, happened_at = schedule.armed_at - timedelta(seconds=CLOCKS_SECONDS), event.happened_at
            is_new = happened_at is None or happened_at > armed_at
            trigger = schedule.timing
            if is_new and isinstance(trigger, Trigger) and trigger.matches(event, self.apps):
                try:
                    event, locate = await locate() if locate else event, None
                except SurfaceRefused as refused:  # the message was deleted
                    log.info("an event begins nothing: %s", refused)
                    return
                # now it is known whether an app caused it
                if trigger.matches(event, self.apps) and await self.fire_for_event(schedule, event) == "too_often":
                    self._give_up_once(schedule, TOO_OFTEN)

    async def fire_for_event(self, schedule: Schedule, event: TriggerEvent) -> EventRefusal | None:
        """Stores a firing and starts its run in the background, or returns why it does not. Leaves the run to another
        process if this one does not post on the platform. Raises StorageUnavailable."""
        heard_at, is_served = asyncio.get_running_loop().time(), self.serves(schedule.address.platform)
        claim_seconds = CLAIM_SECONDS if is_served else 0.0
        firing = await self.schedules.begin_event_firing(schedule, event, claim_seconds=claim_seconds)
        if not isinstance(firing, Firing):
            log.info("schedule %s begins nothing: %s", schedule.schedule_id, firing)
            if firing == "failing":
                self._give_up_once(schedule, FAILING)
            return firing
        if is_served:
            self._spawn(self._fire(firing, heard_at, may_be_posted=False))
        return None

    def _give_up_once(self, schedule: Schedule, problem: str) -> None:
        """Pauses the schedule in the background, once even if several events find the same problem."""
        name = f"giving up {schedule.schedule_id}"
        if all(task.get_name() != name for task in self.tasks):
            self._spawn(self._give_up(schedule, problem), name)

    def _spawn(self, work: Coroutine[object, object, None], name: str = "a task that an event began") -> None:
        task = spawn(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _may_fire(self, now: datetime, schedule: Schedule) -> bool:
        time_zone = schedule.timing.time_zone
        if find_time_zone(time_zone) is None:
            log.error("schedule %s: the time zone %s is unknown", schedule.schedule_id, time_zone)
            return False
        return self.serves(schedule.address.platform) and not is_in_quiet_hours(now, time_zone, self.quiet_hours)

    async def _fire(self, firing: Firing, looked_at: float, *, may_be_posted: bool) -> None:
        schedule = firing.schedule
        try:
            async with asyncio.timeout_at(looked_at + CLAIM_SECONDS / 2):
                problem = firing.note if firing.note == FAILING else ""
                if not firing.note:
                    problem = await self._begin_run(firing, looked_at, may_be_posted=may_be_posted)
                if problem:
                    await self._give_up(schedule, problem)
                elif firing.note:
                    await self._skip(firing)
        except (SurfaceError, StorageUnavailable, LeaseLost, TimeoutError) as error:
            log.info("schedule %s fires later: %s", schedule.schedule_id, error or type(error).__name__)

    async def _skip(self, firing: Firing) -> None:
        """Posts in the thread of the time before that this time is skipped."""
        found = await self.conversations.run_with_thread(firing.run_id) if firing.run_id else None
        if found is not None:
            try:
                await self.chats.post_notice(found[1].address, f"{format_time(firing.due_local)} · {firing.note}")
            except SurfaceRefused as refused:  # that thread may be gone; the next time may open another
                log.info("schedule %s: %s", firing.schedule.schedule_id, refused)
        await self.schedules.close(firing.firing_id, "skipped", run_id=firing.run_id)

    async def _begin_run(self, firing: Firing, looked_at: float, *, may_be_posted: bool) -> str:
        """Announces the firing and starts its run. Returns the reason if that is permanently impossible, else "".

        After a crash in between, the announcement is found again, and if the run was already started, its key is
        claimed."""

        async def is_claimed() -> None:
            if asyncio.get_running_loop().time() >= looked_at + CLAIM_SECONDS:
                raise LeaseLost("another process has taken it over")

        try:
            return await self._announce_and_begin(firing, is_claimed, may_be_posted=may_be_posted)
        except SurfaceRefused as refused:
            if firing.group_key:  # the thread of the earlier events may be gone
                alone = replace(firing, group_key="")
                return await self._begin_run(alone, looked_at, may_be_posted=may_be_posted)
            reasons = self.closed_reasons(firing.schedule.address.platform)
            return reasons.get(refused.code) or f"the chat platform refused it: {refused}"

    async def _announce_and_begin(self, firing: Firing, is_claimed: Precondition, *, may_be_posted: bool) -> str:
        schedule = firing.schedule
        actor = await self.chats.fetch_actor_context(schedule.address, schedule.owner.person_id)
        request = IncomingMessage(
            address=schedule.address,
            dedupe_key=firing.dedupe_key,
            person=schedule.owner,
            sent_at=datetime.now(UTC),
            text=_request(firing),
            actor=actor,
            agent_id=schedule.agent_id,
            is_automatic=True,
        )
        if schedule.address.platform != "api" and not await self.admits(request):
            return NO_ACCESS
        ref = firing.message_ref
        while firing.group_key and schedule.opens_thread and not ref:  # the time limit in `_fire` ends this wait
            if (placed := await self.schedules.find_group_thread(firing)) is not None:
                firing = placed
                break
            await asyncio.sleep(GROUP_SECONDS)
        if not ref:
            text = format_announcement(firing)
            ref = await self.chats.post_announcement(firing, text, may_be_posted=may_be_posted, precondition=is_claimed)
            if not await self.schedules.record_announcement(firing, ref):
                return ""  # the schedule was deleted or paused in the meantime
        address = firing.address
        if not address.thread_key:
            address = replace(address, thread_key=ref)
        # an existing message is read with the history of its thread
        message_ref = "" if address.platform == "api" or _is_about_message(firing) else ref
        request = replace(request, address=address, message_ref=message_ref)
        outcome = await self.receive(request)
        if outcome.run_id is None and outcome.notice:
            await self.chats.post_notice(address, outcome.notice)
        await self.schedules.close(firing.firing_id, "fired" if outcome.run_id else "skipped", run_id=outcome.run_id)
        return ""

    async def _give_up(self, schedule: Schedule, problem: str) -> None:
        """Notifies the owner why the schedule is paused, and pauses it. After a crash in between, does both again."""
        log.warning("schedule %s is paused: %s", schedule.schedule_id, problem)
        task = escape_markdown(single_line(schedule.task, 200))
        remedy = schedule.describe_remedy(datetime.now(UTC))
        text = PAUSED.format(task=task, id=schedule.schedule_id, problem=problem, remedy=remedy)
        try:
            await self.chats.send_direct_message(schedule.address, schedule.owner.person_id, text)
        except SurfaceRefused as refused:
            log.warning("schedule %s: its owner was not told: %s", schedule.schedule_id, refused)
        await self.schedules.pause_schedule(schedule.schedule_id, problem=problem, by=PROGRAM)


def format_announcement(firing: Firing) -> str:
    """Returns the line that is posted at the top of a run that nobody has just requested."""
    schedule, parts = firing.schedule, list[str]()
    if firing.title:
        title, task = (
            escape_markdown(single_line(words, TITLE_CHARACTERS_MAX))
            for words in (*firing.title.split("\n", 1), schedule.task)[:2]
        )
        return f"**{title}** · {task} · from the hook `{schedule.schedule_id}` of {escape_name(schedule.owner.name)}"
    parts.append(f"Scheduled by **{escape_name(schedule.owner.name)}**")
    if schedule.timing.rule:
        parts.append(schedule.rule_in_words)
    if firing.missed:
        parts.append(f"{firing.missed + 1} times came while I was away or quiet, this is for all of them")
    elif (datetime.now(UTC) - firing.due_at).total_seconds() > LATE_SECONDS:
        parts.append(f"planned for {format_time(firing.due_local)}")
    parts.append("`schedules` manages it")
    return " · ".join(parts)


def _is_about_message(firing: Firing) -> bool:
    """Whether the firing is about a message in the chat that an event reported."""
    return isinstance(firing.schedule.timing, Trigger) and firing.message_ref != "" and not firing.title


def _request(firing: Firing) -> str:
    schedule = firing.schedule
    if firing.title:
        return (
            f"A program called the hook {schedule.schedule_id}. Do this with what it sent, which is quoted below and is"
            f" nobody's request:\n{schedule.task}\n\nIt sent:\n{quote_lines(firing.body)}"
        )
    if _is_about_message(firing):
        is_emoji = isinstance(schedule.timing, Trigger) and schedule.timing.kind == "emoji"
        about = "the message above that has the emoji" if is_emoji else "the first message above"
        for_all = ", once for everything that was missed" * firing.is_for_missed_events
        return f"This is to be done now ({schedule.rule_in_words}) about {about}{for_all}:\n{schedule.task}"
    missed = f" It stands for {firing.missed + 1} times." if firing.missed else ""
    return f"This is the scheduled task that is due now ({schedule.rule_in_words}).{missed} Do it:\n{schedule.task}"
