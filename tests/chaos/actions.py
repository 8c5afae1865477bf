"""The random actions of a storm test, in an order that depends only on the seed."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.harness import PlatformName

KINDS = ("Hello", "Work", "Stream", "Ask")
POSTS: Mapping[PlatformName, str] = {"slack": "chat.postMessage", "discord": "POST /channels/*/messages"}
FAULTS: tuple[tuple[str, dict[str, float | int]], ...] = (
    ("duplicate", {"times": 3}),
    ("reorder", {"seconds": 0.5}),
    ("rate_limit", {"times": 4, "seconds": 1}),
    ("error_after", {"times": 1}),
    ("timeout_after", {"times": 1}),
    ("server_error", {"times": 3}),
    ("drop_connection", {}),
    ("reconnect", {}),
)
ONLY_POSTS = ("error_after", "timeout_after")
JUMPS_SECONDS = (-3600, -60, -5, 0, 5, 60, 3600)
WEIGHTS = {
    "say": 12,
    "follow": 6,
    "kill worker": 2,
    "kill bot": 2,
    "freeze worker": 2,
    "freeze bot": 1,
    "end worker": 2,
    "arm worker": 3,
    "arm bot": 3,
    "platform": 5,
    "jump clock": 2,
    "empty redis": 1,
    "fill redis": 1,
    "restart redis": 1,
    "restart postgresql": 1,
    "break connections": 1,
}
_BOTH = ("storage.open", "storage.heartbeat")
WORKER_PLACES = (
    *_BOTH,
    "storage.claim_run",
    "storage.record_agent",
    "storage.write",
    "storage.finish",
    "redis.publish",
    "sandbox.open",
    "sandbox.execute",
    "sandbox.write",
    "llm.openai.request",
)
_EVERY_BOT_PLACES = (
    *_BOTH,
    "storage.accept",
    "storage.claim_rendering",
    "storage.plan",
    "storage.record",
    "storage.close_rendering",
    "redis.put",
)
BOT_PLACES: Mapping[PlatformName, tuple[str, ...]] = {
    "slack": (
        *_EVERY_BOT_PLACES,
        "redis.take_turn",
        "slack.post",
        "slack.edit",
        "slack.upload",
        "slack.react",
        "slack.typing",
    ),
    "discord": (
        *_EVERY_BOT_PLACES,
        "storage.forward",
        "discord.post",
        "discord.edit",
        "discord.upload",
        "discord.react",
        "discord.open_thread",
        "discord.acknowledge",
    ),
}
"""Failpoints that a bot passes often. The storm test kills or stops a bot before or after one of them."""
_OFTEN = frozenset({"storage.write", "redis.publish", "llm.openai.request", "storage.record"})
"""Failpoints that a run passes several times. Only for these, a later pass than the first may be chosen."""
_PASSINGS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of a storm test, with random numbers that the action interprets.

    `which` selects a process, a thread or a fault; `seconds` is a duration. `chance` selects a failpoint or a clock
    jump. The storm waits `pause_seconds` after the action.
    """

    name: str
    which: int
    chance: int
    seconds: float
    pause_seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.which}, {self.seconds:.1f} s"


def actions(seed: int) -> Iterator[Action]:
    """Yields random actions without end. The same seed yields the same actions."""
    chance = random.Random(seed)
    while True:
        yield Action(
            name=chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0],
            which=chance.randrange(1000),
            chance=chance.randrange(1_000_000),
            seconds=chance.uniform(0.5, 7.0),
            pause_seconds=chance.uniform(0.3, 2.5),
        )


def failpoint(places: tuple[str, ...], chance: int) -> str:
    """Returns a random one of the failpoints, as a value of the setting THREADHAND_FAILPOINTS."""
    chance, place = divmod(chance, len(places))
    chance, when = divmod(chance, 2)
    chance, deed = divmod(chance, 2)
    hit = 1 + chance % _PASSINGS_MAX if places[place] in _OFTEN else 1
    return f"{places[place]}.{('before', 'after')[when]}:{('kill', 'pause')[deed]}:{hit}"


def fault(platform: PlatformName, which: int) -> tuple[str, dict[str, str | float | int]]:
    kind, settings = FAULTS[which % len(FAULTS)]
    return kind, settings | ({"method": POSTS[platform]} if kind in ONLY_POSTS else {})
