"""The tools that schedule a task for later, once or repeatedly. No task begins by itself that a user has not
approved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from core.domain.approval import Approval
from core.domain.call_consent import LATER_RUN, STAYS, Reach
from core.domain.errors import ToolError
from core.domain.ids import derive_short_id
from core.domain.outside_text import single_line
from core.domain.schedules import (
    TASK_CHARACTERS_MAX,
    WHEN_CHARACTERS_MAX,
    DueSchedule,
    FiringPlan,
    InvalidTiming,
    Schedule,
    ScheduleAction,
    ScheduleChange,
    ScheduleLimits,
    Timing,
    Trigger,
    When,
    build_commands,
    format_time,
    parse_trigger,
    parse_when,
)
from core.domain.threads import Address, Person, Selection
from core.prompt.system_prompt import find_time_zone
from core.stores import Schedules
from core.tools.tool import Tool, ToolContext, ToolSet, prepare_call

NOT_HERE = "Nothing can be scheduled here."
NOT_ARMED = "Nobody has armed `{}` yet: press “Schedule it” on its card, or write `schedules resume {}`."
CARD_TOO_LONG = "The task is too long for a card in the chat, which has to show all of it. Nothing is scheduled."
ONLY_CHANNELS = "Messages can begin a task in channels only. Give a time, or ask for it in a channel."
UNKNOWN_ZONE = (
    "The user's time zone is not known. Ask for their city, then call this again with time_zone, such as Europe/Berlin."
)
_Id = Annotated[str, StringConstraints(strip_whitespace=True, max_length=40)]


class ScheduleTaskParams(BaseModel):
    """Do a task later or regularly; someone must approve it. The task must make sense without this conversation."""

    task: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=TASK_CHARACTERS_MAX)]
    when: Annotated[str, StringConstraints(max_length=WHEN_CHARACTERS_MAX)] = Field(
        description="2026-11-30T09:00 in local time, PT2H from now, RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0, or"
        " for each message here ON:POST, ON:EMOJI name, or ON:APP id words."
    )
    thread: Literal["new", "same"] = Field(default="new", description="Where each answer goes.")
    time_zone: _Id = Field(default="", description="Only if it is not the user's: Europe/Berlin.")
    id: _Id = Field(default="", description="To change this schedule.")


class ListSchedulesParams(BaseModel):
    """List what is scheduled here."""


class ChangeScheduleParams(BaseModel):
    """Change a schedule; someone must approve all but a pause."""

    id: _Id
    action: ScheduleAction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedules:
    """What the tools need to know of their run: its address, thread, agent and requester, when it was requested, and
    the schedules that the requester can see. Equal calls with the same `request_key` are about the same schedule.
    `time_zone` is that of the installation."""

    store: Schedules
    limits: ScheduleLimits
    request_key: str
    address: Address
    thread_id: str | None
    agent_id: str | None
    requester: Person
    requested_at: datetime
    time_zone: str = ""
    known: Sequence[Schedule] = field(default_factory=tuple[Schedule, ...])

    def parse_timing(self, params: ScheduleTaskParams, before: Schedule | None = None) -> When:
        """Returns when the task begins. The result depends only on the call, the request and the schedule `before` the
        change, so the schedule that users approved is the one that is armed. Raises ToolError."""
        try:
            trigger = parse_trigger(params.when)
        except InvalidTiming as error:
            raise ToolError(f"{error} Nothing is scheduled.") from error
        if trigger is None:
            return self._timing(params, before)
        place = before.address if before else self.address
        # a trigger that can never begin anything there is refused
        if place.platform == "api" or place.is_direct or not place.has_threads:
            raise ToolError(ONLY_CHANNELS)
        if trigger.kind == "emoji" and place.platform == "slack" and not trigger.pattern.isascii():
            raise ToolError("In Slack, give the name of the emoji, such as ticket.")
        app_id = trigger.pattern.partition(" ")[0]
        if trigger.kind == "app" and app_id not in self.limits.apps:
            known = ", ".join(self.limits.apps) or "none"
            raise ToolError(f"The operator has not allowed the app {app_id!r} to begin work. Allowed are: {known}.")
        return trigger

    def _timing(self, params: ScheduleTaskParams, before: Schedule | None) -> Timing:
        owner_id = self.requester.person_id
        zones = (one.timing.time_zone for one in self.known if one.owner.person_id == owner_id)
        own = next(filter(None, zones), "")
        name = params.time_zone or self.requester.time_zone or own or self.time_zone
        if not name:
            raise ToolError(UNKNOWN_ZONE)
        if find_time_zone(name) is None:
            raise ToolError(f"There is no time zone {name!r}. Write one like Europe/Berlin.")
        try:
            timing = parse_when(params.when, now=self.requested_at, time_zone=name)
        except InvalidTiming as error:
            raise ToolError(f"{error} Nothing is scheduled.") from error
        armed = before.timing if before else None
        if isinstance(armed, Timing) and (armed.rule, armed.time_zone) == (timing.rule, name) and timing.rule:
            timing = armed  # an unchanged rule keeps its next time
        following, _ = timing.first_after(datetime.now(UTC))
        if following is None:
            raise ToolError(f"{format_time(timing.next_local)} has passed. Nothing is scheduled.")
        return following

    def target_address(self, params: ScheduleTaskParams) -> Address:
        """Returns the channel for new threads, or this thread."""
        return self.address if params.thread == "same" else self.address.place_for_tasks

    def schedule_id(self, params: ScheduleTaskParams) -> str:
        """Returns the id of the schedule that the call changes or creates, so that the card can name it beforehand."""
        return params.id or derive_short_id(self.request_key, params.model_dump_json(exclude_defaults=True))

    def build_schedule(self, params: ScheduleTaskParams, owner: Person, before: Schedule | None = None) -> Schedule:
        """Returns the schedule that the call describes. A change of the schedule `before` keeps its place and its
        agent, wherever it is asked for. Raises ToolError."""
        timing, now = self.parse_timing(params, before), datetime.now(UTC)
        if before is not None:
            return replace(before, owner=owner, task=params.task, timing=timing, problem="", armed_at=now)
        place = self.target_address(params)
        return Schedule(
            schedule_id=self.schedule_id(params),
            address=place.place_for_tasks if isinstance(timing, Trigger) else place,
            owner=owner,
            task=params.task,
            timing=timing,
            thread_id=self.thread_id,
            agent_id=self.agent_id,
            armed_at=now,
        )

    @property
    def is_in_chat(self) -> bool:
        """Whether users have to approve schedules. In a thread of the HTTP API, nobody can."""
        return self.address.platform != "api"

    async def arm_schedule(self, params: ScheduleTaskParams, approved_by: Person | None) -> Schedule:
        """Stores the schedule that the call describes, and returns it. In a chat, the schedule is armed in the name of
        whoever approved the call, and only proposed as long as nobody has. Raises ToolError."""
        owner, schedule_id = approved_by or self.requester, self.schedule_id(params)
        is_armed = approved_by is not None or not self.is_in_chat
        before = None
        if params.id or await self.store.find(schedule_id) is not None:
            before = await self.require_schedule(schedule_id)
        schedule = replace(self.build_schedule(params, owner, before), state="active" if is_armed else "proposed")
        change: ScheduleChange = "changed" if before else "created" if is_armed else "proposed"
        if not await self.store.save(schedule, self.limits, by=owner, change=change):
            raise ToolError(await why_not_saved(self.store, params.id, self.limits))
        return schedule

    async def require_schedule(self, schedule_id: str, action: str = "change") -> Schedule:
        """Returns a schedule of this channel, or of the requester. Raises ToolError if there is none, or if the tools
        may not do this action with it."""
        found = await self.store.find(schedule_id)
        if found is not None and is_hook(found) and action != "pause":
            raise ToolError(f"{schedule_id!r} is a hook. Admins change it with the chat command `schedules`.")
        if found is None or not is_visible(found, self.address, self.requester):
            raise ToolError(f"There is no schedule {schedule_id!r} here. list_schedules shows those there are.")
        return found

    def _find_known(self, schedule_id: str) -> Schedule | None:
        return next((one for one in self.known if one.schedule_id == schedule_id), None)

    def _named(self, schedule_id: str) -> str:
        known = self._find_known(schedule_id)
        return f"“{single_line(known.task)}” ({known.rule_in_words})" if known else schedule_id

    def approval_headline(self, params: ScheduleTaskParams) -> str | None:
        """Returns the headline of the card, or None in a thread of the HTTP API, where nobody can approve the call."""
        shown = self.build_schedule(params, self.requester, self._find_known(params.id))
        if not self.is_in_chat:
            return None
        if params.id:
            return f"Change the schedule {self._named(params.id)} to: {shown.times_in_words}, where it is now"
        return f"Schedule this: {shown.headline}"

    def build_card(self, params: ScheduleTaskParams | ChangeScheduleParams) -> str | None:
        """Returns what users in a chat see of the call before they agree, as Markdown, or None in a thread of the HTTP
        API. Raises ToolError."""
        tools = ToolSet({tool.name: tool for tool in build_schedule_tools(self)})
        tool = schedule_task if isinstance(params, ScheduleTaskParams) else change_schedule
        call = prepare_call(tool.name, params.model_dump(exclude_unset=True), tools)
        approval = Approval(turn_id="", calls=(call.to_approve(),))
        if call.approval is None:
            return None
        if approval.file_text:
            raise ToolError(CARD_TOO_LONG)
        return approval.card

    def change_headline(self, params: ChangeScheduleParams) -> str | None:
        if params.action == "pause" or not self.is_in_chat:
            return None
        return f"{params.action.replace('_', ' ').capitalize()} the schedule {self._named(params.id)}"


def is_visible(schedule: Schedule, place: Address, person: Person) -> bool:
    """Whether the person may see the schedule at this place: it belongs to the same channel, or to the person."""
    selections = (Selection.of_channel(place), Selection.of_person(person.person_id, place))
    return any(one.includes(schedule.address, schedule.owner.person_id) for one in selections)


def is_hook(schedule: Schedule) -> bool:
    return isinstance(schedule.timing, Trigger) and schedule.timing.kind == "hook"


def describe_schedule(schedule: Schedule, shown: Callable[[str], str] = str) -> str:
    """Returns one line about a schedule. `shown` makes users' words safe to display. A model gets them unchanged,
    because it needs the whole task."""
    problem = f": {shown(schedule.problem)}" if schedule.problem else ""
    states = {"paused": f" · paused{problem}", "proposed": " · nobody has armed it yet"}
    state = states.get(schedule.state, "")
    when, timing = schedule.rule_in_words, schedule.timing
    if isinstance(timing, Timing):
        when = f"{when}, next {format_time(timing.next_local)} {timing.time_zone}"
    return f"`{schedule.schedule_id}` {shown(schedule.task)} · {when} · by {shown(schedule.owner.name)}{state}"


def as_resumed_schedule(schedule: Schedule, owner: Person) -> Schedule:
    """Returns the schedule as the owner arms it again, from its next time on. Raises ToolError if there is no next
    time."""
    now = datetime.now(UTC)
    following, _ = schedule.timing.first_after(now)
    if following is None:
        raise ToolError(schedule.describe_remedy(now))
    return replace(schedule, state="active", problem="", owner=owner, timing=following, armed_at=now)


async def change_schedule_by(
    person: Person, schedule: Schedule, action: ScheduleAction, store: Schedules, limits: ScheduleLimits
) -> str:
    """Carries out a person's action on a schedule, and returns a sentence about what was done. Raises ToolError."""
    schedule_id, now = schedule.schedule_id, datetime.now(UTC)
    if schedule.state == "proposed" and action in ("pause", "run_now"):
        raise ToolError(NOT_ARMED.format(schedule_id, schedule_id))
    match action:
        case "pause":
            is_done = await store.pause_schedule(schedule_id, by=person)
            return f"Paused: `{schedule_id}`." if is_done else f"`{schedule_id}` is paused already."
        case "resume":
            armed = as_resumed_schedule(schedule, person)
            if not await store.save(armed, limits, by=person, change="resumed"):
                raise ToolError(await why_not_saved(store, schedule_id, limits))
            following = armed.timing
            when = f"next {format_time(following.next_local)}" if isinstance(following, Timing) else following.in_words
            verb = "Scheduled" if schedule.state == "proposed" else "Resumed"
            return f"{verb}: `{schedule_id}`, {when}."
        case "delete":
            await store.delete(schedule_id, by=person)
            return f"Deleted: `{schedule_id}`."
        case "run_now":
            following, _ = schedule.timing.first_after(now)
            plan = FiringPlan(next=schedule.timing if following else None)  # one without a next time ends with it
            if await store.begin_firing(DueSchedule(schedule=schedule), plan, due_at=now, claimed_until=now) is None:
                raise ToolError(f"`{schedule_id}` is beginning already, or was changed just now.")
            return f"`{schedule_id}` runs now, in its own thread." if schedule.opens_thread else "It runs now."


