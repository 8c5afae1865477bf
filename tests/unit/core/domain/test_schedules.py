"""When schedules are due, how that is said, and what happens when one is."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, cast

import pytest

from bots.inbound.commands.schedules import _shown
from core.domain.approval import Approval
from core.domain.errors import ToolError
from core.domain.outside_text import single_line
from core.domain.schedules import (
    FAILING,
    DueSchedule,
    FiringPlan,
    InvalidTiming,
    Schedule,
    ScheduleLimits,
    Timing,
    Trigger,
    TriggerEvent,
    build_commands,
    describe_timing,
    is_in_quiet_hours,
    parse_trigger,
    parse_when,
    plan_firing,
)
from core.domain.threads import Address, Person, Run, RunStatus
from core.tools.schedules import (
    ChangeScheduleParams,
    RunSchedules,
    ScheduleTaskParams,
    build_schedule_tools,
    describe_schedule,
)
from core.tools.tool import ToolSet, prepare_call
from tests.support.narrow import require

NOW = datetime(2026, 11, 29, 15, 7, 30, tzinfo=UTC)  # a Sunday, 10:07 in New York
NEW_YORK = "America/New_York"
PLACE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="")
MONDAYS = "RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0"


@pytest.mark.parametrize(
    ("when", "times", "words"),
    [
        ("2026-12-01T10:00", ["12-01 10:00"], "once"),
        ("2026-12-01 10:00:30", ["12-01 10:00"], "once"),
        ("2026-12-01T10:00+00:00", ["12-01 05:00"], "once"),  # an offset is converted
        ("PT2H", ["11-29 12:07"], "once"),
        ("p1d", ["11-30 10:07"], "once"),
        (MONDAYS, ["11-30 09:00", "12-07 09:00", "12-14 09:00"], "every Monday at 09:00"),
        ("freq=daily;byhour=9,17", ["11-29 17:00", "11-30 09:00", "11-30 17:00"], "every day at 09:00 and 17:00"),
        (
            "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=30",
            ["11-30 08:30", "12-01 08:30", "12-02 08:30"],
            "every weekday at 08:30",
        ),
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9",
            ["12-08 09:00", "12-22 09:00", "01-05 09:00"],
            "every 2 weeks on Tuesday at 09:00",
        ),
        (
            "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17",
            ["12-25 17:00", "01-29 17:00", "02-26 17:00"],
            "every month on the last Friday at 17:00",
        ),
        (
            "FREQ=MONTHLY;BYMONTHDAY=1,-1;BYHOUR=8",
            ["11-30 08:00", "12-01 08:00", "12-31 08:00"],
            "every month on day 1 and the last day at 08:00",
        ),
        (
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=9",
            ["02-29 09:00", "02-29 09:00", "02-29 09:00"],
            "every year on day 29 in February at 09:00",
        ),
        ("FREQ=HOURLY", ["11-29 11:07", "11-29 12:07", "11-29 13:07"], "every hour"),
        ("FREQ=HOURLY;BYMINUTE=0,30", ["11-29 10:30", "11-29 11:00", "11-29 11:30"], "every hour at minute 0 and 30"),
        ("FREQ=MINUTELY;INTERVAL=15", ["11-29 10:22", "11-29 10:37", "11-29 10:52"], "every 15 minutes"),
        ("FREQ=DAILY;BYHOUR=9;COUNT=2", ["11-30 09:00", "12-01 09:00"], "every day at 09:00 until 2026-12-01"),
        ("FREQ=DAILY;BYHOUR=9;UNTIL=20261201T000000Z", ["11-30 09:00"], "every day at 09:00 until 2026-12-01"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9",
            ["11-30 09:00", "12-31 09:00", "01-29 09:00"],
            "by the rule FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9;BYMINUTE=0",
        ),
    ],
)
def test_a_time_or_rule_is_read_and_said_in_words(when: str, times: list[str], words: str) -> None:
    timing = parse_when(when, now=NOW, time_zone=NEW_YORK)
    assert [f"{one.next_local:%m-%d %H:%M}" for one in islice(timing.following(), 3)] == times
    assert describe_timing(parse_when(when, now=NOW, time_zone=NEW_YORK)) == words


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("tomorrow", "no time"),
        ("", "no time"),
        ("2026-12-01", "time of day"),
        ("2026-11-29T10:07", "has passed"),
        ("-PT2H", "no time"),
        ("P1000000000000D", "no time"),
        ("2126-12-01T10:00", "years away"),
        ("FREQ=SECONDLY", "FREQ is one of"),
        ("FREQ=MINUTELY", "every 5 minutes at most"),
        ("FREQ=HOURLY;BYMINUTE=0,3", "every 5 minutes at most"),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0,1", "every 5 minutes at most"),
        ("FREQ=DAILY", "BYHOUR"),
        ("FREQ=DAILY;BYHOUR=99", "cannot be read"),
        ("FREQ=DAILY;BYHOUR=9;BYEASTER=0", "BYEASTER"),
        ("FREQ=WEEKLY;BYDAY=XX;BYHOUR=9", "BYDAY"),
        ("FREQ=WEEKLY;BYDAY=1MO;BYHOUR=9", "MONTHLY"),  # it would run every Monday
        ("FREQ=DAILY;BYDAY=-1FR;BYHOUR=9", "MONTHLY"),
        ("FREQ=WEEKLY;INTERVAL=0;BYHOUR=9", "INTERVAL"),
        ("FREQ=WEEKLY;INTERVAL=1e9;BYHOUR=9", "INTERVAL"),
        ("FREQ=DAILY;BYHOUR=9;UNTIL=20200101T000000", "no time in the years to come"),
        # dateutil would look for these until the year 9999
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=1", "no such day"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-31;BYHOUR=1", "no such day"),
        ("FREQ=DAILY;BYMONTH=99;BYMONTHDAY=1;BYHOUR=1", "no such day"),
        ("FREQ=MINUTELY;INTERVAL=5;BYMONTH=2;BYMONTHDAY=30", "does not go with"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=MO;BYHOUR=1", "does not go with"),
        ("FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1;BYHOUR=1", "in one way"),
        ("FREQ=YEARLY;BYDAY=MO;BYSETPOS=366;BYHOUR=9", "BYSETPOS"),
        ("FREQ=DAILY;BYDAY=MO;BYMONTH=2;BYMONTHDAY=29;BYHOUR=1", "two of"),
        ("FREQ=YEARLY;BYMONTHDAY=1;BYHOUR=9", "needs BYMONTH"),
        (f"FREQ=DAILY;BYHOUR={','.join(['9'] * 200)}", "too long"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(when: str, why: str) -> None:
    with pytest.raises(InvalidTiming, match=why):
        parse_when(when, now=NOW, time_zone=NEW_YORK)


def test_a_time_that_the_clocks_skip_runs_once_and_one_that_comes_twice_too() -> None:
    def instants(when: str, now: datetime, count: int) -> list[str]:
        timing = parse_when(when, now=now, time_zone=NEW_YORK)
        return [f"{one.due_at:%d %H:%M}" for one in islice(timing.following(), count)]

    before_spring, before_autumn = datetime(2027, 3, 13, 8, tzinfo=UTC), datetime(2027, 11, 6, 8, tzinfo=UTC)
    at_half_past_two = "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"
    assert instants(at_half_past_two, before_spring, 3) == ["14 07:30", "15 06:30", "16 06:30"]
    at_half_past_one = "FREQ=DAILY;BYHOUR=1;BYMINUTE=30"
    assert instants(at_half_past_one, before_autumn, 3) == ["07 05:30", "08 06:30", "09 06:30"]
    hourly = "FREQ=HOURLY;BYMINUTE=30"
    # 02:30 and 03:30 are the same instant in spring
    assert instants(hourly, datetime(2027, 3, 14, 5, tzinfo=UTC), 4) == ["14 05:30", "14 06:30", "14 07:30", "14 08:30"]


def test_a_rule_keeps_its_cadence_over_times_that_were_missed() -> None:
    timing = parse_when("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9", now=NOW, time_zone="UTC")
    following, passed = timing.first_after(timing.due_at + timedelta(days=31))
    assert passed == 3
    assert (require(following).due_at - timing.due_at).days == 42
    assert timing.first_after(timing.due_at - timedelta(seconds=1)) == (timing, 0)


def test_what_comes_once_has_no_next_time() -> None:
    timing = parse_when("PT1H", now=NOW, time_zone="UTC")
    assert timing.first_after(NOW + timedelta(hours=1)) == (None, 1)


SCHEDULE = Schedule(
    schedule_id="k7m2xq4b",
    address=PLACE,
    owner=Person(person_id="U1", name="alice"),
    task="Post the incidents",
    timing=Timing(
        rule="FREQ=DAILY;BYHOUR=9;BYMINUTE=0", next_local=datetime.fromisoformat("2026-11-30T09:00"), time_zone="UTC"
    ),
    armed_at=NOW,
)
ONCE = replace(SCHEDULE, timing=replace(SCHEDULE.timing, rule=""))
DUE_AT = SCHEDULE.timing.due_at


@pytest.mark.parametrize(
    ("schedule", "remedy"),
    [
        (SCHEDULE, "`schedules resume k7m2xq4b` arms it again."),
        (replace(SCHEDULE, timing=Trigger(kind="post")), "`schedules resume k7m2xq4b` arms it again."),
        (ONCE, "Its time has passed: `schedules run k7m2xq4b` does it now, or tell me a new one."),
        (replace(ONCE, state="proposed"), "Its time has passed: tell me a new one."),
    ],
)
def test_the_remedy_for_a_pause_is_one_that_works(schedule: Schedule, remedy: str) -> None:
    assert schedule.describe_remedy(DUE_AT) == remedy


def run(status: RunStatus) -> Run:
    return Run(run_id=status, thread_id="t", status=status, created_at=NOW)


@pytest.mark.parametrize(
    ("runs", "is_waiting", "outcome"),
    [
        ([], False, "fires"),
        (["completed"], False, "fires"),
        (["failed", "failed", "completed"], False, "fires"),
        (["failed", "failed", "failed"], False, "pauses"),
        (["running"], False, "skips"),
        (["queued"], False, "skips"),
        (["waiting"], True, "expires"),
        (["completed"], True, "expires"),  # it ended with a question
    ],
)
def test_what_a_firing_does_depends_on_the_runs_before(
    runs: list[RunStatus], is_waiting: bool, outcome: Literal["fires", "pauses", "skips", "expires"]
) -> None:
    due = DueSchedule(schedule=SCHEDULE, runs=tuple(map(run, runs)), is_waiting=is_waiting)
    plan = plan_firing(due, DUE_AT)
    assert plan.next == replace(SCHEDULE.timing, next_local=datetime.fromisoformat("2026-12-01T09:00"))
    is_paused = plan.note == FAILING
    is_skipped = plan.note != "" and not is_paused
    expected = {"fires": (False, False), "pauses": (False, True), "skips": (True, False), "expires": (True, False)}
    assert (is_skipped, is_paused) == expected[outcome]
    assert plan.expires_question == (outcome == "expires")


@pytest.mark.parametrize("shown", [single_line, _shown])
def test_a_long_task_hides_neither_the_time_nor_the_owner_nor_why_it_is_paused(shown: Callable[[str], str]) -> None:
    task = "[Click](https://evil.example) **now**\n- " + "x" * 2000
    paused = replace(SCHEDULE, task=task, state="paused", problem="its channel is gone")
    line = describe_schedule(paused, shown)
    assert "every day at 09:00, next Mon 30 Nov 2026, 09:00 UTC · by alice · paused: its channel is gone" in line
    assert "\n" not in line
    assert len(line) < 500
    assert r"\[Click\](https" in describe_schedule(paused, _shown)
    assert task in describe_schedule(paused)


def test_the_card_names_the_schedule_that_would_change_on_one_line() -> None:
    known = replace(SCHEDULE, task="Post\n# Approved by alice\n" + "x" * 2000)
    tools = RunSchedules(
        store=cast(Any, None),
        limits=ScheduleLimits(),
        request_key="run",
        address=SCHEDULE.address,
        thread_id="t",
        agent_id=None,
        requester=SCHEDULE.owner,
        requested_at=datetime.now(UTC),
        known=(known,),
    )
    edit = ScheduleTaskParams(task="Post", when="PT1H", id=known.schedule_id)
    run_now = ChangeScheduleParams(id=known.schedule_id, action="run_now")
    for question in (tools.approval_headline(edit), tools.change_headline(run_now)):
        assert question is not None
        assert "schedule “Post # Approved by alice xxx" in question
        assert "\n" not in question
        assert len(question) < 250


@pytest.mark.parametrize("schedule_id", ["", "k7m2xqab"])
def test_the_card_leads_to_the_schedule_that_the_call_makes_or_changes(schedule_id: str) -> None:
    tools = RunSchedules(
        store=cast(Any, None),
        limits=ScheduleLimits(),
        request_key="run",
        address=SCHEDULE.address,
        thread_id="t",
        agent_id=None,
        requester=SCHEDULE.owner,
        requested_at=datetime.now(UTC),
        time_zone="UTC",
    )
    params = ScheduleTaskParams(task="Post", when="PT1H", id=schedule_id)
    schedule = tools.build_schedule(params, SCHEDULE.owner)
    assert schedule.schedule_id == tools.schedule_id(params.model_copy(update={"thread": "new"}))
    call = prepare_call(
        "schedule_task",
        params.model_dump(exclude_unset=True),
        ToolSet({tool.name: tool for tool in build_schedule_tools(tools)}),
    ).to_approve()
    approval = Approval(turn_id="1", calls=(call,))
    assert approval.commands == build_commands(schedule.schedule_id)
    assert Approval(turn_id="1", calls=(call, call)).commands == {}
    other = replace(tools, request_key="another run")
    assert (other.schedule_id(params) == schedule.schedule_id) is bool(schedule_id)


@pytest.mark.parametrize("when", ["PT1H", "ON:POST"])
@pytest.mark.parametrize("channel_id", ["C1", "C2", "D1"])
async def test_a_change_keeps_the_place_and_the_agent_wherever_it_is_asked_for(channel_id: str, when: str) -> None:
    in_thread = replace(SCHEDULE, address=replace(PLACE, thread_key="1.0"), thread_id="t1", agent_id="research")
    saved = list[Schedule]()

    class Store:
        async def find(self, _schedule_id: str) -> Schedule:
            return in_thread

        async def save(self, schedule: Schedule, *_more: object, **_named: object) -> bool:
            saved.append(schedule)
            return True

    tools = RunSchedules(
        store=cast(Any, Store()),
        limits=ScheduleLimits(),
        request_key="run",
        address=replace(PLACE, channel_id=channel_id, thread_key="5.0"),
        thread_id="t2",
        agent_id=None,
        requester=SCHEDULE.owner,
        requested_at=datetime.now(UTC),
        time_zone="UTC",
        known=(in_thread,),
    )
    params = ScheduleTaskParams(task="Post", when=when, id=SCHEDULE.schedule_id)
    card = str(tools.build_card(params))
    assert "where it is now, with task `Post`" in card
    assert "new thread" not in card
    await tools.arm_schedule(params, SCHEDULE.owner)
    (after,) = saved
    assert after == replace(in_thread, task="Post", timing=after.timing, armed_at=after.armed_at)


def test_the_time_zone_of_the_newest_schedule_is_remembered_for_people_who_are_renamed() -> None:
    known = replace(SCHEDULE, timing=replace(SCHEDULE.timing, time_zone=NEW_YORK))
    tools = RunSchedules(
        store=cast(Any, None),
        limits=ScheduleLimits(),
        request_key="run",
        address=PLACE,
        thread_id="t",
        agent_id=None,
        requester=replace(SCHEDULE.owner, name="Alice B."),
        requested_at=datetime.now(UTC),
        known=(known,),
    )
    timing = tools.parse_timing(ScheduleTaskParams(task="Post", when="PT1H"))
    assert timing.time_zone == NEW_YORK


@pytest.mark.parametrize(
    ("place", "thread", "target"),
    [
        (Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0"), "new", ("C1", "")),
        (Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0"), "same", ("C1", "1.0")),
        (Address(platform="discord", workspace_id="1", channel_id="4", thread_key="5"), "new", ("4", "")),
        (Address(platform="discord", workspace_id="1", channel_id="4/5", thread_key="5"), "new", ("4/5", "5")),
        (Address(platform="discord", workspace_id="@me", channel_id="9", thread_key="dm"), "new", ("9", "dm")),
    ],
)
def test_a_task_stays_where_only_some_can_read(
    place: Address, thread: Literal["new", "same"], target: tuple[str, str]
) -> None:
    tools = RunSchedules(
        store=cast(Any, None),
        limits=ScheduleLimits(),
        request_key="run",
        address=place,
        thread_id="t",
        agent_id=None,
        requester=SCHEDULE.owner,
        requested_at=datetime.now(UTC),
    )
    address = tools.target_address(ScheduleTaskParams(task="Post", when="PT1H", thread=thread))
    assert (address.channel_id, address.thread_key) == target
    if not place.has_threads:
        with pytest.raises(ToolError, match="in channels only"):
            tools.parse_timing(ScheduleTaskParams(task="Post", when="ON:POST"))


def test_times_that_nobody_was_there_for_run_once() -> None:
    plan = plan_firing(DueSchedule(schedule=SCHEDULE), DUE_AT + timedelta(days=3, hours=1))
    assert plan == FiringPlan(
        next=replace(SCHEDULE.timing, next_local=datetime.fromisoformat("2026-12-04T09:00")), missed=3
    )


@pytest.mark.parametrize(
    ("hours", "hour", "quiet"),
    [
        ((22, 7), 23, True),
        ((22, 7), 6, True),
        ((22, 7), 7, False),
        ((22, 7), 12, False),
        ((1, 5), 1, True),
        (None, 3, False),
    ],
)
def test_quiet_hours_may_lie_around_midnight(hours: tuple[int, int] | None, hour: int, quiet: bool) -> None:
    assert is_in_quiet_hours(datetime(2026, 11, 29, hour, tzinfo=UTC), "UTC", hours) is quiet


@pytest.mark.parametrize(
    ("when", "event", "words"),
    [
        ("ON:POST", {"kind": "post"}, "for every new post"),
        ("on: post", {"kind": "post"}, "for every new post"),
        ("ON:EMOJI :ticket:", {"kind": "emoji", "emoji": "ticket"}, "for every message with the emoji ticket"),
        ("ON:EMOJI ❤\ufe0f", {"kind": "emoji", "emoji": "❤"}, "for every message with the emoji ❤"),
        ("ON:EMOJI 👍🏽", {"kind": "emoji", "emoji": "👍"}, "for every message with the emoji 👍"),
        ("ON:APP B1", {"kind": "app", "app_ids": {"A1", "B1"}}, "for every message of the app B1"),
        (
            "ON:APP B1 disk  full",
            {"kind": "app", "app_ids": {"B1"}, "text": "FIRING: Disk full on db1"},
            "for every message of the app B1 with “disk full”",
        ),
    ],
)
def test_triggers_wait_for_events(when: str, event: dict[str, Any], words: str) -> None:
    trigger = require(parse_trigger(when))
    assert trigger.in_words == words
    assert Trigger.of_rule(trigger.rule) == trigger
    happened = TriggerEvent(address=PLACE, key="1", **event)
    assert trigger.matches(happened, ["B1"])


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("ON:POST", {"kind": "emoji", "emoji": "eyes"}),
        ("ON:POST", {"kind": "app", "app_ids": {"B1"}}),
        ("ON:EMOJI ticket", {"kind": "emoji", "emoji": "eyes"}),
        ("ON:EMOJI ticket", {"kind": "post"}),
        ("ON:APP B1", {"kind": "app", "app_ids": {"B2"}}),
        ("ON:APP B1 disk full", {"kind": "app", "app_ids": {"B1"}, "text": "Disk is fine"}),
        ("ON:APP B3", {"kind": "app", "app_ids": {"B3"}}),  # the operator has not allowed it
    ],
)
def test_triggers_let_other_events_pass(rule: str, event: dict[str, Any]) -> None:
    trigger = require(parse_trigger(rule))
    assert not trigger.matches(TriggerEvent(address=PLACE, key="1", **event), ["B1", "B2"])


@pytest.mark.parametrize(
    "when", ["ON:", "ON:HOOK x", "ON:POST now", "ON:EMOJI", "ON:EMOJI a b", "ON:APP", "ON:" + "x" * 400]
)
def test_other_triggers_are_refused(when: str) -> None:
    with pytest.raises(InvalidTiming):
        parse_trigger(when)


@pytest.mark.parametrize("when", [MONDAYS, "PT2H", "2026-12-01T10:00", "", "ONCE"])
def test_times_are_no_triggers(when: str) -> None:
    assert parse_trigger(when) is None
