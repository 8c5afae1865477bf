"""Tests that several bots and workers that freeze and resume show people the same as one healthy process."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import text

from core.failpoints import Failpoint
from storage.sql.stores.run_claims import WORKER_GONE_SECONDS
from tests.chaos.crew import Crew, crew
from tests.chaos.harness import PlatformName
from tests.chaos.invariants import check, settle_and_check
from tests.servers import redis


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_conversation_goes_on_at_whichever_worker(
    platform: PlatformName,
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew(platform, postgresql_url, redis_url) as told:
        await told.start()
        first = await told.say("Work", "a1")
        await settle_and_check(told)
        for number in range(2, 20):  # either of the two workers may claim a run
            await told.say("Work", f"a{number}", thread_id=first.thread_id)
            await settle_and_check(told)
            if all("takes up run" in worker.log() for worker in told.workers):
                break
        else:
            raise AssertionError(told.report())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Stream", pytest.param("Nap", marks=pytest.mark.long)])
async def test_a_worker_that_was_asleep_writes_nothing_when_it_wakes(
    kind: str,
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url) as told:
        await told.start()
        await told.say(kind, "a1")
        sleeper = await told.executor()
        if kind == "Nap":
            await told.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")
        sleeper.pause()
        (other,) = told.others(sleeper)
        await told.until(lambda: "attempt 2" in other.log(), "another takes it up", seconds=60)
        await told.until_rows(
            "SELECT 1 FROM worker HAVING"  # noqa: S608 - a number of our own
            f" extract(epoch FROM now()) - min(heartbeat_at) > {WORKER_GONE_SECONDS}",
            "it is asleep for longer than its lease",
        )
        sleeper.resume()
        await settle_and_check(told)
        await _is_still_so(told)
        assert not await _written_by_old_attempts(told)


async def _written_by_old_attempts(told: Crew) -> list[tuple[object, ...]]:
    """Returns events of an attempt that were stored after the first event of a later attempt."""
    return await told.rows(
        "SELECT a.n FROM run_event a JOIN run_event b ON a.run_id = b.run_id"
        " WHERE a.attempt < b.attempt AND a.created_at > b.created_at"
    )


async def _is_still_so(told: Crew) -> None:
    """Checks that the resumed worker handles another message and leaves older messages unchanged."""
    await told.say("Hello", "b1")
    await told.say("Work", "b2")
    await settle_and_check(told)


@pytest.mark.slow
async def test_a_second_bot_changes_nothing_that_people_see(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, bots=2) as told:
        await told.start()
        told.stage.platform.misbehave("duplicate", times=4)
        for number in range(6):
            await told.say("Hello" if number % 2 else "Work", f"a{number}")
        await settle_and_check(told)
        told.stage.platform.misbehave("reorder", seconds=0.5)
        for number in range(4):
            await told.say("Hello", f"b{number}")
        await settle_and_check(told)


@pytest.mark.slow
async def test_a_second_bot_in_discord_changes_nothing_that_people_see(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("discord", postgresql_url, redis_url, bots=2) as told:
        await told.start()
        for number in range(4):
            await told.say("Hello" if number % 2 else "Work", f"a{number}")
        await settle_and_check(told)


@pytest.mark.slow
async def test_a_rough_platform_is_borne_by_all(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, bots=2) as told:
        await told.start()
        platform = told.stage.platform
        platform.misbehave("rate_limit", times=8, seconds=1)
        await told.say("Work", "a1")
        await told.say("Stream", "a2")
        platform.misbehave("error_after", method="chat.postMessage", times=2)
        await told.say("Hello", "a3")
        platform.misbehave("drop_connection")
        await told.say("Hello", "a4")
        platform.misbehave("timeout_after", method="chat.postMessage", times=1)
        await told.say("Hello", "a5")
        await settle_and_check(told)


async def test_a_worker_that_is_asked_to_end_finishes_its_turn(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, drain_seconds="30") as told:
        await told.start()
        await told.say("Work", "a1")
        leaver = await told.executor()
        await told.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")
        leaver.terminate()
        assert await leaver.ended(60) == 0
        await settle_and_check(told)
        assert "attempt 2" in told.others(leaver)[0].log()
        assert told.stage.workspace_file("marks.txt").split() == ["a1"], "the command ran once"
        assert "restarted while this ran" not in str(told.stage.script.requests)


@pytest.mark.slow
async def test_a_worker_waits_only_so_long_for_a_turn(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, drain_seconds="0.5") as told:
        await told.start()
        await told.say("Nap", "a1")
        leaver = await told.executor()
        await told.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")
        leaver.terminate()
        assert await leaver.ended(60) == 0
        await settle_and_check(told)
        assert "restarted while this ran" in str(told.stage.script.requests)


@pytest.mark.slow
async def test_a_bot_that_is_asked_to_end_finishes_what_it_posts(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, workers=1) as told:
        await told.start()
        told.stage.platform.misbehave("slow", method="files.upload", times=1, seconds=2)
        await told.say("Work", "a1")
        await told.until(lambda: told.stage.shows("Done a1."), "the answer is there")
        told.bots[0].terminate()
        assert await told.bots[0].ended(60) == 0
        assert not await told.rows("SELECT run_id FROM rendering WHERE is_open"), told.report()
        await settle_and_check(told)


@pytest.mark.slow
async def test_the_check_sees_what_is_lost_doubled_or_left_over(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("slack", postgresql_url, redis_url, workers=1) as told:
        await told.start()
        said = await told.say("Work", "a1")
        await settle_and_check(told)
        told.told.append(replace(said, token="never", message_id="0.0"))
        with pytest.raises(AssertionError, match="never has 0 answers"):
            await check(told)
        told.told[:] = [replace(said, files=("a1.txt", "lost.txt"))]
        with pytest.raises(AssertionError, match=r"lost\.txt came 0 times"):
            await check(told)
        told.told[:] = [said]
        await told.database.write(
            Failpoint("test.forge"),
            lambda c: c.execute(text("UPDATE run SET status = 'running'")).close(),
        )
        with pytest.raises(AssertionError, match="have the runs"):
            await check(told)
