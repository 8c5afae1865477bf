"""Schedules: tasks that the agent begins by itself, at a time or when something happens, and what to do then.

Times follow RFC 5545: a rule runs over local times, and each becomes an instant when it is due. A local time that a
change of the clocks skips keeps the offset from before the change, and one that comes twice counts the first time.
"""

import re
from calendar import day_name, month_name, monthrange
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import ClassVar, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from core.domain.threads import Address, Person, Run

TASK_CHARACTERS_MAX = 2000
WHEN_CHARACTERS_MAX = 300
SECONDS_BETWEEN_MIN = 300
FAILURES_MAX = 3
"""A schedule is paused after this many failed runs in a row."""
FAILING = f"its last {FAILURES_MAX} runs failed"
LATE_SECONDS = 600
"""A firing that begins this much later than planned tells users so."""
_TIMES_CHECKED = 100
_TIMES_SHOWN = 3
_YEARS_MAX = 10
_EVERY_RULE = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST"})
_TIME_OF_DAY = frozenset({"BYHOUR", "BYMINUTE"})
_DATES = frozenset({"BYDAY", "BYMONTHDAY", "BYMONTH"})
_ALLOWED: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "MINUTELY": (frozenset(), frozenset()),
    "HOURLY": (frozenset({"BYMINUTE"}), frozenset({"BYMINUTE"})),
    "DAILY": (_TIME_OF_DAY | _DATES, _TIME_OF_DAY),
    "WEEKLY": (_TIME_OF_DAY | {"BYDAY", "BYMONTH"}, _TIME_OF_DAY | {"BYDAY"}),
    "MONTHLY": (_TIME_OF_DAY | _DATES | {"BYSETPOS"}, _TIME_OF_DAY | {"BYDAY", "BYMONTHDAY", "BYSETPOS"}),
    "YEARLY": (_TIME_OF_DAY | _DATES | {"BYSETPOS"}, _TIME_OF_DAY | _DATES | {"BYSETPOS"}),
}
"""The parts that a rule of each frequency may have, and with an INTERVAL above 1. Others could make a rule that never
comes true, which the library searches for until the year 9999."""
_DAY_OF_RULE = re.compile(r"([+-]?[1-5])?(?:MO|TU|WE|TH|FR|SA|SU)")
_UNITS = dict(zip(_ALLOWED, ("minute", "hour", "day", "week", "month", "year"), strict=True))
_DAYS = {day[:2].upper(): day for day in day_name}
_PLACES = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth", "-1": "last"}
_DATES_OF = ("BYMONTH", "BYMONTHDAY")
COMMANDS: Mapping[str, str] = {"Run now": "run", "Pause": "pause", "Edit": "edit", "Delete": "delete"}
"""What users do with an armed schedule: the words of the command `schedules`, by the labels of their buttons."""
PROPOSAL_COMMANDS: Mapping[str, str] = {"Schedule it": "resume", "Delete": "delete"}
"""The same for a proposal, which nobody has armed yet."""
PROPOSAL_DAYS = 7
"""How long a proposal that nobody arms counts as a schedule of its workspace."""
NUMBER_MAX = 1000
TOO_OFTEN = f"A schedule may run every {SECONDS_BETWEEN_MIN // 60} minutes at most."
_DURATION = TypeAdapter(timedelta)

ScheduleState = Literal["proposed", "active", "paused", "ended"]
FiringState = Literal["pending", "fired", "joined", "skipped"]
"""A firing that has "fired" began a run of its own. The task of one that has "joined" was added to a run that was
already under way."""
FIRING_KEY = "schedule:"
"""The prefix of the dedupe keys of firings. No user has written an input with such a key."""
ScheduleAction = Literal["pause", "resume", "delete", "run_now"]
ScheduleChange = Literal["created", "proposed", "changed", "resumed"]
TriggerKind = Literal["post", "app", "emoji", "hook"]
EventRefusal = Literal["gone", "duplicate", "too_often", "failing"]
"""Why an event begins nothing: its trigger is not armed any more, the event was taken before, alone or with others that
were missed, the trigger has begun too many tasks for the events of an hour, or its last ones failed."""
EVENTS_PER_HOUR_MAX = 60
EVENT_DAYS_KEPT = 7
"""How long an event is remembered, so that it starts no task twice, and so that later events of its group use its
thread."""
EVENT_LATE_SECONDS = 3600.0
"""An event that is handled so long after it happened begins no task of its own: all that were missed begin one."""
MISSED_KEY = "missed:"
"""The prefix of the event key of a task that stands for all missed events."""
BODY_CHARACTERS_MAX = 20_000
NEVER = datetime.max.replace(microsecond=0, tzinfo=UTC)
_ON = "ON:"
_TONES = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
"""The parts of an emoji that events leave out: its style and its skin tone."""
_EMOJI = re.compile(r":?([^\s:]{1,100}):?")
_KINDS_WRITTEN = "ON:POST, ON:EMOJI name, or ON:APP id"


