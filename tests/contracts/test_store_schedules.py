"""Schedules and their firings, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.domain.approval import Approval, CallToApprove
from core.domain.schedules import (
    DEFAULT_LIMITS,
    EVENTS_PER_HOUR_MAX,
    FAILURES_MAX,
    PROPOSAL_DAYS,
    DueSchedule,
    EventRefusal,
    Firing,
    FiringPlan,
    Schedule,
    ScheduleLimits,
    Timing,
    Trigger,
    TriggerEvent,
    plan_firing,
)
from core.domain.threads import Accept, Address, Person, Receipt, Selection
from core.stores import JournalEntry, RunResult
from tests.contracts.stores import ADDRESS, ALICE, BOB, FAILED, Stores, asking, deciding
from tests.support.narrow import require, require_type

START = datetime(2026, 11, 30, 9, tzinfo=UTC)
CHANNEL = replace(ADDRESS, thread_key="")
AT_NINE = Timing(
    rule="FREQ=DAILY;BYHOUR=9;BYMINUTE=0", next_local=datetime.fromisoformat("2026-11-30T09:00"), time_zone="UTC"
)
DAILY = Schedule(
    schedule_id="daily",
    address=CHANNEL,
    owner=ALICE,
    task="Post the news",
    timing=AT_NINE,
    armed_at=START - timedelta(days=1),
)
PIN = CallToApprove(index=0, tool="pin", headline="Pin a note.", arguments={})
ONCE = replace(DAILY, schedule_id="once", timing=replace(DAILY.timing, rule=""))


async def save(stores: Stores, *schedules: Schedule, limits: ScheduleLimits = DEFAULT_LIMITS) -> list[bool]:
    """Stores new schedules, and changes of those that are there."""
    store, saved = stores.schedules, list[bool]()
    for one in schedules:
        change = "changed" if await store.find(one.schedule_id) else "created"
        saved.append(await store.save(one, limits, by=one.owner, change=change))
    return saved


async def take_over(stores: Stores, now: datetime, platform: str = "slack") -> list[Firing]:
    """Returns the firings that a process on the platform claims for an hour."""
    return [*await stores.schedules.claim_pending_firings(now, now + timedelta(hours=1), (platform, "api"))]


async def due_at(stores: Stores, now: datetime) -> tuple[DueSchedule, ...]:
    return await stores.schedules.due_schedules(now, lambda _schedule: True)


async def begin(stores: Stores, now: datetime = START) -> list[Firing]:
    """What one process begins when it looks."""
    fired = [
        await stores.schedules.begin_firing(
            due, plan_firing(due, now), due_at=due.schedule.timing.due_at, claimed_until=now + timedelta(minutes=1)
        )
        for due in await due_at(stores, now)
    ]
    return [one for one in fired if one]


async def test_a_schedule_is_read_as_it_was_saved(stores: Stores) -> None:
    schedule = replace(DAILY, agent_id="research", owner=replace(ALICE, time_zone="UTC"), problem="x", state="paused")
    assert await save(stores, schedule) == [True]
    assert await stores.schedules.find("daily") == schedule
    assert await stores.schedules.find("other") is None


async def test_each_time_fires_once_however_many_processes_look(stores: Stores) -> None:
    await save(stores, DAILY)
    assert await begin(stores, START - timedelta(seconds=1)) == []
    rounds = await asyncio.gather(*(begin(stores) for _ in range(6)))
    (fired,) = [one for found in rounds for one in found]
    assert (fired.due_at, fired.missed, fired.schedule.schedule_id) == (START, 0, "daily")
    assert await begin(stores) == []
    moved = require(await stores.schedules.find("daily"))
    assert moved.timing.due_at == START + timedelta(days=1)


async def test_what_is_only_proposed_begins_nothing_until_a_person_arms_it(stores: Stores) -> None:
    store, proposed = stores.schedules, replace(DAILY, state="proposed")
    assert await store.save(proposed, DEFAULT_LIMITS, by=ALICE, change="proposed")
    assert await begin(stores) == []
    assert not await store.pause_schedule("daily", by=BOB)
    plan = FiringPlan(next=DAILY.timing)
    run_now = store.begin_firing(
        DueSchedule(schedule=proposed), plan, due_at=START + timedelta(hours=1), claimed_until=START
    )
    assert await run_now is None
    armed = [replace(DAILY, owner=owner) for owner in (ALICE, BOB)]
    saved = await asyncio.gather(*(store.save(one, DEFAULT_LIMITS, by=one.owner, change="resumed") for one in armed))
    assert sorted(saved) == [False, True], "it belongs to who was first"
    found = require(await store.find("daily"))
    assert found.owner.person_id == armed[saved.index(True)].owner.person_id
    assert len(await begin(stores)) == 1


async def test_an_old_proposal_no_longer_counts(stores: Stores) -> None:
    limits = ScheduleLimits(per_person=1, per_workspace=1)
    proposed = replace(DAILY, schedule_id="old", state="proposed")
    assert await stores.schedules.save(proposed, limits, by=ALICE, change="proposed")
    assert await save(stores, DAILY, limits=limits) == [False]
    later = replace(DAILY, armed_at=DAILY.armed_at + timedelta(days=PROPOSAL_DAYS, seconds=1))
    assert await save(stores, later, limits=limits) == [True]
    assert await stores.schedules.find("old") is None


async def test_the_clock_of_the_database_tells_when_there_is_work(stores: Stores) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    assert await stores.schedules.find_time_of_work() is None
    await save(stores, replace(ONCE, timing=replace(ONCE.timing, next_local=now + timedelta(hours=1))))
    assert await stores.schedules.find_time_of_work() is None
    await save(stores, replace(ONCE, timing=replace(ONCE.timing, next_local=now - timedelta(hours=1))))
    found = require(await stores.schedules.find_time_of_work())
    assert abs(found - datetime.now(UTC)) < timedelta(minutes=1)
    (due,) = await due_at(stores, found)
    plan = plan_firing(due, found)
    assert await stores.schedules.begin_firing(due, plan, due_at=due.schedule.timing.due_at, claimed_until=found)
    assert await stores.schedules.find_time_of_work() is not None  # its process is gone
    (left,) = await take_over(stores, found + timedelta(seconds=1))
    assert await stores.schedules.find_time_of_work() is None
    await stores.schedules.close(left.firing_id, "fired")


async def test_the_second_time_that_the_clocks_show_fires_then(stores: Stores) -> None:
    second = datetime.fromisoformat("2026-10-25T02:30").replace(fold=1)
    await save(stores, replace(ONCE, timing=Timing(rule="", next_local=second, time_zone="Europe/Berlin")))
    at = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert await begin(stores, at - timedelta(minutes=1)) == []
    (fired,) = await begin(stores, at)
    assert (fired.due_at, fired.missed) == (at, 0)


@pytest.mark.parametrize("change", ["pause", "edit"])
async def test_what_becomes_of_a_firing_whose_schedule_is_changed(stores: Stores, change: str) -> None:
    await save(stores, ONCE)
    (fired,) = await begin(stores)
    if change == "pause":
        assert await stores.schedules.pause_schedule("once", problem="its channel is gone", by=BOB)
    else:
        await save(stores, replace(DAILY, schedule_id="once"))
    assert await stores.schedules.record_announcement(fired, "100.5") is (change == "edit")
    await stores.schedules.close(fired.firing_id, "fired", run_id="r1")
    kept = require(await stores.schedules.find("once"))
    assert kept.state == ("paused" if change == "pause" else "active")


async def test_nothing_fires_again_while_a_firing_is_pending_and_all_that_was_missed_is_one(stores: Stores) -> None:
    await save(stores, DAILY)
    (first,) = await begin(stores)
    assert await begin(stores, START + timedelta(days=2)) == []
    await stores.schedules.close(first.firing_id, "skipped")
    (second,) = await begin(stores, START + timedelta(days=3, hours=1))
    assert (second.due_at, second.missed) == (START + timedelta(days=1), 2)


async def test_a_firing_that_its_process_has_left_is_taken_once_by_another(stores: Stores) -> None:
    await save(stores, DAILY)
    (left,) = await begin(stores)
    assert await stores.schedules.record_announcement(left, "100.5")
    later = START + timedelta(minutes=2)
    assert await take_over(stores, START + timedelta(seconds=30)) == []
    assert await take_over(stores, later, "discord") == [], "that process cannot announce it"
    rounds = await asyncio.gather(*(take_over(stores, later) for _ in range(4)))
    (taken,) = [one for found in rounds for one in found]
    assert (taken.firing_id, taken.message_ref, taken.due_at) == (left.firing_id, "100.5", START)
    await stores.schedules.close(taken.firing_id, "fired", run_id="r1")
    assert await take_over(stores, later + timedelta(days=1)) == []


async def test_what_runs_once_is_gone_after_it_ran(stores: Stores) -> None:
    await save(stores, ONCE)
    (fired,) = await begin(stores)
    assert await stores.schedules.list_schedules(Selection.of_channel(CHANNEL)) == ()
    await stores.schedules.close(fired.firing_id, "fired", run_id="r1")
    assert await stores.schedules.find("once") is None


@pytest.mark.parametrize("change", ["paused", "deleted", "moved"])
async def test_a_change_in_the_last_moment_wins(stores: Stores, change: str) -> None:
    await save(stores, DAILY)
    (due,) = await due_at(stores, START)
    if change == "paused":
        assert await stores.schedules.pause_schedule("daily", by=BOB)
        assert not await stores.schedules.pause_schedule("daily", by=BOB)
    elif change == "deleted":
        assert await stores.schedules.delete("daily", by=BOB)
        assert not await stores.schedules.delete("daily", by=BOB)
    else:
        later = replace(DAILY.timing, next_local=datetime.fromisoformat("2026-11-30T10:00"))
        await save(stores, replace(DAILY, timing=later))
    plan = plan_firing(due, START)
    assert await stores.schedules.begin_firing(due, plan, due_at=START, claimed_until=START) is None
    assert await stores.count("firing") == 0


async def test_somebody_can_run_a_paused_schedule_now_without_moving_its_next_time(stores: Stores) -> None:
    paused = replace(DAILY, state="paused")
    await save(stores, paused)
    now = START - timedelta(hours=3)
    plan = replace(plan_firing(DueSchedule(schedule=paused), now), next=paused.timing)
    fired = await stores.schedules.begin_firing(DueSchedule(schedule=paused), plan, due_at=now, claimed_until=now)
    assert fired is not None
    assert await stores.schedules.find("daily") == paused
    assert (
        await stores.schedules.begin_firing(DueSchedule(schedule=paused), plan, due_at=START, claimed_until=now) is None
    )
    assert [one.firing_id for one in await take_over(stores, START)] == [fired.firing_id]


async def test_a_deleted_schedule_takes_its_firings_along(stores: Stores) -> None:
    await save(stores, DAILY)
    (fired,) = await begin(stores)
    await stores.schedules.delete("daily", by=ALICE)
    assert not await stores.schedules.record_announcement(fired, "100.5")
    await stores.schedules.close(fired.firing_id, "fired", run_id="r1")
    assert await stores.count("firing") == 0


async def test_people_and_workspaces_may_have_so_many(stores: Stores) -> None:
    limits = ScheduleLimits(per_person=2, per_workspace=3)
    of_bob = replace(DAILY, owner=BOB)
    others = [replace(DAILY, schedule_id=f"a{number}") for number in range(3)]
    assert await save(stores, *others, limits=limits) == [True, True, False]
    of_bobs = [replace(of_bob, schedule_id=f"b{number}") for number in range(2)]
    assert await save(stores, *of_bobs, limits=limits) == [True, False]
    assert await save(stores, replace(others[0], task="Changed"), limits=limits) == [True]
    elsewhere = replace(of_bob, schedule_id="c", address=replace(CHANNEL, workspace_id="T2"))
    assert await save(stores, elsewhere, limits=limits) == [True]


async def test_strangers_in_direct_messages_of_discord_use_up_nobody_elses_schedules(stores: Stores) -> None:
    direct = Address(platform="discord", workspace_id="@me", channel_id="D1", thread_key="dm")
    limits = ScheduleLimits(per_person=1, per_workspace=1)
    of_alice = replace(DAILY, address=direct)
    of_bob = replace(of_alice, schedule_id="b", owner=BOB, address=replace(direct, channel_id="D2"))
    assert await save(stores, of_alice, of_bob, replace(of_bob, schedule_id="c"), limits=limits) == [True, True, False]


async def test_schedules_that_may_not_fire_hold_up_no_others(stores: Stores) -> None:
    limits = ScheduleLimits(per_person=100, per_workspace=100)
    quiet = [replace(DAILY, schedule_id=f"q{number}") for number in range(60)]
    later = replace(DAILY.timing, next_local=AT_NINE.next_local + timedelta(minutes=1))
    await save(stores, *quiet, replace(DAILY, timing=later), limits=limits)
    found = await stores.schedules.due_schedules(START + timedelta(hours=1), lambda one: one.schedule_id == "daily")
    assert [one.schedule.schedule_id for one in found] == ["daily"]
    assert 0 < len(await due_at(stores, START + timedelta(hours=1))) < 61


async def test_schedules_are_listed_by_channel_person_and_workspace(stores: Stores) -> None:
    second = replace(DAILY, schedule_id="second", owner=BOB)
    third = replace(second, schedule_id="third", address=replace(CHANNEL, channel_id="C2"))
    await save(stores, DAILY, second, third)

    async def listed(selection: Selection, **page: Any) -> list[str]:
        return [one.schedule_id for one in await stores.schedules.list_schedules(selection, **page)]

    here = Selection.of_channel(CHANNEL)
    assert await listed(here) == ["daily", "second"]
    assert await listed(replace(here, person_id="U2")) == ["second"]
    assert await listed(Selection.of_person("U2", CHANNEL)) == ["second", "third"]
    assert await listed(Selection(workspace_id="T2")) == []
    assert await listed(Selection(), limit=2) == ["daily", "second"]
    assert await listed(Selection(), after=(DAILY.timing.due_at, "second")) == ["third"]


async def fire(stores: Stores, now: datetime) -> Receipt:
    """A firing whose task has been taken in."""
    (fired,) = await begin(stores, now)
    return await take_in(stores, fired)


async def take_in(stores: Stores, fired: Firing) -> Receipt:
    receipt = await stores.say("news", key=fired.dedupe_key, decide=deciding(Accept(is_steering=True)))
    await stores.schedules.close(fired.firing_id, "fired", run_id=receipt.run_id)
    return receipt


@pytest.mark.parametrize("ending", [None, FAILED, asking("Which news?")])
async def test_a_run_that_a_firing_has_only_joined_is_not_its_own(stores: Stores, ending: RunResult | None) -> None:
    await save(stores, DAILY)
    joined: Receipt | None = None
    for day in range(3 if ending else 1):
        lease = await stores.started("what is new?", key=f"m{day}")
        joined = await fire(stores, START + timedelta(days=day))
        if ending is not None:
            assert await stores.finish(lease, ending)
    (due,) = await due_at(stores, START + timedelta(days=3))
    assert (due.runs, due.is_waiting, due.is_failing) == ((), False, False)
    assert require(due.newest).run_id == require(joined).run_id
    plan = plan_firing(due, START + timedelta(days=3))
    assert (bool(plan.note), plan.expires_question) == (ending is None, False), "its task is not done yet"


async def test_an_approval_that_a_user_is_asked_for_outlasts_the_times_of_a_schedule(stores: Stores) -> None:
    await save(stores, DAILY)
    lease = await stores.started("pin it")
    await stores.journal.suspend_run(lease, JournalEntry(), Approval(turn_id="t", calls=(PIN,)))
    await fire(stores, START)
    (skipped,) = await begin(stores, START + timedelta(days=1))
    assert (skipped.run_id, skipped.note) == (lease.run_id, "Skipped: the time before is still being worked on.")
    assert require(await stores.asks.ask_of_run(lease.run_id)).state == "open"


async def test_a_schedule_comes_due_with_the_runs_of_its_newest_firings(stores: Stores) -> None:
    await save(stores, DAILY)
    for day in range(2):
        receipt = await fire(stores, START + timedelta(days=day))
        lease = require(await stores.claims.claim(str(receipt.run_id), "w1"))
        assert await stores.finish(lease, FAILED)
    receipt = await fire(stores, START + timedelta(days=2))
    (due,) = await due_at(stores, START + timedelta(days=3))
    assert [run.status for run in due.runs] == ["queued", "failed", "failed"]
    assert not due.is_waiting
    await save(stores, replace(due.schedule, armed_at=START + timedelta(days=2)))
    (due,) = await due_at(stores, START + timedelta(days=3))
    assert [run.run_id for run in due.runs] == [receipt.run_id]


async def test_the_next_firing_expires_the_question_of_the_one_before(stores: Stores) -> None:
    await save(stores, DAILY)
    receipt = await fire(stores, START)
    lease = require(await stores.claims.claim(str(receipt.run_id), "w1"))
    await stores.finish(lease, asking("Which news?"))
    (skipped,) = await begin(stores, START + timedelta(days=1))
    assert (skipped.run_id, bool(skipped.note)) == (receipt.run_id, True)
    ask = require(await stores.asks.ask_of_run(lease.run_id))
    assert ask.state == "expired"
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert (snapshot.open_ask, snapshot.thread.state) == (None, "idle")
    await stores.schedules.close(skipped.firing_id, "skipped", run_id=skipped.run_id)
    (due,) = await due_at(stores, START + timedelta(days=2))
    assert not due.is_waiting


async def test_the_next_firing_expires_the_approval_of_the_one_before(stores: Stores) -> None:
    await save(stores, DAILY)
    receipt = await fire(stores, START)
    lease = require(await stores.claims.claim(str(receipt.run_id), "w1"))
    await stores.journal.suspend_run(lease, JournalEntry(), Approval(turn_id="t", calls=(PIN,)))
    assert len(await begin(stores, START + timedelta(days=1))) == 1
    assert require(await stores.asks.ask_of_run(lease.run_id)).state == "expired"
    assert require(await stores.conversations.run(lease.run_id)).status == "queued"


@pytest.mark.parametrize(("schedule", "count"), [("daily", FAILURES_MAX + 1), ("incidents", 6)])
async def test_the_newest_firings_are_known_and_all_events_of_some_days(
    stores: Stores, schedule: str, count: int
) -> None:
    await save(stores, DAILY, HOOK)
    due = DueSchedule(schedule=require(await stores.schedules.find(schedule)))
    plan = FiringPlan(next=due.schedule.timing)
    for hour in range(1, 7):
        at, until = START + timedelta(hours=hour), START + timedelta(days=1)
        fired = require(await stores.schedules.begin_firing(due, plan, due_at=at, claimed_until=until))
        other = at - timedelta(seconds=1)
        assert await stores.schedules.begin_firing(due, plan, due_at=other, claimed_until=until) is None
        await stores.schedules.close(fired.firing_id, "fired")
        assert await stores.schedules.begin_firing(due, plan, due_at=at, claimed_until=until) is None
    assert await stores.count("firing") == count


async def test_forgotten_people_and_conversations_take_their_schedules_along(stores: Stores) -> None:
    thread = await stores.conversations.create(ADDRESS)
    in_thread = replace(DAILY, schedule_id="thread", owner=BOB, thread_id=thread.thread_id)
    kept = replace(in_thread, schedule_id="kept", thread_id=None)
    await save(stores, DAILY, in_thread, kept)
    await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    assert {one.schedule_id for one in await stores.schedules.list_schedules(Selection.of_channel(CHANNEL))} == {
        "thread",
        "kept",
    }
    await stores.conversations.delete_thread(thread.thread_id, by=BOB)
    assert {one.schedule_id for one in await stores.schedules.list_schedules(Selection.of_channel(CHANNEL))} == {"kept"}


async def test_a_conversation_that_is_deleted_for_its_age_leaves_its_schedule(stores: Stores) -> None:
    thread = await stores.conversations.create(ADDRESS)
    await save(stores, replace(DAILY, thread_id=thread.thread_id))
    await stores.conversations.delete_thread(thread.thread_id)
    assert await stores.schedules.find("daily") == DAILY
    assert await stores.installations.has_threads_in("slack", "T1", "C1")  # an organisation's token still reaches it


async def test_a_run_knows_the_schedules_that_its_requester_sees(stores: Stores) -> None:
    elsewhere = replace(CHANNEL, channel_id="C2")
    mine = replace(DAILY, schedule_id="mine", address=elsewhere, owner=replace(ALICE, time_zone="UTC"))
    foreign = replace(DAILY, schedule_id="foreign", address=elsewhere, owner=BOB)
    await save(stores, DAILY, mine, foreign)
    receipt = await stores.say("hello", person=replace(ALICE, time_zone="Europe/Berlin"))
    loaded = require(await stores.conversations.load_run(str(receipt.run_id)))
    assert {one.schedule_id for one in loaded.schedules} == {"daily", "mine"}
    assert isinstance(loaded.run.requester, Person)
    assert loaded.run.requester.time_zone == "Europe/Berlin"


HOOK = replace(DAILY, schedule_id="incidents", timing=Trigger(kind="hook", secret="n1"))
CALL = TriggerEvent(kind="hook", address=CHANNEL, key="k1", group="disk", title="Disk full", body="{}")


async def call(stores: Stores, event: TriggerEvent = CALL, hook: Schedule = HOOK) -> Firing | EventRefusal:
    return await stores.schedules.begin_event_firing(hook, event, claim_seconds=60)


async def test_an_event_begins_once_however_many_processes_hear_it(stores: Stores) -> None:
    await save(stores, HOOK)
    found = await asyncio.gather(*(call(stores) for _ in range(4)))
    (firing,) = [one for one in found if isinstance(one, Firing)]
    assert sorted(one for one in found if isinstance(one, str)) == ["duplicate"] * 3
    assert (firing.schedule, firing.title, firing.body, firing.address) == (HOOK, "Disk full", "{}", CHANNEL)
    await stores.schedules.close(firing.firing_id, "fired", run_id="r1")
    assert await call(stores) == "duplicate"
    assert isinstance(await call(stores, replace(CALL, key="k2")), Firing)


async def test_triggers_are_never_due_and_found_by_their_channel(stores: Stores) -> None:
    post = replace(HOOK, schedule_id="post", timing=Trigger(kind="post"), address=replace(CHANNEL, channel_id="C2"))
    await save(stores, DAILY, HOOK, post, replace(HOOK, schedule_id="paused", state="paused"))
    assert {one.schedule_id for one in await stores.schedules.list_triggers()} == {"incidents", "post"}
    assert await stores.schedules.list_triggers(post.address) == (post,)
    far = datetime(9000, 1, 1, tzinfo=UTC)
    assert [one.schedule.schedule_id for one in await due_at(stores, far)] == ["daily"]


@pytest.mark.parametrize("change", ["paused", "deleted", "made again"])
async def test_an_event_begins_nothing_for_a_trigger_that_is_not_armed_any_more(stores: Stores, change: str) -> None:
    await save(stores, HOOK)
    match change:
        case "paused":
            await stores.schedules.pause_schedule("incidents", by=BOB)
        case "deleted":
            await stores.schedules.delete("incidents", by=BOB)
        case _:
            await save(stores, replace(HOOK, timing=Trigger(kind="hook", secret="n2")))
    assert await call(stores) == "gone"


async def test_what_belongs_together_goes_to_one_thread(stores: Stores) -> None:
    await save(stores, HOOK)
    first = await call(stores)
    early = await call(stores, replace(CALL, key="k2"))
    assert isinstance(first, Firing)
    assert isinstance(early, Firing)
    assert await stores.schedules.find_group_thread(first) == first
    assert await stores.schedules.find_group_thread(early) is None, "the thread is not open yet"
    await stores.schedules.record_announcement(first, "100.5")
    placed = await stores.schedules.find_group_thread(early)
    assert placed == replace(early, thread_key="100.5")
    await stores.schedules.record_announcement(placed, "100.6")
    later, other = await call(stores, replace(CALL, key="k3")), await call(stores, replace(CALL, key="k4", group="b"))
    assert isinstance(later, Firing)
    assert isinstance(other, Firing)
    assert await stores.schedules.find_group_thread(later) == replace(later, thread_key="100.5")
    assert await stores.schedules.find_group_thread(other) == other
    await stores.schedules.record_announcement(later, "100.7")  # it opened another thread, because that one was gone
    last = require_type(await call(stores, replace(CALL, key="k5")), Firing)
    assert await stores.schedules.find_group_thread(last) == replace(last, thread_key="100.7")


async def test_a_trigger_whose_last_tasks_failed_begins_nothing(stores: Stores) -> None:
    await save(stores, HOOK)
    for number in range(3):
        firing = require_type(await call(stores, replace(CALL, key=str(number))), Firing)
        receipt = await take_in(stores, firing)
        lease = require(await stores.claims.claim(str(receipt.run_id), "w1"))
        assert await stores.finish(lease, FAILED)
    assert await call(stores, replace(CALL, key="4")) == "failing"
    await save(stores, replace(HOOK, armed_at=datetime.now(UTC) + timedelta(seconds=5)))
    assert isinstance(await call(stores, replace(CALL, key="5")), Firing), "somebody armed it again"


async def test_one_run_of_several_events_is_one_failure(stores: Stores) -> None:
    await save(stores, HOOK)
    firings = [require_type(await call(stores, replace(CALL, key=key)), Firing) for key in "012"]
    receipts = [await take_in(stores, firing) for firing in firings]
    lease = require(await stores.claims.claim(str(receipts[0].run_id), "w1"))
    assert await stores.finish(lease, FAILED)
    assert isinstance(await call(stores, replace(CALL, key="3")), Firing)


async def test_what_may_happen_again_is_known_for_some_time_only(stores: Stores) -> None:
    await save(stores, HOOK)
    unnamed = replace(CALL, repeat_seconds=600)
    assert isinstance(await call(stores, unnamed), Firing)
    assert await call(stores, unnamed) == "duplicate"
    assert isinstance(await call(stores, replace(unnamed, repeat_seconds=0)), Firing)


POSTS = replace(HOOK, timing=Trigger(kind="post"), armed_at=datetime.now(UTC) - timedelta(days=5))


async def post(stores: Stores, key: str, minutes: float) -> str:
    """Returns what becomes of a post that was written so many minutes ago."""
    happened_at = datetime.now(UTC) - timedelta(minutes=minutes)
    event = TriggerEvent(kind="post", address=CHANNEL, key=key, happened_at=happened_at)
    firing = await call(stores, event, POSTS)
    return firing.event_key if isinstance(firing, Firing) else firing


async def test_all_that_was_missed_begins_one_task_and_pauses_nothing(stores: Stores) -> None:
    await save(stores, POSTS)
    assert await post(stores, "known", 59) == "known"
    missed = [await post(stores, f"p{number}", minutes) for number, minutes in enumerate(range(3600, 60, -50))]
    assert missed == ["missed:p0", *["duplicate"] * 70]
    assert await post(stores, "known", 61) == "duplicate"
    assert await post(stores, "p9", 59) == "p9"


async def test_events_count_in_the_hour_in_which_they_happened(stores: Stores) -> None:
    await save(stores, POSTS)
    of_hour = [await post(stores, f"a{number}", 30 - number / 3) for number in range(EVENTS_PER_HOUR_MAX)]
    assert "too_often" not in of_hour
    assert await post(stores, "b", 0) == "too_often"
    assert await post(stores, "c", 45) == "c"


async def test_whoever_had_a_name_first_keeps_it_and_what_is_deleted_is_not_changed(stores: Stores) -> None:
    elsewhere = replace(HOOK, owner=BOB, address=replace(CHANNEL, workspace_id="T2"))
    store = stores.schedules
    made = (store.save(one, DEFAULT_LIMITS, by=one.owner, change="created") for one in (HOOK, elsewhere))
    assert sorted(await asyncio.gather(*made)) == [False, True]
    await store.delete("incidents", by=ALICE)
    assert not await store.save(HOOK, DEFAULT_LIMITS, by=ALICE, change="changed")
    assert await stores.schedules.find("incidents") is None
