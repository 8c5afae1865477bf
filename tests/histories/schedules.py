"""Random histories of schedules. The processes that begin the runs die, freeze, and have wrong clocks meanwhile."""

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, update

from bots.bootstrap.background_jobs import repeat_job
from bots.bootstrap.platforms import Platforms
from bots.bootstrap.process_messaging import Messaging
from bots.bootstrap.stores import Stores
from bots.delivery.content import Notice
from bots.inbound.actions import Outcome, UserAction
from bots.inbound.schedules import ScheduleRunner
from core.domain.actions import MEMBER, ActorContext, IncomingMessage
from core.domain.errors import StorageUnavailable, SurfaceRefused, SurfaceUnclear, ToolError
from core.domain.schedules import (
    DEFAULT_LIMITS,
    DueSchedule,
    Firing,
    FiringPlan,
    Schedule,
    ScheduleAction,
    Timing,
    Trigger,
    TriggerEvent,
)
from core.domain.threads import Address, Lease, Person, Selection
from core.failpoints import Failpoint
from core.ports import Precondition
from core.stores import JournalEntry
from core.tools.schedules import RunSchedules, ScheduleTaskParams, change_schedule_by
from storage.sql.database import ResultT, Work, writes
from storage.sql.stores import schedules as schedule_store
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.tables import schedules
from tests.contracts.stores import COMPLETED, FAILED, asking
from tests.histories.injected_bugs import Injection, always
from tests.histories.playing import Result, play_history
from tests.histories.program import build_reception
from tests.histories.servers import Chance, SimulatedDatabase, SqliteMemory
from tests.histories.virtual_time import EPOCH_SECONDS, SimulatedProcess, VirtualTimeLoop, current_process

LOOK_SECONDS = 20.0
WORK_SECONDS = 30.0
SETTLE_SECONDS = 1500.0
FLIGHT_SECONDS_MAX = 90.0
"""A firing that has begun may still be announced so long after its schedule was paused: its claim lasts a minute."""
LATENCY_SECONDS_MAX = 5.0
BEGINNINGS = (
    ("America/New_York", "2027-03-14T05:40"),  # each soon before a change of the clocks
    ("America/New_York", "2027-11-07T04:40"),
    ("Europe/Berlin", "2027-03-28T00:10"),
    ("Europe/Berlin", "2027-10-30T23:40"),
    ("Australia/Lord_Howe", "2027-04-03T14:10"),
    ("UTC", "2027-05-01T22:40"),
)
RULES = (
    "FREQ=MINUTELY;INTERVAL=7",
    "FREQ=MINUTELY;INTERVAL=20;COUNT=4",
    "FREQ=HOURLY;BYMINUTE=0,30",
    "FREQ=HOURLY;BYMINUTE=15",
    "FREQ=DAILY;BYHOUR=1,2,3;BYMINUTE=0,30",
    "FREQ=DAILY;BYHOUR=2;BYMINUTE=30",
    "PT11M",
    "PT1H",
)
GROUPS = ("", "g1")
CHANNELS = ("C1", "C2", "C3")
PEOPLE = (Person(person_id="U1", name="alice"), Person(person_id="U2", name="bob"))
CHANGES = (
    "CREATE TABLE change (n INTEGER PRIMARY KEY, at REAL, acting TEXT, what TEXT, schedule_id TEXT, firing_id TEXT,"
    " due_at TEXT, next_due_at TEXT, next_local TEXT, rule TEXT, time_zone TEXT, state TEXT, armed_at TEXT,"
    " missed INTEGER, note TEXT, run_id TEXT);"
)
_NEW_CHANGE = "INSERT INTO change SELECT NULL, (julianday('now') - 2440587.5) * 86400.0, acting(),"
TRIGGERS = (
    f"CREATE TRIGGER saved AFTER INSERT ON schedule BEGIN {_NEW_CHANGE} 'armed', NEW.schedule_id, NULL, NULL,"  # noqa: S608 - constants
    " NEW.due_at, NEW.next_local, NEW.rule, NEW.time_zone, NEW.state, NEW.armed_at, 0, NEW.problem, NULL; END;"
    f"CREATE TRIGGER changed AFTER UPDATE ON schedule BEGIN {_NEW_CHANGE}"
    " CASE WHEN NEW.armed_at != OLD.armed_at THEN 'armed' ELSE 'moved' END, NEW.schedule_id, NULL, OLD.due_at,"
    " NEW.due_at, OLD.next_local, OLD.rule, OLD.time_zone, NEW.state, NEW.armed_at, 0, NEW.problem, NULL; END;"
    f"CREATE TRIGGER gone AFTER DELETE ON schedule BEGIN {_NEW_CHANGE} 'deleted', OLD.schedule_id, NULL, OLD.due_at,"
    " NULL, NULL, OLD.rule, OLD.time_zone, OLD.state, OLD.armed_at, 0, OLD.problem, NULL; END;"
    f"CREATE TRIGGER fired AFTER INSERT ON firing BEGIN {_NEW_CHANGE} 'begun', NEW.schedule_id, NEW.firing_id,"
    " NEW.due_at, NULL, NULL, NULL, NULL, (SELECT state FROM schedule s WHERE s.schedule_id = NEW.schedule_id), NULL,"
    " NEW.missed, NEW.note, NEW.run_id; END;"
    f"CREATE TRIGGER closed AFTER UPDATE OF state ON firing BEGIN {_NEW_CHANGE} 'closed', NEW.schedule_id,"
    " NEW.firing_id, NEW.due_at, NULL, NULL, NULL, NULL, NEW.state, NULL, NEW.missed, NEW.note, NEW.run_id; END;"
    f"CREATE TRIGGER dropped AFTER DELETE ON firing BEGIN {_NEW_CHANGE} 'dropped', OLD.schedule_id, OLD.firing_id,"
    " OLD.due_at, NULL, NULL, NULL, NULL, OLD.state, NULL, OLD.missed, OLD.note, OLD.run_id; END;"
)


