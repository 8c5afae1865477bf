"""What is loaded, and what is measured meanwhile."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from statistics import median

from core.tasks import spawn
from storage.redis.streams import create_redis_client
from tests.bench.figure import note, percentile
from tests.load.fleet import Fleet, fleet

MENTIONS = """
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Good morning."
        delay_seconds: 0.05
"""
ASKING = """
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    steps:
      - calls:
          - name: ask
            arguments: {text: "Which one?"}
"""
CROWD = 20
CHUNKS_A_SECOND = 20
EVENTS_A_SECOND_MAX = 10


def streaming(chunks: int) -> str:
    return f"""
conversations:
  - name: stream
    when: {{user: {{contains: "Hello"}}}}
    steps:
      - text: "{"word " * chunks}"
        chunk_characters: 5
        chunk_delay_seconds: {1 / CHUNKS_A_SECOND}
"""


async def mentions(*, a_second: float, seconds: float, workers: int = 2) -> Mapping[str, float]:
    """Mentions at a fixed pace, whatever the program makes of them: half in Slack's workspaces, half in Discord's
    servers, in each of them in turn."""
    async with fleet(MENTIONS, workers=workers) as told:
        before, began = told.cpu_seconds(), time.monotonic()
        said = int(a_second * seconds)
        opened: dict[str, float] = {}
        talking = [spawn(_say(told, n, began + n / a_second, opened), name="say") for n in range(said)]
        await asyncio.gather(*talking)
        ended_saying = time.monotonic() - began
        await told.is_done(said)
        took, after = time.monotonic() - began, told.cpu_seconds()
        _tell_cpu(before, after, took)
        runs = await told.count("SELECT count(*) FROM run")
        assert runs == said, f"{said} mentions made {runs} runs"
        answers = await told.count("SELECT count(*) FROM delivery WHERE slot = 'answer' AND state = 'delivered'")
        assert answers == said, f"{said} mentions got {answers} answers"
        await _is_everywhere(told, said)
        slack, discord = told.acks.waits_ms, _discord_waits(told, opened)
        note(f"said in {ended_saying:.1f} s, all done after {took:.1f} s; {workers} workers")
        return {
            "load_ack_p95_ms": percentile([*slack, *discord], 95),
            "slack_ack_p50_ms": median(slack),
            "slack_ack_p95_ms": percentile(slack, 95),
            "discord_thread_p95_ms": percentile(discord, 95),
            "runs_a_second": said / took,
            **_cpu_of_a_run(before, after, said),
        }


async def _is_everywhere(told: Fleet, said: int) -> None:
    """Each workspace and each server has had its share."""
    wanted = min(said, len(told.in_slack) + len(told.in_discord))
    places = await told.count("SELECT count(DISTINCT workspace_id) FROM thread")
    assert places == wanted, f"{said} mentions came from {places} workspaces and servers"


async def _say(told: Fleet, number: int, at: float, opened: dict[str, float]) -> None:
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    places = told.in_discord if number % 2 else told.in_slack
    place = places[number // 2 % len(places)]
    began = time.monotonic()
    message = await place.mention(f"Hello {number}")
    if number % 2:
        opened[message] = began


def _discord_waits(told: Fleet, opened: dict[str, float]) -> list[float]:
    """Discord's messages have no acknowledgement: until the thread is opened, which comes after the storing."""
    waits: list[float] = []
    for call in told.discord.calls:
        if call.method == "POST" and call.path.endswith("/threads"):
            message = call.path.split("/")[-2]
            if message in opened:
                waits.append((call.at - opened.pop(message)) * 1000)
    return waits


async def streams(*, conversations: int, chunks: int, workers: int = 2) -> Mapping[str, float]:
    """Conversations at once, each streaming 20 pieces a second."""
    async with fleet(streaming(chunks), workers=workers) as told:
        resident = _resident(told)
        before, began = told.cpu_seconds(), time.monotonic()
        opened: dict[str, float] = {}
        talking = [spawn(_say(told, 2 * n, began, opened), name="say") for n in range(conversations)]
        await asyncio.gather(*talking)
        await told.until("SELECT count(*) FROM run WHERE started_at IS NOT NULL", conversations, "all begin")
        await asyncio.sleep(0.5)
        most = _resident(told)
        await told.is_done(conversations)
        took = time.monotonic() - began
        _tell_cpu(before, told.cpu_seconds(), took)
        rates = await _event_rates(told)
        note(f"{conversations} conversations of {chunks / CHUNKS_A_SECOND:.1f} s took {took:.1f} s")
        return {
            "stream_seconds": took,
            "events_a_second_p50": median(rates),
            "events_a_second_max": max(rates),
            "worker_kb_a_stream": (most["workers"] - resident["workers"]) / conversations / 1024,
            "bot_kb_a_stream": (most["bot"] - resident["bot"]) / conversations / 1024,
        }


