"""What the runner of schedules does with a time that has come, over ports in memory."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import Outcome
from bots.inbound.schedules import TOO_OFTEN, ScheduleRunner
from core.domain.actions import ActorContext, IncomingMessage
from core.domain.errors import StorageUnavailable, SurfaceRefused, SurfaceUnavailable
from core.domain.schedules import FAILING, DueSchedule, Firing, Schedule, Timing, Trigger, TriggerEvent, format_time
from core.domain.threads import Address, Person

NOW = datetime.now(UTC)
CHANNEL = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="")
ALICE = Person(person_id="U1", name="alice")
AT_NINE = Timing(rule="FREQ=DAILY;BYHOUR=9", next_local=datetime.fromisoformat("2026-11-30T09:00"), time_zone="UTC")
DAILY = Schedule(
    schedule_id="s",
    address=CHANNEL,
    owner=ALICE,
    task="Post the news",
    timing=AT_NINE,
    armed_at=NOW - timedelta(days=1),
)
ON_EMOJI = replace(DAILY, timing=Trigger(kind="emoji", pattern="eyes"))
OVER_HTTP = replace(DAILY, address=replace(CHANNEL, platform="api", thread_key="t"))
FIRING = Firing(firing_id="f", schedule=DAILY, due_at=NOW + timedelta(hours=1), event_key="")  # not late when this runs
OF_HOOK = replace(FIRING, schedule=replace(DAILY, timing=Trigger(kind="hook")), message_ref="5.0", title="x")
BUSY = Outcome(notice="Busy.", is_ignored=True)


@dataclass
class Ports:
    """A store with one pending firing, chats, and the reception. `events` has what happened, in order."""

    firing: Firing = FIRING
    outcome: Outcome = field(default_factory=lambda: Outcome(run_id="r"))
    refusal: str | Exception = ""
    is_there: bool = True
    is_admitted: bool = True
    is_served: bool = True
    is_due: bool = False
    is_taken: bool = False
    waiting: tuple[Schedule, ...] = ()
    error: Exception | None = None
    event_refusal: str = "begun"
    events: list[str] = field(default_factory=list[str])
    requests: list[IncomingMessage] = field(default_factory=list[IncomingMessage])

    def runner(self) -> ScheduleRunner:
        return ScheduleRunner(
            schedules=self,
            conversations=self,
            chats=SimpleNamespace(
                post_announcement=self.post,
                fetch_actor_context=self.fetch_actor_context,
                post_notice=self.post_notice,
                send_direct_message=self.send_direct_message,
            ),
            admits=self.admits,
            receive=self.receive,
            serves=lambda _platform: self.is_served,
            closed_reasons=lambda _platform: {"closed": "the channel is archived"},
        )

    async def list_triggers(self, _address: Address | None = None) -> tuple[Schedule, ...]:
        if self.error and _address:
            raise self.error
        return self.waiting

    async def find_time_of_work(self) -> datetime:
        return NOW

    async def due_schedules(self, _now: datetime, _may_fire: object) -> tuple[DueSchedule, ...]:
        return (DueSchedule(schedule=DAILY),) if self.is_due else ()

    async def begin_firing(self, _due: DueSchedule, _plan: object, **_more: object) -> Firing | None:
        return None if self.is_taken else self.firing

    async def claim_pending_firings(
        self, _now: datetime, _until: datetime, platforms: Collection[str]
    ) -> tuple[Firing, ...]:
        return () if self.is_due or self.firing.schedule.address.platform not in platforms else (self.firing,)

    async def record_announcement(self, _firing: Firing, _message_ref: str) -> bool:
        return self.is_there

    async def post(self, _firing: Firing, text: str, *, may_be_posted: bool, precondition: object) -> str:
        if isinstance(self.refusal, Exception):
            raise self.refusal
        if self.refusal:
            raise SurfaceRefused("no", code=self.refusal)
        self.events.append(f"announces{' or finds' * may_be_posted}: {text}")
        return "7.0"

    async def close(self, firing_id: str, state: str, *, run_id: str | None) -> None:
        self.events.append(f"{state} {run_id}")

    async def pause_schedule(self, _schedule_id: str, *, problem: str, by: Person) -> None:
        self.events.append(f"pauses: {problem}")

    async def begin_event_firing(
        self, _schedule: Schedule, event: TriggerEvent, *, claim_seconds: float
    ) -> Firing | str:
        self.events.append(f"begins for {event.message_ref}{' unclaimed' * (claim_seconds == 0)}")
        return self.event_refusal or self.firing

    async def run_with_thread(self, _run_id: str) -> Any:
        return None, SimpleNamespace(address=replace(CHANNEL, thread_key="6.0"))

    async def fetch_actor_context(self, _address: Address, _person_id: str) -> ActorContext:
        return ActorContext()

    async def post_notice(self, address: Address, text: str) -> None:
        self.events.append(f"tells {address.thread_key}: {text.rpartition(' · ')[2]}")

    async def send_direct_message(self, _address: Address, person_id: str, text: str) -> None:
        assert DAILY.describe_remedy(NOW) in text
        self.events.append(f"tells {person_id}")

    async def admits(self, _request: object) -> bool:
        return self.is_admitted

    async def receive(self, request: Any) -> Outcome:
        self.requests.append(request)
        return self.outcome


@pytest.mark.parametrize(
    ("ports", "events", "place"),
    [
        (Ports(), ["announces or finds", "fired r"], ("7.0", "7.0")),
        (Ports(is_due=True), ["announces:", "fired r"], ("7.0", "7.0")),
        (Ports(is_due=True, is_taken=True), [], None),
        (Ports(replace(FIRING, message_ref="5.0")), ["fired r"], ("5.0", "5.0")),
        (Ports(replace(FIRING, schedule=ON_EMOJI, message_ref="5.0")), ["fired r"], ("5.0", "")),
        (Ports(OF_HOOK), ["fired r"], ("5.0", "5.0")),
        (Ports(replace(FIRING, schedule=OVER_HTTP, message_ref="5.0")), ["fired r"], ("t", "")),
        (Ports(outcome=BUSY), ["announces", "tells 7.0: Busy.", "skipped None"], ("7.0", "7.0")),
        (Ports(outcome=Outcome(is_ignored=True)), ["announces", "skipped None"], ("7.0", "7.0")),
        (Ports(is_there=False), ["announces"], None),
        (Ports(is_served=False), [], None),
        (Ports(is_admitted=False), ["tells U1", "pauses: "], None),
        (Ports(refusal="closed"), ["tells U1", "pauses: the channel is archived"], None),
        (Ports(refusal=SurfaceUnavailable("no", code="invalid_auth")), [], None),
        (Ports(refusal="other"), ["tells U1", "pauses: the chat platform refused it: no"], None),
        (Ports(replace(FIRING, note="busy", run_id="r0")), ["tells 6.0: busy", "skipped r0"], None),
        (Ports(replace(FIRING, note="busy")), ["skipped None"], None),
        (Ports(replace(FIRING, note=FAILING, run_id="r0")), ["tells U1", f"pauses: {FAILING}"], None),
        (Ports(replace(FIRING, note=FAILING), is_due=True), ["tells U1", f"pauses: {FAILING}"], None),
    ],
)  # fmt: skip
async def test_a_time_that_has_come(ports: Ports, events: list[str], place: tuple[str, str] | None) -> None:
    await ports.runner().fire_due_schedules()
    assert [event[: len(known)] for event, known in zip(ports.events, events, strict=True)] == events
    requests = [(request.address.thread_key, request.message_ref) for request in ports.requests]
    assert requests == ([] if place is None else [place])


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_hook_begins_in_a_process_that_can_announce_it(is_served: bool) -> None:
    ports = Ports(OF_HOOK, is_served=is_served, event_refusal="")
    runner = ports.runner()
    event = TriggerEvent(kind="hook", address=CHANNEL, key="k")
    assert await runner.fire_for_event(OF_HOOK.schedule, event) is None
    await asyncio.gather(*runner.tasks)
    assert ports.events == (["begins for ", "fired r"] if is_served else ["begins for  unclaimed"])


ONCE = replace(FIRING, schedule=replace(DAILY, timing=replace(AT_NINE, rule="")), due_at=NOW - timedelta(hours=1))
BY_ALICE, MANAGES = "Scheduled by **alice**", "`schedules` manages it"
SCHEDULED = "This is the scheduled task that is due now"


@pytest.mark.parametrize(
    ("firing", "announced", "requested"),
    [
        (FIRING, f"{BY_ALICE} · every day · {MANAGES}", f"{SCHEDULED} (every day). Do it:\n"),
        (replace(FIRING, missed=2),
         f"{BY_ALICE} · every day · 3 times came while I was away or quiet, this is for all of them · {MANAGES}",
         f"{SCHEDULED} (every day). It stands for 3 times. Do it:\n"),
        (ONCE, f"{BY_ALICE} · planned for {format_time(ONCE.due_local)} · {MANAGES}", f"{SCHEDULED} (once). Do it:\n"),
        (replace(OF_HOOK, message_ref=""), "**x** · Post the news · from the hook `s` of alice", "A program called"),
        (replace(OF_HOOK, message_ref="", title="x\ny"), "**x** · y · from the hook `s` of alice", "A program called"),
        (replace(FIRING, schedule=ON_EMOJI, message_ref="5.0"), None,
         "This is to be done now (for every message with the emoji eyes) about the message above that has the emoji:"),
        (replace(FIRING, schedule=replace(DAILY, timing=Trigger(kind="post")), message_ref="5.0"), None,
         "This is to be done now (for every new post) about the first message above:\n"),
        (replace(FIRING, schedule=replace(DAILY, timing=Trigger(kind="post")), message_ref="5.0", event_key="missed:5"),
         None,
         "This is to be done now (for every new post) about the first message above, once for everything that"),
    ],
)  # fmt: skip
async def test_what_is_announced_and_requested(firing: Firing, announced: str | None, requested: str) -> None:
    ports = Ports(firing)
    await ports.runner().fire_due_schedules()
    assert ports.events == [f"announces or finds: {announced}"] * (announced is not None) + ["fired r"]
    assert ports.requests[0].text.startswith(requested)


EYES = TriggerEvent(kind="emoji", address=CHANNEL, key="k", message_ref="5.0", emoji="eyes", happened_at=NOW)


@pytest.mark.parametrize(("is_located", "message_ref"), [(False, "5.0"), (True, "6.0")])
async def test_an_event_is_looked_up_once_if_a_schedule_waits_for_it(is_located: bool, message_ref: str) -> None:
    lookups = list[str]()

    async def locate() -> TriggerEvent:
        lookups.append("looks")
        return replace(EYES, message_ref="6.0")

    ports = Ports(waiting=(ON_EMOJI, replace(ON_EMOJI, schedule_id="s2"), replace(DAILY, schedule_id="s3")))
    runner = ports.runner()
    await runner.handle_trigger_event(EYES, locate if is_located else None)
    await runner.close()
    assert ports.events == [f"begins for {message_ref}"] * 2
    assert lookups == ["looks"] * is_located
    await runner.handle_trigger_event(replace(EYES, emoji="tada"), locate)
    assert lookups == ["looks"] * is_located


async def test_what_an_app_did_begins_nothing_unless_the_app_is_allowed() -> None:
    async def locate() -> TriggerEvent:
        return replace(EYES, app_ids=frozenset({"A1"}))

    ports = Ports(waiting=(ON_EMOJI,))
    await ports.runner().handle_trigger_event(EYES, locate)
    assert ports.events == []
    await replace(ports.runner(), apps=("A1",)).handle_trigger_event(EYES, locate)
    assert ports.events == ["begins for 5.0"]


@pytest.mark.parametrize(
    ("happened_at", "is_new"),
    [(None, True), *((ON_EMOJI.armed_at - timedelta(seconds=seconds), seconds < 60) for seconds in (59, 60))],
)
async def test_only_an_event_after_the_trigger_was_armed_counts(happened_at: datetime | None, is_new: bool) -> None:
    ports = Ports(waiting=(ON_EMOJI,))
    await ports.runner().handle_trigger_event(replace(EYES, happened_at=happened_at))
    assert ports.events == ["begins for 5.0"] * is_new


async def test_a_trigger_that_sets_itself_off_is_given_up_once() -> None:
    ports = Ports(waiting=(ON_EMOJI,), event_refusal="too_often")
    runner = ports.runner()
    for _ in range(2):
        await runner.handle_trigger_event(EYES)
    await asyncio.gather(*runner.tasks)
    assert ports.events == ["begins for 5.0"] * 2 + ["tells U1", f"pauses: {TOO_OFTEN}"]


@pytest.mark.parametrize("is_watched", [True, False])
async def test_an_event_that_cannot_be_stored_comes_again_where_schedules_wait(is_watched: bool) -> None:
    ports = Ports(error=StorageUnavailable("away"), waiting=(ON_EMOJI,) if is_watched else ())
    runner = ports.runner()
    await runner.fire_due_schedules()
    if is_watched:
        with pytest.raises(StorageUnavailable):
            await runner.handle_trigger_event(EYES)
    else:
        await runner.handle_trigger_event(EYES)
