"""A busy channel beside quiet ones, with the platforms' rate limits on: how long people wait for their answers."""

import asyncio
import time
from collections.abc import Mapping
from itertools import count

from core.tasks import spawn
from tests.bench.figure import note, percentile
from tests.load.fleet import Fleet, fleet
from tests.load.loads import MENTIONS
from tests.load.places import Place

QUIET_CHANNELS = 5
ANSWER = "Good morning."
GIVEN_UP_SECONDS = 600.0
SLOW = f"""
conversations:
  - name: talk
    when: {{user: {{contains: "Hello"}}}}
    steps:
      - calls: [{{name: search_conversation, arguments: {{query: colours}}}}]
        delay_seconds: 2.5
      - text: "{ANSWER}"
        delay_seconds: 2.5
"""
"""A model that thinks twice, and a tool in between: what a run takes without any limits is 5 s."""


async def crowded(
    *, busy: int, busy_a_second: float, quiet_every_seconds: float, seconds: float, scenario: str = MENTIONS
) -> Mapping[str, float]:
    """On each platform `busy` mentions in one channel, and meanwhile one in the next of the quiet channels at a
    fixed interval."""
    async with fleet(scenario, workers=1, workspaces=1, channels=1 + QUIET_CHANNELS) as told:
        began = time.monotonic()
        said: dict[str, dict[str, float]] = {
            f"{platform}_{kind}": {} for platform in ("slack", "discord") for kind in ("busy", "quiet")
        }
        numbers = count()
        speaking = [
            spawn(_say(place, next(numbers), at, said[f"{platform}_{kind}"]), name="say")
            for platform, places in (("slack", told.in_slack), ("discord", told.in_discord))
            for kind, place, at in _plan(places, began, busy, busy_a_second, quiet_every_seconds, seconds)
        ]
        await asyncio.gather(*speaking)
        everybody = sum(map(len, said.values()))
        await told.until(
            "SELECT count(*) FROM delivery WHERE slot = 'answer' AND state = 'delivered'",
            everybody,
            "answers arrive",
            seconds=GIVEN_UP_SECONDS,
        )
        note(f"{everybody} mentions are answered after {time.monotonic() - began:.1f} s")
        answered = _answers(told)
        figures: dict[str, float] = {}
        for kind, messages in said.items():
            waits = [answered[message] - at for message, at in messages.items()]
            figures[f"{kind}_answer_p50_s"] = percentile(waits, 50)
            figures[f"{kind}_answer_p95_s"] = percentile(waits, 95)
        refused = [call for call in told.slack.calls if call.status == 429]
        refused_discord = [call for call in told.discord.calls if call.status == 429]
        acks = told.acks.waits_ms
        return {
            **figures,
            "slack_ack_p95_ms": percentile(acks, 95),
            "slack_posts": sum(call.method == "chat.postMessage" for call in told.slack.calls),
            "slack_calls_refused": len(refused),
            "discord_calls_refused": len(refused_discord),
        }


def _plan(
    places: tuple[Place, ...], began: float, busy: int, busy_a_second: float, quiet_every_seconds: float, seconds: float
) -> list[tuple[str, Place, float]]:
    crowd = [("busy", places[0], began + n / busy_a_second) for n in range(busy)]
    others = [
        ("quiet", places[1 + n % QUIET_CHANNELS], began + 1 + n * quiet_every_seconds)
        for n in range(int((seconds - 1) / quiet_every_seconds))
    ]
    return crowd + others


async def _say(place: Place, number: int, at: float, said: dict[str, float]) -> None:
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    began = time.monotonic()
    said[await place.mention(f"Hello {number}")] = began


def _answers(told: Fleet) -> dict[str, float]:
    """When the answer to each message was accepted."""
    found: dict[str, float] = {}
    for call in told.slack.calls:
        arguments = call.arguments
        if call.method == "chat.postMessage" and not call.error and ANSWER in str(arguments):
            found.setdefault(str(arguments.get("thread_ts")), call.at)
    for call in told.discord.calls:
        parts = call.path.split("/")
        if call.method == "POST" and call.status < 300 and parts[-1] == "messages" and ANSWER in call.arguments:
            found.setdefault(parts[-2], call.at)
    return found
