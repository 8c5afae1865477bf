"""A conversation of many turns in a Slack thread, and what it cost the program."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bots.simulator.slack.server import SlackSimulator
from core.llm.scripted import Conversation, Scenario, ScriptedCall, Step, TextCondition, When
from tests.bench.program import PERSON, Program, until

SENTENCE = "The quick brown fox jumps over the lazy dog, and nobody is any the wiser for it. "
TEXT = (SENTENCE * 3)[:200]
CHUNK_CHARACTERS = 24
SETTLING_SECONDS = 0.3
COMMAND = ScriptedCall(name="execute_command", arguments={"command": "true", "blocking": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one conversation, from the mention to the last state of its messages."""

    turns: int
    cpu_seconds: float
    wall_seconds: float
    status_edits: int

    @property
    def cpu_ms_per_turn(self) -> float:
        return self.cpu_seconds * 1000 / self.turns


def scenario(*lengths: int) -> Scenario:
    """Conversations of so many turns: each turn streams text and one call, the last call hands over the answer."""
    return Scenario(conversations=tuple(map(_conversation, lengths)))


async def converse(running: Program, turns: int) -> Cost:
    """Plays it in a thread of its own, to the end."""
    slack = running.slack
    assert slack is not None
    edits, started, before = _edits(slack), time.monotonic(), running.cpu_seconds()
    channel = next(one.channel_id for one in slack.view().channels if not one.is_direct)
    message = await slack.say(PERSON, channel, f"@{slack.view().bot_name} {_request(turns)}")
    await until(lambda: _is_done(slack, message), f"{turns} turns are over")
    wall = time.monotonic() - started
    # what the program still writes down when everything is shown
    await asyncio.sleep(SETTLING_SECONDS)
    return Cost(
        turns=turns,
        cpu_seconds=running.cpu_seconds() - before,
        wall_seconds=wall,
        status_edits=_edits(slack) - edits,
    )


def _conversation(turns: int) -> Conversation:
    working = Step(text=TEXT, calls=(COMMAND,), chunk_characters=CHUNK_CHARACTERS)
    handing_over = ScriptedCall(name="complete", arguments={"text": f"{turns} turns are done."})
    last = Step(text=TEXT, calls=(handing_over,), chunk_characters=CHUNK_CHARACTERS)
    steps: Sequence[Step] = [*[working] * (turns - 1), last]
    return Conversation(
        name=f"turns-{turns}",
        when=When(user=TextCondition(contains=_request(turns))),
        steps=tuple(steps),
    )


def _request(turns: int) -> str:
    return f"Please take {turns} steps."


def _is_done(slack: SlackSimulator, message: str) -> bool:
    for call in reversed(slack.calls):
        if call.method == "reactions.add" and call.arguments.get("timestamp") == message:
            assert call.arguments["name"] not in ("x", "question"), "the run failed"
            return call.arguments["name"] == "white_check_mark"
    return False


def _edits(slack: SlackSimulator) -> int:
    return sum(call.method == "chat.update" for call in slack.calls)