class ScheduleMemory(SqliteMemory):
    """A database that records every change of a schedule and of a firing."""

    def __init__(self) -> None:
        super().__init__()
        self.acting = ""
        driver = self._driver(self.connection)
        driver.create_function("acting", 0, lambda: self.acting)
        driver.executescript(CHANGES + TRIGGERS)
        self._empty = driver.serialize()

    def begin(self, now: Callable[[], float]) -> None:
        super().begin(now)
        self._driver(self.connection).create_function("acting", 0, lambda: self.acting)


class _Database(SimulatedDatabase):
    """Also kills and freezes processes before and after a write, as the failpoints do."""

    def __init__(self, memory: ScheduleMemory, loop: VirtualTimeLoop, chance: Chance, disturb: "_Disturb") -> None:
        super().__init__(memory, loop, chance)
        self.memory = memory
        self._disturb = disturb

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        name, process = point.name, current_process()

        def noted(connection: Connection) -> ResultT:
            assert isinstance(self.memory, ScheduleMemory)
            self.memory.acting = process.name if process else ""
            done = work(connection)
            self._disturb(process, f"{name}.after")
            return done

        if self._disturb(process, f"{name}.before"):
            await asyncio.sleep(0.001)
        return await super().write(point, noted, is_long=is_long, is_durable=is_durable)