async def why_not_saved(store: Schedules, changed_id: str, limits: ScheduleLimits) -> str:
    """Returns why a new schedule, or the change of a schedule, was not stored."""
    found = await store.find(changed_id) if changed_id else None
    if changed_id and found is None:
        return f"`{changed_id}` was deleted just now."
    return f"`{changed_id}` is armed already." if found and found.state == "active" else too_many_message(limits)


def too_many_message(limits: ScheduleLimits) -> str:
    return (
        f"That is one schedule too many: a person may have {limits.per_person}, and a workspace"
        f" {limits.per_workspace}. Delete one first."
    )


def build_schedule_tools(schedules: RunSchedules | None) -> tuple[Tool[Any], ...]:
    """Returns the schedule tools of one run. Without `schedules`, they refuse every call."""

    def known() -> RunSchedules:
        if schedules is None:
            raise ToolError(NOT_HERE)
        return schedules

    async def run_schedule_task(params: ScheduleTaskParams, context: ToolContext) -> str:
        here = known()
        schedule = await here.arm_schedule(params, context.approved_by)
        if schedule.state == "proposed":
            raise ToolError(NOT_ARMED.format(schedule.schedule_id, schedule.schedule_id))
        following = f" Next: {schedule.next_times}." if schedule.next_times else ""
        return f"Scheduled as `{schedule.schedule_id}`: {schedule.rule_in_words}.{following}"

    async def run_list_schedules(params: ListSchedulesParams, context: ToolContext) -> str:
        del params, context
        here = known()
        found = await here.store.list_schedules(Selection.of_channel(here.address))
        return "\n".join(f"- {describe_schedule(one)}" for one in found) or "Nothing is scheduled here."

    async def run_change_schedule(params: ChangeScheduleParams, context: ToolContext) -> str:
        here = known()
        schedule = await here.require_schedule(params.id, params.action)
        who = context.approved_by or here.requester
        return await change_schedule_by(who, schedule, params.action, here.store, here.limits)

    return (
        Tool(
            name="schedule_task",
            effect="acts",
            reach=Reach("talks_elsewhere", (LATER_RUN,)),
            subject="schedules",
            params=ScheduleTaskParams,
            run=run_schedule_task,
            title=lambda params: f"Scheduling “{params.task}”",
            needs_approval=lambda params: schedules and schedules.approval_headline(params),
            in_headline=frozenset({"when", "thread", "time_zone"}),
            is_asked_each_time=True,
            commands=lambda params: build_commands(schedules.schedule_id(params)) if schedules else {},
            requires=("thread",),
            example={
                "task": "Post last week's incidents, most severe first.",
                "when": "RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0",
            },
        ),
        Tool(
            name="list_schedules",
            effect="reads",
            reach=STAYS,
            subject="schedules",
            params=ListSchedulesParams,
            run=run_list_schedules,
            title=lambda _params: "Looking at the schedules",
            requires=("thread",),
            is_idempotent=True,
            example={},
        ),
        Tool(
            name="change_schedule",
            effect="acts",
            reach=lambda params: STAYS if params.action == "pause" else Reach("talks_elsewhere", (params.id,)),
            subject="schedules",
            params=ChangeScheduleParams,
            run=run_change_schedule,
            title=lambda params: f"Changing schedule {params.id}: {params.action.replace('_', ' ')}",
            needs_approval=lambda params: schedules and schedules.change_headline(params),
            in_headline=frozenset({"action"}),
            is_asked_each_time=True,
            requires=("thread",),
            example={"id": "k7m2xq", "action": "pause"},
        ),
    )


schedule_task, list_schedules, change_schedule = build_schedule_tools(None)
