"""How soon a person sees that the agent has noticed."""

import time
from collections.abc import Callable
from statistics import median
from urllib.parse import unquote

from simulator.discord.server import DiscordSimulator
from simulator.model.scenario import Conversation, ConversationStart, Scenario, Step, TextCondition
from simulator.slack.server import SlackSimulator
from simulator.view import SimulatedPlatform
from tests.bench.figure import Figure, note, percentile
from tests.bench.program import PERSON, program, until

MENTIONS = 50
SETTLING = 5
QUESTION = "Good morning, are you there?"
GREETING = Scenario(
    conversations=(
        Conversation(
            name="greeting",
            when=ConversationStart(user=TextCondition(contains=QUESTION)),
            steps=(Step(text="Good morning."),),
        ),
    )
)

When_ = Callable[[str, str], float | None]
"""When a reaction on a message arrived, on the monotonic clock; None if it has not."""


async def reaction_p95_ms() -> float:
    """From the mention to the call that sets the eyes; one mention after another. The slower platform counts."""
    async with program(GREETING, slack=True, discord=True) as running:
        assert running.slack is not None
        assert running.discord is not None
        slack = await _on("slack", running.slack, _slack_calls(running.slack), "eyes", "white_check_mark")
        discord = await _on("discord", running.discord, _discord_calls(running.discord), "👀", "✅")
    return max(percentile(slack, 95), percentile(discord, 95))


async def _on(name: str, platform: SimulatedPlatform, arrived: When_, seen: str, done: str) -> list[float]:
    channel = next(one.channel_id for one in platform.view().channels if not one.is_direct)
    text = f"@{platform.view().bot_name} {QUESTION}"
    waits: list[float] = []
    for _ in range(SETTLING + MENTIONS):
        said = time.monotonic()
        message = await platform.say(PERSON, channel, text)
        await until(lambda m=message: arrived(m, done), f"a run ends on {name}")
        at = arrived(message, seen)
        assert at is not None, f"{name} was never told that the message is seen"
        waits.append((at - said) * 1000)
    waits = waits[SETTLING:]
    note(f"reaction_p95_ms: {name} median {median(waits):.1f}, p95 {percentile(waits, 95):.1f}")
    return waits


def _slack_calls(slack: SlackSimulator) -> When_:
    def arrived(message: str, emoji: str) -> float | None:
        for call in reversed(slack.calls):
            named = call.arguments.get("name"), call.arguments.get("timestamp")
            if call.method == "reactions.add" and named == (emoji, message):
                return call.at
        return None

    return arrived


def _discord_calls(discord: DiscordSimulator) -> When_:
    def arrived(message: str, emoji: str) -> float | None:
        for call in reversed(discord.calls):
            place = f"/messages/{message}/reactions/{emoji}/"
            if call.method == "PUT" and place in unquote(call.path):
                return call.at
        return None

    return arrived


REACTION = Figure(name="reaction_p95_ms", unit="ms", bound=100, measure=reaction_p95_ms)