_Disturb = Callable[[SimulatedProcess | None, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Post:
    delivery_id: str
    address: Address
    ref: str
    text: str
    at: float


class _Chat:
    """A chat platform as `Platforms` uses it: its app and its surface. `left` are users who are no longer members."""

    platform = "slack"
    closed_reasons: Mapping[str, str] = {"is_archived": "its channel is archived"}

    def __init__(self, loop: VirtualTimeLoop, chance: Chance, disturb: _Disturb) -> None:
        self.posts: list[_Post] = []
        self.closed: set[str] = set()
        self.left: set[str] = set()
        self.surface = self
        self._loop = loop
        self._chance = chance
        self._disturb = disturb

    async def _reach(self, name: str) -> None:
        if self._disturb(current_process(), f"{name}.before"):
            await asyncio.sleep(0.001)
        await asyncio.sleep(self._chance.delay(0.05))
        if self._chance.fails(0.03):
            raise SurfaceUnclear(f"{name} failed")

    async def post(self, address: Address, content: Notice, *, delivery_id: str, precondition: Precondition) -> str:
        await self._reach("chat.post")
        await precondition()
        answer: asyncio.Future[str] = self._loop.create_future()
        process, is_lost = current_process(), self._chance.fails(0.1)

        def arrive() -> None:
            if answer.done():
                return
            if address.channel_id in self.closed:
                answer.set_exception(SurfaceRefused("it is archived", code="is_archived"))
                return
            ref = f"{time.time():.6f}"
            self.posts.append(
                _Post(delivery_id=delivery_id, address=address, ref=ref, text=content.markdown, at=self._loop.now)
            )
            self._disturb(process, "chat.post.after")
            if is_lost:
                answer.set_exception(SurfaceUnclear("no answer came"))
            else:
                answer.set_result(ref)

        self._loop.later(self._chance.delay(0.1), arrive)
        return await asyncio.shield(answer)

    async def find(self, address: Address, delivery_id: str) -> str | None:
        await self._reach("chat.find")
        return next((one.ref for one in self.posts if one.address == address and one.delivery_id == delivery_id), None)

    async def begin_thread(
        self,
        channel: Address,
        content: Notice,
        *,
        title: str,
        delivery_id: str,
        may_be_posted: bool,
        precondition: Precondition,
    ) -> str:
        del title
        found = await self.find(channel, delivery_id) if may_be_posted else None
        return found or await self.post(channel, content, delivery_id=delivery_id, precondition=precondition)

    async def fetch_actor_context(self, address: Address, person_id: str) -> ActorContext:
        del address
        await self._reach("chat.standing")
        return ActorContext(has_left=True) if person_id in self.left else MEMBER

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncGenerator[Address]:
        await self._reach("chat.open_direct")
        yield replace(address, channel_id=f"D{person_id}", thread_key="")


class _History:
    def __init__(self, seed: int, memory: ScheduleMemory, loop: VirtualTimeLoop, zone: str) -> None:
        self.trace: list[str] = []
        self.received: list[tuple[str, str, str | None]] = []
        self.thawed_at: dict[str, float] = {}
        self._loop = loop
        self._memory = memory
        self._zone = zone
        self._chance = chance = Chance(seed)
        self._random = chance.random
        self.chat = _Chat(loop, chance, self._disturb)
        self._database = _Database(memory, loop, chance, self._disturb)
        self._programs: dict[str, SimulatedProcess | None] = {}
        self._runners: dict[SimulatedProcess, ScheduleRunner] = {}
        self.accepted: set[tuple[str, str]] = set()
        self._starts = 0
        self._saved = 0
        self._quiet = self._random.choice((None, None, None, (1, 2), (23, 1)))
        self._executing: set[str] = set()
        self._stores = self._new_stores()  # of the users and of the worker

    def note(self, line: str) -> None:
        self.trace.append(f"{datetime.fromtimestamp(time.time(), UTC):%H:%M:%S} {self._loop.now:9.3f} {line}")

    async def play(self) -> list[str]:
        random, loop = self._random, self._loop
        storm_seconds = random.uniform(3600, 9000)
        for number in range(random.choice((2, 2, 3))):
            self._start(f"p{number}")
        worker, users = SimulatedProcess(loop, "worker"), SimulatedProcess(loop, "users")
        worker.start(repeat_job("work", WORK_SECONDS, self._work))
        operations = [self._arm] * random.randint(1, 5)
        operations += random.choices((self._change, self._edit, self._arm), k=random.randint(0, 8))
        operations += [self._arm_hook] * random.randint(0, 2)
        for number in range(random.randint(0, 6)):
            loop.later(random.uniform(storm_seconds / 3, storm_seconds), partial(self._call, f"k{number}"))
        for operation in operations:
            is_first = operation in (self._arm, self._arm_hook)
            loop.later(
                random.uniform(0, storm_seconds / (3 if is_first else 1)), partial(self._by_user, users, operation)
            )
        for _ in range(random.randint(0, 8)):
            act = random.choice((self._kill, self._freeze, self._set_clock, self._set_clock, self._leave, self._close))
            loop.later(random.uniform(60, storm_seconds), act)
        await asyncio.sleep(storm_seconds)
        self._chance.is_calm = True
        self.note("--- calm: no more failures")
        for process in self._programs.values():
            if process is not None:
                process.clock_ahead_seconds = 0.0
        await asyncio.sleep(SETTLE_SECONDS)
        return find_problems(self)

    # processes

    def _new_stores(self) -> Stores:
        return Stores(cast(Any, self._database), Messaging())

    def _start(self, name: str) -> None:
        self._starts += 1
        process = self._programs[name] = SimulatedProcess(self._loop, f"{name}.{self._starts}")
        self.note(f"{process.name} starts")
        runner = self._runners[process] = self._runner(self._new_stores())
        process.start(repeat_job("look", LOOK_SECONDS, runner.fire_due_schedules))

    def _runner(self, stores: Stores) -> ScheduleRunner:
        platforms = Platforms(file_sources={}, surfaces={"slack": cast(Any, self.chat)}, slack=cast(Any, self.chat))
        reception = build_reception(stores, wake_delivery=lambda _run_id: None, histories={})

        async def receive(action: UserAction) -> Outcome:
            outcome = await reception.receive_trusted(action)
            assert isinstance(action, IncomingMessage)
            self.received.append((action.dedupe_key, action.message_ref, outcome.run_id))
            return outcome

        return ScheduleRunner(
            schedules=stores.schedules,
            conversations=stores.conversations,
            chats=platforms,
            admits=reception.admits,
            receive=receive,
            serves=lambda _platform: True,
            closed_reasons=lambda _platform: self.chat.closed_reasons,
            quiet_hours=self._quiet,
        )

    def _disturb(self, process: SimulatedProcess | None, point: str) -> bool:
        """Kills or freezes the process at this point, if chance wants it."""
        if process is None or process not in self._programs.values() or not self._chance.fails(0.015):
            return False
        self.note(f"at {point}:")
        self._random.choice((self._kill, self._freeze))(process)
        return True

    def _drawn(self) -> SimulatedProcess | None:
        alive = [one for one in self._programs.values() if one is not None and not one.is_frozen]
        return self._random.choice(alive) if alive else None

    def _kill(self, process: SimulatedProcess | None = None) -> None:
        if (process := process or self._drawn()) is None:
            return
        self.note(f"{process.name} is killed")
        process.kill()
        name = process.name.partition(".")[0]
        self._programs[name] = None
        seconds = 5.0 if self._chance.is_calm else self._random.choice((5, 60, 1200))
        self._loop.later(self._random.uniform(1, seconds), partial(self._start, name))

    def _freeze(self, process: SimulatedProcess | None = None) -> None:
        if (process := process or self._drawn()) is None or process.is_frozen:
            return
        self.note(f"{process.name} is frozen")
        process.freeze()

        def thaw() -> None:
            self.note(f"{process.name} continues")
            self.thawed_at[process.name] = self._loop.now
            process.thaw()

        self._loop.later(self._random.choice((5, 70, 200, 600)) * (0.5 + self._random.random()), thaw)

    def _set_clock(self) -> None:
        if (process := self._drawn()) is not None and not self._chance.is_calm:
            process.clock_ahead_seconds = self._random.choice((0, 90, 3600, -90, -3600)) * self._random.random()
            self.note(f"the clock of {process.name} is {process.clock_ahead_seconds:.0f} s ahead")

    # the chat

    def _leave(self) -> None:
        person = self._random.choice(PEOPLE).person_id
        self.chat.left ^= {person}
        self.note(f"{person} {'leaves' if person in self.chat.left else 'is back'}")

    def _close(self) -> None:
        channel = self._random.choice(CHANNELS)
        self.chat.closed.add(channel)
        self.note(f"{channel} is archived")

    # users

    def _by_user(self, users: SimulatedProcess, operation: Callable[[], Awaitable[str]]) -> None:
        async def act() -> None:
            try:
                self.note(f"a user: {await operation()}")
            except (StorageUnavailable, ToolError) as error:
                self.note(f"a user is told: {error}")

        users.start(act())

    def _tools(self, owner: Person) -> RunSchedules:
        place = Address(platform="slack", workspace_id="T1", channel_id=self._random.choice(CHANNELS), thread_key="1.1")
        return RunSchedules(
            store=self._stores.schedules,
            limits=DEFAULT_LIMITS,
            request_key=str(self._saved),
            address=place,
            thread_id=None,
            agent_id=None,
            requester=owner,
            requested_at=datetime.now(UTC),
            time_zone=self._zone,
        )

    async def _save(self, schedule_id: str) -> str:
        owner = self._random.choice(PEOPLE)
        params = ScheduleTaskParams(
            task="Report", when=self._random.choice(RULES), thread=self._random.choice(("new", "same")), id=schedule_id
        )
        self._saved += 1
        schedule = await self._tools(owner).arm_schedule(params, owner)
        return f"armed {schedule.schedule_id}: {schedule.headline}"

    async def _arm(self) -> str:
        return await self._save("")

    async def _arm_hook(self) -> str:
        owner = self._random.choice(PEOPLE)
        self._saved += 1
        hook = Schedule(
            schedule_id=f"h{self._saved}",
            address=replace(self._tools(owner).address, thread_key=""),
            owner=owner,
            task="Look",
            timing=Trigger(kind="hook"),
            armed_at=datetime.now(UTC),
        )
        await self._stores.schedules.save(hook, DEFAULT_LIMITS, by=owner, change="created")
        return f"armed the hook {hook.schedule_id}"

    def _call(self, key: str, hook_id: str = "") -> None:
        """A program calls a hook, and again until it is answered."""
        hooks = [row[0] for row in self.rows("SELECT schedule_id FROM schedule WHERE rule LIKE 'ON:%'")]
        process, hook_id = self._drawn(), hook_id or (self._random.choice(hooks) if hooks else "")
        if hook_id not in hooks:
            return
        answered = False
        event = TriggerEvent(
            kind="hook",
            address=Address(platform="slack", workspace_id="T1", channel_id="", thread_key=""),
            key=key,
            group=GROUPS[int(key[1:]) % 2],
            title="Full",
        )

        async def answer(runner: ScheduleRunner) -> None:
            nonlocal answered
            hook = await runner.schedules.find(hook_id)
            refusal = await runner.fire_for_event(hook, event) if hook else "gone"
            answered = True
            self.note(f"{hook_id} is called with {key}: {refusal or 'accepted'}")
            if refusal is None:
                self.accepted.add((hook_id, key))

        if process is not None:
            process.start(answer(self._runners[process]))
        self._loop.later(30.0, lambda: None if answered else self._call(key, hook_id))

    async def _pick(self) -> Schedule | None:
        place = self._tools(PEOPLE[0]).address
        here = Selection(platform=place.platform, workspace_id=place.workspace_id)
        found = await self._stores.schedules.list_schedules(here)
        return self._random.choice(found) if found else None

    async def _edit(self) -> str:
        found = await self._pick()
        is_timed = found is not None and isinstance(found.timing, Timing)
        return await self._save(found.schedule_id) if found and is_timed else "nothing to edit"

    async def _change(self) -> str:
        actions: tuple[ScheduleAction, ...] = ("pause", "pause", "resume", "resume", "run_now", "run_now", "delete")
        action, found = self._random.choice(actions), await self._pick()
        if found is None:
            return "nothing to change"
        person = self._random.choice(PEOPLE)
        return f"{action}: " + await change_schedule_by(person, found, action, self._stores.schedules, DEFAULT_LIMITS)

    # the worker

    async def _work(self) -> None:
        for run_id in await self._stores.claims.claimable_runs():
            if run_id in self._executing:
                continue
            lease = await self._stores.claims.claim(run_id, "worker")
            if lease is not None:
                self._executing.add(run_id)
                process = current_process()
                assert process is not None
                process.start(self._execute(lease))

    async def _execute(self, lease: Lease) -> None:
        await asyncio.sleep(self._random.choice((1, 30, 700)))
        ending = self._random.choice((COMPLETED, COMPLETED, FAILED, FAILED, asking("Which one?")))
        while True:
            try:
                inputs = await self._stores.journal.read_inputs(lease)
                entry = JournalEntry(taken_input_ids=tuple(one.input_id for one in inputs))
                if await self._stores.journal.finish(lease, entry, ending) is not None:
                    self.note(f"run {lease.run_id[-4:]} ends: {ending.finish_reason}")
                    return
            except StorageUnavailable:
                await asyncio.sleep(1)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._memory.rows(query)


# what must be true


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a schedule or of a firing, in the order of the transactions."""

    n: int
    at: float
    acting: str
    what: str
    schedule_id: str
    firing_id: str | None
    due_at: str | None
    next_due_at: str | None
    next_local: str | None
    rule: str | None
    time_zone: str | None
    state: str | None
    armed_at: str | None
    missed: int
    note: str | None
    run_id: str | None


def find_problems(history: _History) -> list[str]:
    changes = [_Change(*row) for row in history.rows("SELECT * FROM change ORDER BY n")]
    offset = time.time() - history._loop.now
    problems = [*_wrong_moves(changes, history.thawed_at, offset), *_wrong_firings(changes)]
    problems += _wrong_announcements(history, changes, offset)
    problems += _doubled_announcements(history.chat.posts, changes)
    problems += _unsettled(history, changes)
    problems += _wrong_calls(history, changes)
    return problems


def _seconds(stored: str) -> float:
    return datetime.fromisoformat(stored).replace(tzinfo=UTC).timestamp()


def _wrong_moves(changes: list[_Change], thawed_at: Mapping[str, float], offset: float) -> Generator[str, None, None]:
    """Every time that a schedule passes is one firing, or is counted in one."""
    for change, following in pairwise([*changes, replace_what(changes)]):
        is_ended = change.state == "ended" and change.acting != "users"  # users also run one whose last time has passed
        if change.what != "moved" or not (is_ended or change.due_at != change.next_due_at):
            continue
        assert change.rule is not None
        assert change.next_local is not None
        assert change.time_zone is not None
        name = f"{change.schedule_id} due {change.due_at}"
        start = datetime.fromisoformat(change.next_local.rstrip("*"))
        if following.what != "begun" or following.due_at != change.due_at:
            yield f"{name} is passed over without a firing"
            continue
        end = datetime.max.replace(tzinfo=UTC).timestamp()
        if change.state != "ended":
            assert change.next_due_at is not None
            end = _seconds(change.next_due_at)
        times = [one for one in times_of(change.rule, start, change.time_zone, change.at + 86_400) if one < end]
        if len(times) != following.missed + 1:
            yield f"{name}: {len(times)} times passed, and {following.missed} are counted as missed"
        if times[-1] > change.at:
            yield f"{name}: begins {times[-1] - change.at:.0f} s too early"
        was_frozen = change.at - (thawed_at.get(change.acting, -1e9) + offset) < LATENCY_SECONDS_MAX
        if end < change.at - LATENCY_SECONDS_MAX and not was_frozen:
            yield f"{name}: its next time has passed {change.at - end:.0f} s ago, too"


def replace_what(changes: list[_Change]) -> _Change:
    """A change after the last one, so that each has one that follows."""
    return _Change(0, 0, "", "", "", None, None, None, None, None, None, None, None, 0, None, None)


@cache
def _instant(local: datetime, time_zone: str) -> float:
    """When a clock there shows the local time first, or what it shows so much later as it was set forward."""
    zone = ZoneInfo(time_zone)
    near = [local.replace(tzinfo=UTC) + timedelta(hours=hours) for hours in range(-26, 27)]
    offsets = sorted({offset for one in near if (offset := one.astimezone(zone).utcoffset()) is not None}, reverse=True)
    for offset in offsets:
        instant = (local - offset).replace(tzinfo=UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == local:
            return instant.timestamp()
    return (local - min(offsets)).replace(tzinfo=UTC).timestamp()


def times_of(rule: str, start: datetime, time_zone: str, until: float) -> list[float]:
    """The times of a rule, minute by minute, each later than the one before."""
    parts = dict(part.split("=") for part in rule.split(";")) if rule else {}
    last = datetime.strptime(parts["UNTIL"], "%Y%m%dT%H%M%S") if "UNTIL" in parts else datetime(9999, 1, 1)  # noqa: DTZ001, DTZ007 - local
    hours, minutes = (
        {int(one) for one in parts[name].split(",")} if name in parts else None for name in ("BYHOUR", "BYMINUTE")
    )
    interval = int(parts.get("INTERVAL", "1"))
    times, local = [_instant(start, time_zone)], start
    while rule and local < last:
        local += timedelta(minutes=1)
        passed = (local - start) // timedelta(minutes=1)
        is_hour = hours is None or local.hour in hours
        is_minute = passed % interval == 0 if minutes is None else local.minute in minutes
        if not (is_hour and is_minute) or local > last:
            continue
        instant = _instant(local, time_zone)
        if instant > until:
            break
        if instant > times[-1]:
            times.append(instant)
    return times


def _wrong_firings(changes: list[_Change]) -> Generator[str, None, None]:
    """One at a time, once for each time, never while paused, and each comes to an end."""
    pending, states, seen = defaultdict[str, set[str]](set), dict[str, str | None](), set[tuple[str, str | None]]()
    for change in changes:
        firing = change.firing_id
        if change.what in ("armed", "moved"):
            states[change.schedule_id] = change.state
        if firing is None:
            continue
        open_firings = pending[change.schedule_id]
        if change.what == "begun":
            if open_firings and not change.schedule_id.startswith("h"):
                yield f"{change.schedule_id} fires twice at once"
            if (change.schedule_id, change.due_at) in seen:
                yield f"{change.schedule_id} fires twice for {change.due_at}"
            if change.state == "paused" and change.acting != "users":
                yield f"{change.schedule_id} fires while it is paused"
            seen.add((change.schedule_id, change.due_at))
            open_firings.add(firing)
        elif firing in open_firings:
            if change.what == "closed" and change.state == "fired" and not change.run_id:
                yield f"{firing} fired without a run"
            open_firings.discard(firing)
    begun = {one.firing_id: one.at for one in changes if one.what == "begun"}
    late = time.time() - 4 * LOOK_SECONDS
    for schedule_id, left in pending.items():
        yield from (f"{firing} of {schedule_id} does not end" for firing in left if begun[firing] < late)


def _wrong_announcements(history: _History, changes: list[_Change], offset: float) -> Generator[str, None, None]:
    """Every firing is announced once and begins one run; the note of one that is skipped is posted."""
    begun = {one.firing_id: one for one in changes if one.what == "begun"}
    dropped = {one.firing_id: one.at for one in changes if one.what == "dropped" and one.state == "pending"}
    ended = {one.firing_id: one for one in changes if one.what == "closed"}
    posts = [one for one in history.chat.posts if one.delivery_id in begun]
    inputs = Counter(ref for (ref,) in history.rows("SELECT message_ref FROM thread_input"))
    runs_of = defaultdict[str, set[str]](set)
    for _key, ref, run_id in history.received:
        if run_id:
            runs_of[ref].add(run_id)
    for post in posts:
        firing = begun[post.delivery_id]
        assert firing.firing_id is not None
        gone_at = dropped.get(firing.firing_id)
        if gone_at is not None and post.at + offset > gone_at + FLIGHT_SECONDS_MAX:
            yield f"{firing.firing_id} is announced after its schedule was withdrawn"
        closed = ended.get(firing.firing_id)
        if inputs[post.ref] > 1 or len(runs_of[post.ref]) > 1:
            yield f"{firing.firing_id} of {firing.schedule_id} begins {inputs[post.ref]} runs"
        if not inputs[post.ref] and gone_at is None and (closed is None or closed.state != "skipped"):
            yield f"{firing.firing_id} of {firing.schedule_id} is announced without a run"
        if (
            firing.due_at
            and post.at + offset < _seconds(firing.due_at) - LATENCY_SECONDS_MAX
            and "users" not in firing.acting
        ):
            yield f"{firing.firing_id} is announced before it is due"


def _doubled_announcements(posts: list[_Post], changes: list[_Change]) -> Generator[str, None, None]:
    begun = {one.firing_id for one in changes if one.what == "begun"}
    counts = Counter(one.delivery_id for one in posts if one.delivery_id in begun)
    yield from (f"{firing_id} is announced {count} times" for firing_id, count in counts.items() if count > 1)


def _unsettled(history: _History, changes: list[_Change]) -> Generator[str, None, None]:
    late = time.time() - 4 * LOOK_SECONDS
    quiet, zone = history._quiet, ZoneInfo(history._zone)
    for schedule_id, state, due_at in history.rows("SELECT schedule_id, state, due_at FROM schedule"):
        if state == "active" and _seconds(due_at) < late and not _was_quiet(quiet, zone):
            yield f"{schedule_id} is due since {due_at}"
    told = [(one.address.channel_id, one.text) for one in history.chat.posts]
    for change in changes:
        is_given_up = change.what == "moved" and change.state == "paused" and change.note
        if is_given_up and not any(channel.startswith("D") and change.schedule_id in text for channel, text in told):
            yield f"{change.schedule_id} is paused ({change.note}), and its owner is not told"
    notes = [one for one in changes if one.what == "closed" and one.state == "skipped" and one.note]
    for change in notes:
        if not any(change.note and change.note in text for _channel, text in told) and not history.chat.closed:
            yield f"{change.firing_id} is skipped, and nobody is told"


def _wrong_calls(history: _History, changes: list[_Change]) -> Generator[str, None, None]:
    """A call that was accepted begins one run, and all that belong together have one thread."""
    there = {row[0] for row in history.rows("SELECT schedule_id FROM schedule")}
    known = {tuple(row) for row in history.rows("SELECT schedule_id, event_key FROM firing")}
    withdrawn = {one.schedule_id for one in changes if one.what == "dropped"}
    for hook_id, key in history.accepted - known:
        if hook_id in there - withdrawn:
            yield f"{hook_id} has lost the call {key}"
    grouped = {
        row[0]: row[1] for row in history.rows("SELECT firing_id, schedule_id FROM firing WHERE group_key != ''")
    }
    opened = Counter(
        grouped[one.delivery_id] for one in history.chat.posts if is_opener(one) and one.delivery_id in grouped
    )
    yield from (f"{hook_id} has {count} threads for one incident" for hook_id, count in opened.items() if count > 1)


def is_opener(post: _Post) -> bool:
    return not post.address.thread_key


def _was_quiet(quiet: tuple[int, int] | None, zone: ZoneInfo) -> bool:
    """Whether one of the last two hours was quiet."""
    now = datetime.now(zone)
    if quiet is None:
        return False
    hours = {(now - timedelta(minutes=minutes)).hour for minutes in range(10)}
    first, last = quiet
    return any(first <= hour < last if first <= last else hour >= first or hour < last for hour in hours)


# bugs


_NUMBERS = itertools.count(1)


def _no_compare_and_set() -> Injection:
    """Every process that saw the schedule due begins a firing."""

    @writes(schedule_store._BEGIN)
    def begin(
        _store: SqlSchedules,
        connection: Connection,
        due: DueSchedule,
        plan: FiringPlan,
        *,
        due_at: datetime,
        claimed_until: datetime,
    ) -> Firing | None:
        schedule = schedule_store._find(connection, due.schedule.schedule_id)
        if schedule is None:
            return None
        is_due = due_at == due.schedule.timing.due_at
        now = replace(due, schedule=replace(schedule, state="active")) if is_due else due
        moved = schedule_store.timing_to_row(plan.next) if plan.next else {"state": "ended"}
        this = schedules.c.schedule_id == schedule.schedule_id
        connection.execute(update(schedules).where(this).values(moved))
        firing = Firing(
            firing_id=schedule_store.new_id(),
            schedule=now.schedule,
            due_at=due_at,
            missed=plan.missed,
            note=plan.note,
            event_key=str(next(_NUMBERS)),
        )
        row = {**schedule_store.to_row(firing, "schedule"), "schedule_id": schedule.schedule_id}
        row["claimed_until"], row["due_at"] = claimed_until, due_at + timedelta(microseconds=next(_NUMBERS))
        schedule_store.insert_or_skip(connection, schedule_store.firings, [row])
        return firing

    return SqlSchedules, "begin_firing", begin


def _blind_second_announcement() -> Injection:
    """An announcement is posted again without a look for the first one."""
    whole = ScheduleRunner._fire

    async def fire(self: ScheduleRunner, firing: Firing, *arguments: Any, **named: Any) -> None:
        await whole(self, firing, *arguments, **{**named, "may_be_posted": False})

    return ScheduleRunner, "_fire", fire


def _new_key_each_time() -> Injection:
    """Each attempt to begin the run has a dedupe key of its own."""
    whole = ScheduleRunner._begin_run

    async def begin_run(self: ScheduleRunner, firing: Firing, *arguments: Any, **named: Any) -> None:
        async def receive(action: UserAction) -> Outcome:
            return await self.receive(replace(action, dedupe_key=f"{action.dedupe_key}:{next(_NUMBERS)}"))

        await whole(replace(self, receive=receive), firing, *arguments, **named)

    return ScheduleRunner, "_begin_run", begin_run


def _burst() -> Injection:
    """Each time that was missed fires."""

    def after(self: Timing, now: datetime) -> tuple[Timing | None, int]:
        times = self.following()
        return (next(times), 0) if self.due_at > now else (next(times) and next(times, None), 1)

    return Timing, "first_after", after


BUGS: Mapping[str, Callable[[], Injection]] = {
    "no-compare-and-set": _no_compare_and_set,
    "blind-second-announcement": _blind_second_announcement,
    "new-key-each-time": _new_key_each_time,
    "burst": _burst,
    "silent-pause": always(Platforms, "send_direct_message"),  # the owner is not told of a pause
}
SEEDS: Mapping[str, int] = {
    "no-compare-and-set": 1,
    "blind-second-announcement": 1,
    "new-key-each-time": 5,
    "burst": 11,
    "silent-pause": 5,
}
"""A seed that finds each bug. `--bugs` plays them, and looks for others where one does not."""


# playing


def play(seed: int, memory: ScheduleMemory) -> Result:
    """Plays the history of the seed and checks the invariants at its end."""
    zone, beginning = BEGINNINGS[seed % len(BEGINNINGS)]
    epoch = datetime.fromisoformat(beginning).replace(tzinfo=UTC).timestamp()

    def begin(loop: VirtualTimeLoop) -> _History:
        memory.begin(lambda: loop.time() + epoch - EPOCH_SECONDS)
        return _History(seed, memory, loop, zone)

    return play_history(seed, epoch, begin)