class InvalidTiming(ValueError):
    """The time or the rule of a schedule cannot be used. The message says why, for a model or a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule is due: the next local time, without an offset, and the rule for the times after it.

    `rule` is an RFC 5545 rule without its name, or "" for once. It has no COUNT, because COUNT is converted to
    UNTIL."""

    rule: str
    next_local: datetime
    time_zone: str

    @property
    def due_at(self) -> datetime:
        return _instant(self.next_local, self.time_zone)

    @property
    def in_words(self) -> str:
        return describe_timing(self)

    def following(self) -> Iterator["Timing"]:
        """Yields this timing and those after it, each at a later instant."""
        yield self
        if not self.rule:
            return
        last = self.due_at
        for local in _rrule(self.rule, self.next_local):
            if (instant := _instant(local, self.time_zone)) > last:
                last = instant
                yield replace(self, next_local=local)

    def first_after(self, now: datetime) -> "tuple[Timing | None, int]":
        """Returns the first timing after that instant, or None if there is none, and how many timings come before
        it."""
        passed = 0
        for passed, timing in enumerate(self.following()):
            if timing.due_at > now:
                return timing, passed
        return None, passed + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEvent:
    """Something that happened and may start the task of a trigger.

    `key` identifies the event: a second event with the same key starts nothing. With `repeat_seconds`, the key is
    remembered only for that long, so the event may happen again. The task works in the thread of `address`. If the
    address has no `thread_key`, it works in the thread of an earlier event of the same `group`, or in a new one.
    `message_ref` is the chat message that the event is about, and `happened_at` when it was posted, if the platform
    reports that. `emoji` is the name or the character of a reaction, and `app_ids` are the ids of the app that wrote
    the message. `title` and `body` are what a hook was called with. None of this is a user's request."""

    kind: TriggerKind
    address: Address
    key: str
    repeat_seconds: float | None = None
    happened_at: datetime | None = None
    message_ref: str = ""
    emoji: str = ""
    app_ids: frozenset[str] = frozenset()
    text: str = ""
    group: str = ""
    title: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What starts a task instead of a time: a post in the channel, an app's message, an emoji on a message, or a call
    of a hook.

    `pattern` is the emoji's name, the app's id and words of its message, or the field in a hook's body that names the
    thread. `secret` is what the callers of a hook know. Like a Timing, a trigger has a rule and a due time, but the
    time never comes."""

    kind: TriggerKind
    pattern: str = ""
    secret: str = field(default="", repr=False)
    time_zone: ClassVar[str] = ""
    due_at: ClassVar[datetime] = NEVER

    @property
    def rule(self) -> str:
        return f"{_ON}{self.kind.upper()} {self.secret or '-'} {self.pattern}".rstrip()

    @classmethod
    def of_rule(cls, rule: str) -> "Trigger | None":
        """Returns the trigger with this rule, or None if the rule belongs to a Timing."""
        if not rule.startswith(_ON):
            return None
        name, secret, *pattern = rule.removeprefix(_ON).split(" ", 2)
        kind = next(kind for kind in get_args(TriggerKind) if kind == name.lower())
        return cls(kind=kind, secret=secret.strip("-"), pattern="".join(pattern))

    @property
    def in_words(self) -> str:
        match self.kind:
            case "post":
                return "for every new post"
            case "emoji":
                return f"for every message with the emoji {self.pattern}"
            case "app":
                app_id, _, words = self.pattern.partition(" ")
                return f"for every message of the app {app_id}" + (f" with “{words}”" if words else "")
            case "hook":
                return "when its hook is called"

    def following(self) -> Iterator["Timing"]:
        yield from ()

    def first_after(self, now: datetime) -> "tuple[Trigger, int]":
        del now
        return self, 0

    def matches(self, event: TriggerEvent, apps: Collection[str]) -> bool:
        """Returns whether the trigger waits for this event in its channel. `apps` are the ids of the apps that may
        start work."""
        if self.kind != event.kind or (event.app_ids and event.app_ids.isdisjoint(apps)):
            return False
        match self.kind:
            case "emoji":
                return self.pattern == event.emoji
            case "app":
                app_id, _, words = self.pattern.partition(" ")
                return app_id in event.app_ids and words.casefold() in event.text.casefold()
            case "post" | "hook":
                return True


When = Timing | Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A task that starts by itself at a time or on an event. Until a user arms it, it is only a proposal.

    `address` is the chat thread that the task continues. If it has an empty `thread_key`, it is the channel in which
    each firing opens a thread. `owner` armed the schedule: its runs have the owner's rights at the time of the run.
    `thread_id` is the conversation in which it was armed, if that still exists. `armed_at` is when a user created,
    changed or resumed it. `problem` says why the program has paused it."""

    schedule_id: str
    address: Address
    owner: Person
    task: str
    timing: When
    state: ScheduleState = "active"
    thread_id: str | None = None
    agent_id: str | None = None
    problem: str = ""
    armed_at: datetime

    @property
    def opens_thread(self) -> bool:
        return not self.address.thread_key

    @property
    def rule_in_words(self) -> str:
        return self.timing.in_words

    @property
    def next_times(self) -> str:
        """Its next times for users, or ""."""
        return ", ".join(format_time(one.next_local) for one in islice(self.timing.following(), _TIMES_SHOWN))

    @property
    def times_in_words(self) -> str:
        """When it runs, in words, with its next times."""
        if isinstance(self.timing, Trigger):
            return self.rule_in_words
        words = f"{self.rule_in_words}, next " if self.timing.rule else ""
        return f"{words}{self.next_times} ({self.timing.time_zone})"

    @property
    def headline(self) -> str:
        """When and where it runs."""
        if isinstance(self.timing, Trigger):
            return f"{self.times_in_words} in this channel, in its thread"
        each = " each time" if self.timing.rule else ""
        where = f"in a new thread{each}" if self.opens_thread else "in this thread"
        return f"{self.times_in_words}, {where}"

    def describe_remedy(self, now: datetime) -> str:
        """Returns how users have the task done after all, for one that is paused or not armed."""
        if self.timing.first_after(now)[0] is not None:
            return f"`schedules resume {self.schedule_id}` arms it again."
        run = f"`schedules run {self.schedule_id}` does it now, or " if self.state != "proposed" else ""
        return f"Its time has passed: {run}tell me a new one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One time at which a schedule starts its task. `missed` counts the due times before it at which no process was
    running.

    `message_ref` is the message that announces the firing, once it is posted, or the message that an event is about.
    `run_id` is the run that works on the task. With the `note` FAILING, the schedule is paused and its owner told. With
    another one, the firing is skipped, and the note is posted in the thread of the run before, which `run_id` then
    names. `event_key`, `thread_key`, `group_key`, `title` and `body` are those of the event that started the firing."""

    firing_id: str
    schedule: Schedule
    due_at: datetime
    state: FiringState = "pending"
    missed: int = 0
    message_ref: str = ""
    run_id: str | None = None
    note: str = ""
    event_key: str
    thread_key: str = ""
    group_key: str = ""
    title: str = ""
    body: str = ""

    @property
    def dedupe_key(self) -> str:
        return f"{FIRING_KEY}{self.firing_id}"

    @property
    def is_for_missed_events(self) -> bool:
        """Whether it stands for all events that happened while no process was running."""
        return self.event_key.startswith(MISSED_KEY)

    @property
    def due_local(self) -> datetime:
        return self.due_at.astimezone(ZoneInfo(self.schedule.timing.time_zone or "UTC"))

    @property
    def address(self) -> Address:
        """The thread that it continues, or, with an empty `thread_key`, the channel in which it opens one."""
        place = self.schedule.address
        return replace(place, thread_key=self.thread_key or place.thread_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedule:
    """A schedule whose time has come, with the newest runs that its firings have begun since it was armed, newest
    first, and whether the newest of them waits for an answer. `joined` is the run that the newest
    firing was added to, if it did not begin its own."""

    schedule: Schedule
    runs: tuple[Run, ...] = ()
    is_waiting: bool = False
    joined: Run | None = None

    @property
    def newest(self) -> Run | None:
        """The run that works on the task of the newest firing."""
        return self.joined or (self.runs[0] if self.runs else None)

    @property
    def is_failing(self) -> bool:
        return len(self.runs) >= FAILURES_MAX and all(run.status == "failed" for run in self.runs[:FAILURES_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringPlan:
    """What to do for a schedule that is due: the firing, and the time of the next one (None: there is no next one).

    With a `note`, the firing is skipped, or pauses the schedule if the note is FAILING. With `expires_question`, the
    question of the firing before is no longer asked."""

    next: When | None
    missed: int = 0
    note: str = ""
    expires_question: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """How many schedules that have not ended a person and a workspace may have, and the ids of the apps whose messages
    may begin a task."""

    per_person: int = 20
    per_workspace: int = 50
    apps: tuple[str, ...] = ()


DEFAULT_LIMITS = ScheduleLimits()


def plan_firing(due: DueSchedule, now: datetime) -> FiringPlan:
    """Returns what to do about a schedule that is due. However many times have passed, it fires once."""
    following, passed = due.schedule.timing.first_after(now)
    plan = FiringPlan(next=following, missed=max(0, passed - 1))
    if due.is_failing:
        return replace(plan, note=FAILING)
    if due.is_waiting:
        note = "Skipped: the question of the time before had no answer. It is no longer asked."
        return replace(plan, note=note, expires_question=True)
    if due.newest is not None and due.newest.status in ("queued", "running", "waiting"):
        return replace(plan, note="Skipped: the time before is still being worked on.")
    return plan


def build_commands(schedule_id: str, actions: Mapping[str, str] = COMMANDS) -> dict[str, str]:
    """Returns the commands for the buttons below a message about a schedule, by their labels."""
    return {label: f"schedules {action} {schedule_id}" for label, action in actions.items()}


def parse_when(when: str, *, now: datetime, time_zone: str) -> Timing:
    """Reads a local time in ISO 8601, a duration from now (`PT2H`), or an RFC 5545 rule.

    Raises InvalidTiming.
    """
    text, zone = when.strip(), ZoneInfo(time_zone)
    if len(text) > WHEN_CHARACTERS_MAX:
        raise InvalidTiming("That is too long for a time or a rule.")
    here = now.astimezone(zone).replace(tzinfo=None)
    if "FREQ=" in text.upper():
        timing = _parse_rule(text, here, time_zone)
        times = list(islice(timing.following(), _TIMES_CHECKED))
        if any((b.due_at - a.due_at).total_seconds() < SECONDS_BETWEEN_MIN for a, b in pairwise(times)):
            raise InvalidTiming(TOO_OFTEN)
        return timing
    local = _parse_once(text, now, zone)
    timing = Timing(rule="", next_local=local, time_zone=time_zone)
    if timing.due_at <= now:
        raise InvalidTiming(f"{format_time(local)} in {time_zone} has passed; it is {here:%Y-%m-%d %H:%M} there.")
    if timing.due_at > now + timedelta(days=366 * _YEARS_MAX):
        raise InvalidTiming(f"That is more than {_YEARS_MAX} years away.")
    return timing


def parse_trigger(when: str) -> Trigger | None:
    """Reads what a chat trigger waits for, such as `ON:EMOJI ticket`. Returns None for a time. Raises InvalidTiming."""
    text = " ".join(when.split())
    if not text.upper().startswith(_ON):
        return None
    if len(text) > WHEN_CHARACTERS_MAX:
        raise InvalidTiming("That is too long.")
    kind, _, pattern = text[len(_ON) :].strip().partition(" ")
    match kind.upper():
        case "POST" if not pattern:
            return Trigger(kind="post")
        case "EMOJI" if emoji := _EMOJI.fullmatch(_TONES.sub("", pattern)):
            return Trigger(kind="emoji", pattern=emoji[1])
        case "APP" if pattern:
            return Trigger(kind="app", pattern=pattern)
        case _:
            raise InvalidTiming(f"Write {_KINDS_WRITTEN}, with words of its messages if only some are meant.")


def describe_timing(timing: Timing) -> str:
    """Returns the rule in words, such as "every Monday at 09:00"."""
    if not timing.rule:
        return "once"
    parts = _parts(timing.rule)
    if "BYSETPOS" in parts:
        return f"by the rule {timing.rule}"
    lists = {name: value.split(",") for name, value in parts.items()}
    unit, interval = _UNITS[parts["FREQ"]], parts.get("INTERVAL", "1")
    words = f"every {unit}" if interval == "1" else f"every {interval} {unit}s"
    if days := lists.get("BYDAY"):
        if parts["FREQ"] == "WEEKLY" and interval == "1" and not any(day[:-2] for day in days):
            words = "every weekday" if days == ["MO", "TU", "WE", "TH", "FR"] else f"every {_joined(map(_day, days))}"
        else:
            words += f" on {_joined(map(_day, days))}"
    if dates := lists.get("BYMONTHDAY"):
        words += f" on {_joined(map(_date, dates))}"
    if months := lists.get("BYMONTH"):
        words += f" in {_joined(month_name[int(month)] for month in months)}"
    hours, minutes = lists.get("BYHOUR"), lists.get("BYMINUTE")
    if hours and minutes:
        times = [f"{int(hour):02d}:{int(minute):02d}" for hour in hours for minute in minutes]
        words += f" at {_joined(times)}"
    elif minutes:
        words += f" at minute {_joined(minutes)}"
    if until := parts.get("UNTIL"):
        words += f" until {until[:4]}-{until[4:6]}-{until[6:8]}"
    return words


def format_time(local: datetime) -> str:
    """Returns the local time for users, such as "Mon 30 Nov 2026, 09:00"."""
    return f"{local:%a %-d %b %Y, %H:%M}"


def is_in_quiet_hours(now: datetime, time_zone: str, hours: tuple[int, int] | None) -> bool:
    """Returns whether the time is now between the two hours of the day in the time zone. The range may include
    midnight."""
    if hours is None:
        return False
    first, last = hours
    hour = now.astimezone(ZoneInfo(time_zone)).hour
    return first <= hour < last if first <= last else hour >= first or hour < last


def _instant(local: datetime, time_zone: str) -> datetime:
    return local.replace(tzinfo=ZoneInfo(time_zone)).astimezone(UTC)


def _parse_once(text: str, now: datetime, zone: ZoneInfo) -> datetime:
    try:
        if text[:1].upper() == "P":
            moment = now + _DURATION.validate_python(text.upper())
            return moment.astimezone(zone).replace(tzinfo=None, microsecond=0)
        given = datetime.fromisoformat(text)
        if given.tzinfo is not None:
            given = given.astimezone(zone).replace(tzinfo=None)
        if len(text) <= len("2026-11-30"):
            raise InvalidTiming("Give the time of day, too, for example 2026-11-30T09:00.")
    except (ValidationError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidTiming):
            raise
        raise InvalidTiming(
            f"{text[:60]!r} is no time. Write a local time (2026-11-30T09:00), a duration from now (PT2H), or a rule"
            " (RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0)."
        ) from error
    return given.replace(second=0, microsecond=0)


def _parse_rule(text: str, here: datetime, time_zone: str) -> Timing:
    parts = _parts(text)
    count, interval = (_number(name, parts.get(name, "1")) for name in ("COUNT", "INTERVAL"))
    frequency = parts.get("FREQ", "")
    if frequency not in _ALLOWED:
        raise InvalidTiming(f"FREQ is one of {', '.join(_ALLOWED)}.")
    allowed = _ALLOWED[frequency][interval > 1]
    if wrong := sorted(parts.keys() - allowed - _EVERY_RULE):
        with_interval = " with an INTERVAL" if interval > 1 else ""
        raise InvalidTiming(
            f"FREQ={frequency}{with_interval} does not go with {wrong[0]}. For times on certain days, write FREQ=DAILY"
            " with BYHOUR, BYMINUTE and BYDAY, BYMONTHDAY or BYMONTH."
        )
    if frequency == "MINUTELY" and interval * 60 < SECONDS_BETWEEN_MIN:
        raise InvalidTiming(TOO_OFTEN)
    if allowed >= _TIME_OF_DAY and "BYHOUR" not in parts:
        raise InvalidTiming("The rule needs BYHOUR and BYMINUTE, the local time of day.")
    days = parts.get("BYDAY", "MO").split(",")
    if not all(map(_DAY_OF_RULE.fullmatch, days)):
        raise InvalidTiming("BYDAY lists days such as MO,TU, or 1MO and -1FR for the first and last of a month.")
    is_counted, place = any(len(day) > 2 for day in days), parts.get("BYSETPOS")
    if is_counted and frequency not in ("MONTHLY", "YEARLY"):
        raise InvalidTiming(
            "BYDAY with numbers goes with FREQ=MONTHLY or YEARLY."
        )  # RFC 5545; the library ignores them
    if is_counted + ("BYMONTHDAY" in parts) + (place is not None) > 1:
        raise InvalidTiming(
            "Say the day of the month in one way: BYMONTHDAY, BYDAY with numbers, or BYDAY with BYSETPOS."
        )
    if place is not None and ("BYDAY" not in parts or place.lstrip("+-") not in {"1", "2", "3", "4"}):
        raise InvalidTiming("BYSETPOS goes with BYDAY, and is 1 to 4 or -1 to -4.")
    if parts.keys() >= _DATES:  # the 29th of February is a Monday every 28 years
        raise InvalidTiming("Give two of BYDAY, BYMONTHDAY and BYMONTH at most.")
    if frequency == "YEARLY" and "BYMONTH" not in parts and parts.keys() & _DATES:
        raise InvalidTiming("FREQ=YEARLY needs BYMONTH beside BYDAY or BYMONTHDAY, otherwise it is due more often.")
    if "BYMONTH" in parts and "BYMONTHDAY" in parts:
        months, dates = ([_number(name, one) for one in parts[name].replace("-", "").split(",")] for name in _DATES_OF)
        if min(dates) > max((monthrange(2028, month)[1] for month in months if month <= 12), default=0):
            raise InvalidTiming("There is no such day in these months.")
    if "BYHOUR" in parts:
        parts.setdefault("BYMINUTE", "0")
    is_limited = parts.pop("COUNT", None) is not None
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    start = here.replace(second=0, microsecond=0)
    times = list(islice((one for one in _rrule(rule, start) if one > here), count))
    if not times or times[0] > here + timedelta(days=366 * _YEARS_MAX):
        raise InvalidTiming("The rule has no time in the years to come.")
    if is_limited:
        rule = f"{rule};UNTIL={times[-1]:%Y%m%dT%H%M%S}"
    return Timing(rule=rule, next_local=times[0], time_zone=time_zone)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 0 < int(text) <= NUMBER_MAX):
        raise InvalidTiming(f"{name} has a number from 1 to {NUMBER_MAX}.")
    return int(text)


def _parts(rule: str) -> dict[str, str]:
    text = "".join(rule.upper().split()).removeprefix("RRULE:").strip(";")
    return {name: value for name, _, value in (part.partition("=") for part in text.split(";"))}


def _rrule(rule: str, start: datetime) -> Iterable[datetime]:
    """Returns the local times of the rule from `start` on. Raises InvalidTiming."""
    from dateutil.rrule import rrulestr  # takes longer to import than the rest of this module, and few runs need it

    try:
        return rrulestr(rule, dtstart=start, ignoretz=True)
    except (ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError) as error:
        raise InvalidTiming(f"The rule cannot be read: {error}.") from error


def _day(day: str) -> str:
    place, name = day[:-2].lstrip("+"), _DAYS.get(day[-2:], day)
    return f"the {_PLACES.get(place, place)} {name}" if place else name


def _date(date: str) -> str:
    if date.startswith("-"):
        return "the last day" if date == "-1" else f"day {date[1:]} from the end of the month"
    return f"day {int(date)}"


def _joined(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
