"""Schedules and hooks as people change them in words and with buttons, and operators on the command line."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import Outcome
from bots.inbound.commands import schedules as told
from bots.settings import Settings
from bots.setup import hooks
from core.domain.actions import ActorContext
from core.domain.errors import ConfigurationError
from core.domain.schedules import DEFAULT_LIMITS, Schedule, ScheduleState, Timing, build_commands, parse_when
from core.domain.threads import Person
from storage.sql.database import opened_database
from storage.sql.stores.schedules import SqlSchedules
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, command
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require, require_type

ADMINS = AccessPolicy(workspaces=("*",), admins=("U1",))
Words = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def say(stage: ReceiverStage) -> Words:
    """A person gives the command `schedules` with these words. Alice is an admin."""
    commands = stage.receiver.commands
    served = replace(commands.schedules, describe_hook=lambda hook: f"address of {hook.schedule_id}")
    admin = replace(commands.admin, policy=ADMINS)
    stage.with_policy(ADMINS)
    stage.receiver = replace(stage.receiver, commands=replace(commands, schedules=served, admin=admin))
    keys = iter(range(1000))

    async def say(words: str, person: Person = ALICE, *, platform: str = "slack") -> Outcome:
        called = command("schedules", f"k{next(keys)}", argument=words)
        address = replace(called.address, platform=platform)
        return await stage.receiver.receive(replace(called, address=address, person=person))

    return say


def store(stage: ReceiverStage) -> SqlSchedules:
    return SqlSchedules(stage.world.database)


async def state_of(stage: ReceiverStage, schedule_id: str) -> ScheduleState | None:
    found = await store(stage).find(schedule_id)
    return found and found.state


async def armed(stage: ReceiverStage, state: ScheduleState = "active") -> str:
    now = datetime.now(UTC)
    schedule = Schedule(
        schedule_id="k7m2xqab",
        address=HERE,
        owner=ALICE,
        task="Say it",
        timing=parse_when("PT2H", now=now, time_zone="UTC"),
        state=state,
        armed_at=now,
    )
    change = "proposed" if state == "proposed" else "created"
    assert await store(stage).save(schedule, DEFAULT_LIMITS, by=ALICE, change=change)
    return schedule.schedule_id


async def test_an_admin_makes_a_hook_that_everybody_can_pause(stage: ReceiverStage, say: Words) -> None:
    assert (await say("hook incidents Find out why.", BOB)).notice != "address of incidents"
    made = await say("hook Incidents key=alert.id Find out why.")
    assert (made.notice, made.is_private) == ("address of incidents", True)
    assert made.commands == build_commands("incidents")
    hook = require(await store(stage).find("incidents"))
    assert (hook.task, hook.owner, hook.address.thread_key) == ("Find out why.", ALICE, "")
    assert (await say("hook incidents Something else.")).notice == told.NAME_TAKEN
    assert (await say("hook incidents")).notice == "address of incidents"
    for words in ("run", "delete", "resume"):
        assert (await say(f"{words} incidents", BOB)).notice == told.HOOK_IS_FOR_ADMINS
    assert "incidents" in (await say("list", BOB)).notice
    assert "admin deletes it" in (await say("edit incidents", BOB)).notice
    await say("pause incidents", BOB)
    assert await state_of(stage, "incidents") == "paused"
    assert (await say("resume incidents")).commands == build_commands("incidents")
    assert "runs now" in (await say("run incidents")).notice
    assert "beginning already" in (await say("run incidents")).notice
    await say("delete incidents")
    assert await state_of(stage, "incidents") is None
    assert (await say("pause incidents")).notice == told.NO_SUCH.format("incidents")


async def test_a_paused_reminder_whose_time_has_passed_is_done_by_what_the_notice_names(
    stage: ReceiverStage, say: Words
) -> None:
    schedule_id = await armed(stage)
    missed = require(await store(stage).find(schedule_id))
    at_nine = replace(require_type(missed.timing, Timing), next_local=datetime.fromisoformat("2026-01-05T09:00"))
    missed = replace(missed, state="paused", timing=at_nine)
    await store(stage).save(missed, DEFAULT_LIMITS, by=ALICE, change="changed")
    remedy = f"Its time has passed: `schedules run {schedule_id}` does it now, or tell me a new one."
    assert (await say(f"resume {schedule_id}")).notice == remedy == missed.describe_remedy(datetime.now(UTC))
    assert (await say(f"run {schedule_id}")).notice == "It runs now."
    assert (await say("list")).notice == told.NONE, "it was its last time"


async def test_an_app_and_a_stranger_change_nothing(stage: ReceiverStage, say: Words) -> None:
    schedule_id = await armed(stage)
    deletion = command("schedules", "other", argument=f"delete {schedule_id}")
    app = replace(
        deletion, person=Person(person_id="app:A1", name="Bot"), actor=ActorContext(app_ids=frozenset({"A1"}))
    )
    await stage.receiver.receive(app)
    elsewhere = replace(HERE, channel_id="C2")
    there = await stage.receiver.receive(replace(deletion, address=elsewhere, person=BOB, dedupe_key="there"))
    assert there.notice == told.NO_SUCH.format(schedule_id)
    assert await state_of(stage, schedule_id) == "active"


async def test_operators_make_list_try_and_remove_hooks(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, public_url="https://bot.example.com")
    assert await hooks.list_hooks(settings) == hooks.NONE
    made = await hooks.add_hook(settings, "Incidents", "slack/T1/C1", "U1", "Find out why.")
    assert "https://bot.example.com/hooks/incidents" in made
    (secret,) = re.findall(r"Secret: (\S+)", made)
    async with opened_database(settings.storage_url) as database:
        hook = require(await SqlSchedules(database).find("incidents"))
    assert (hook.timing.rule, secret in repr(hook)) == (f"ON:HOOK {secret}", False)
    assert not (tmp_path / "link.secret").exists()  # deleting it revokes links and nothing else
    with pytest.raises(ConfigurationError, match="of that name already"):
        await hooks.add_hook(settings, "incidents", "slack/T1/C1", "U1", "Find out why.")
    assert "incidents Find out why." in (await hooks.list_hooks(settings)).replace("`", "")
    assert "begins its task" in await hooks.try_hook(settings, "incidents")
    with pytest.raises(ConfigurationError, match="beginning already"):
        await hooks.try_hook(settings, "incidents")
    assert await hooks.remove_hook(settings, "INCIDENTS") == "Removed: INCIDENTS."
    with pytest.raises(ConfigurationError, match="There is no hook"):
        await hooks.try_hook(settings, "incidents")
    for name, channel in (("x", "slack/T1/C1"), ("incidents", "slack/C1"), ("incidents", "teams/T1/C1")):
        with pytest.raises(ConfigurationError):
            await hooks.add_hook(settings, name, channel, "U1", "Find out why.")
