"""A conversation of many turns in a Slack thread, and what it cost the program."""

import asyncio
import time
from dataclasses import dataclass
from itertools import islice

from simulator.model.scenario import Conversation, ConversationStart, Scenario, ScriptedCall, Step, TextCondition
from simulator.slack.server import SlackSimulator
from simulator.slack.web_api.dispatch import ApiCall
from tests.bench.program import PERSON, Program, until
from tests.support.narrow import require

SENTENCE = "The quick brown fox jumps over the lazy dog, and nobody is any the wiser for it. "
TEXT_CHARACTERS = 200
CHUNK_CHARACTERS = 24
SETTLING_SECONDS = 0.3


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


def scenario(*lengths: int, think_seconds: float = 0) -> Scenario:
    """Conversations of so many turns: each turn streams text and one call, the last call hands over the answer.

    The model thinks for `think_seconds` before the first piece of each turn.
    """
    return Scenario(conversations=tuple(_conversation(turns, think_seconds) for turns in lengths))


async def converse(running: Program, turns: int) -> Cost:
    """Plays it in a thread of its own, to the end."""
    slack = require(running.slack)
    edits, started, before = _edits(slack), time.monotonic(), running.cpu_seconds()
    channel = next(one.channel_id for one in slack.view().channels if not one.is_direct)
    message = await slack.say(PERSON, channel, f"@{slack.view().bot_name} {_request(turns)}")
    await until(lambda: _is_done(slack, message), f"{turns} turns are over")
    wall = time.monotonic() - started
    # what the program still writes down when everything is shown
    await asyncio.sleep(SETTLING_SECONDS)
    return Cost(
        turns=turns, cpu_seconds=running.cpu_seconds() - before, wall_seconds=wall, status_edits=_edits(slack) - edits
    )


async def converse_at_once(running: Program, turns: int, conversations: int) -> float:
    """Wall seconds for so many threads that are started together, from the first mention to the last tick."""
    slack = require(running.slack)
    channel = next(one.channel_id for one in slack.view().channels if not one.is_direct)
    text = f"@{slack.view().bot_name} {_request(turns)}"
    started = time.monotonic()
    messages = [await slack.say(PERSON, channel, text) for _ in range(conversations)]
    waiting, looked_at = set(messages), 0

    def are_over() -> bool:
        nonlocal looked_at  # nothing twice: the cores that this takes are the program's too
        for call in islice(slack.calls, looked_at, None):
            looked_at += 1
            if call.method == "reactions.add" and _is_last(call):
                waiting.discard(str(call.arguments.get("timestamp")))
        return not waiting

    await until(are_over, f"{conversations} conversations are over")
    return max(_done_at(slack, one) for one in messages) - started


def _conversation(turns: int, think_seconds: float) -> Conversation:
    handing_over = ScriptedCall(name="complete", arguments={"text": f"{turns} turns are done."})
    calls = [*map(_command, range(1, turns)), handing_over]
    return Conversation(
        name=f"turns-{turns}",
        when=ConversationStart(user=TextCondition(contains=_request(turns))),
        steps=tuple(_step(number, call, think_seconds) for number, call in enumerate(calls, start=1)),
    )


def _command(number: int) -> ScriptedCall:
    """No two are alike: an agent that repeats itself is stopped."""
    return ScriptedCall(name="execute_command", arguments={"command": f"true step {number}", "blocking": True})


def _step(number: int, call: ScriptedCall, think_seconds: float) -> Step:
    text = f"Step {number}. {SENTENCE * 3}"[:TEXT_CHARACTERS]
    return Step(text=text, calls=(call,), chunk_characters=CHUNK_CHARACTERS, delay_seconds=think_seconds)


def _request(turns: int) -> str:
    return f"Please take {turns} steps."


def _is_done(slack: SlackSimulator, message: str) -> bool:
    for call in reversed(slack.calls):
        if call.method == "reactions.add" and call.arguments.get("timestamp") == message:
            return _is_last(call)
    return False


def _is_last(call: ApiCall) -> bool:
    assert call.arguments["name"] not in ("x", "question", "warning"), "the run failed"
    return call.arguments["name"] == "white_check_mark"


def _done_at(slack: SlackSimulator, message: str) -> float:
    return next(
        call.at
        for call in reversed(slack.calls)
        if call.method == "reactions.add" and call.arguments.get("timestamp") == message
    )


def _edits(slack: SlackSimulator) -> int:
    return sum(call.method == "chat.update" for call in slack.calls)