async def _event_rates(told: Fleet) -> list[float]:
    """For each run: the most entries of its stream within one second, less those that are no text."""
    client = create_redis_client(told.redis_url)
    try:
        rates: list[float] = []
        async for name in client.scan_iter(match="threadhand:events:*", count=1000):
            entries = await client.xrange(name)
            chunks = [fields for _, fields in entries]
            stamps = Counter(
                int(entry.split(b"-")[0]) // 1000
                for (entry, _), fields in zip(entries, chunks, strict=True)
                if b'"text_streamed"' in fields[b"event"]
            )
            rates.append(max(stamps.values(), default=0))
        return rates
    finally:
        await client.aclose()


async def waiting(*, threads: int) -> Mapping[str, float]:
    """Threads that wait for a person's answer: what each of them holds in memory, once as many have come before."""
    async with fleet(ASKING, workers=1) as told:
        await _ask(told, range(threads))
        resident = _resident(told)
        await _ask(told, range(threads, 3 * threads))
        most = _resident(told)
        return {
            f"{name}_kb_a_waiting_thread": (most[key] - resident[key]) / (2 * threads) / 1024
            for name, key in (("worker", "workers"), ("bot", "bot"))
        }


async def _ask(told: Fleet, numbers: range) -> None:
    """In groups: more at once would measure the crowd."""
    opened: dict[str, float] = {}
    for first in range(numbers.start, numbers.stop, CROWD):
        now = time.monotonic()
        group = range(first, min(first + CROWD, numbers.stop))
        await asyncio.gather(*(_say(told, 2 * n, now, opened) for n in group))
        await told.is_done(group.stop)
    asked = await told.count("SELECT count(*) FROM pending_ask WHERE state = 'open'")
    assert asked == numbers.stop, f"{numbers.stop} mentions left {asked} questions"
    await asyncio.sleep(2)


async def thinking(*, threads: int) -> Mapping[str, float]:
    """Runs that wait for a model that thinks: what each of them holds in memory."""
    async with fleet(MENTIONS.replace("0.05", "20"), workers=1) as told:
        resident = _resident(told)
        opened: dict[str, float] = {}
        began = time.monotonic()
        await asyncio.gather(*(_say(told, 2 * n, began, opened) for n in range(threads)))
        await told.until("SELECT count(*) FROM run WHERE status = 'running'", threads, "all wait")
        await asyncio.sleep(2)
        most = _resident(told)
        await told.is_done(threads)
        return {
            "worker_kb_a_thinking_run": (most["workers"] - resident["workers"]) / threads / 1024,
            "bot_kb_a_thinking_run": (most["bot"] - resident["bot"]) / threads / 1024,
        }


def _resident(told: Fleet) -> dict[str, int]:
    return {"bot": told.bot.memory_bytes(), "workers": sum(worker.memory_bytes() for worker in told.workers)}


def _cpu_of_a_run(before: Mapping[str, float], after: Mapping[str, float], runs: int) -> dict[str, float]:
    """What a run costs each part, all workers together: it says more than runs a second where cores are shared."""
    used = {name: 1000 * (after[name] - before[name]) / runs for name in after}
    workers = sum(used[name] for name in used if name.startswith("worker "))
    kept = {name: used[name] for name in ("bot", "postgres", "redis")}
    return {f"{name}_cpu_ms_a_run": one for name, one in {**kept, "workers": workers}.items()}


def _tell_cpu(before: Mapping[str, float], after: Mapping[str, float], took: float) -> None:
    shares = ", ".join(f"{name} {100 * (after[name] - before[name]) / took:.0f} %" for name in after)
    note(f"CPU: {shares}; load of the machine {os.getloadavg()[0]:.1f}")
