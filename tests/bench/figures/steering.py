"""How soon people see that the agent has noticed what they say while it works: a message, an edit, a stop."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from bots.demo.thread_reader import messages_of, text_of
from simulator.model.scenario import Conversation, ConversationStart, Scenario, Step, TextCondition
from simulator.model.server import ScriptedServer
from simulator.view import SeenMessage, SimulatedPlatform
from tests.bench.figure import Figure, note, percentile
from tests.bench.program import PATIENCE_SECONDS, PERSON, program, until

RUNS = 10
REQUEST = "Count the rows, please."
THINKING = Scenario(
    conversations=(
        Conversation(
            name="thinking",
            when=ConversationStart(user=TextCondition(contains="Count")),
            steps=(Step(text="Seven rows.", delay_seconds=10 * PATIENCE_SECONDS),),
        ),
    )
)
NOTED = "I will read your new message next"
STOPPED = "Stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread in which a run waits for its model. `request` is the id of its first message."""

    platform: SimulatedPlatform
    channel: str
    request: str

    async def say(self, text: str) -> str:
        return await self.platform.say(PERSON, self.channel, text, thread_id=self.request)

    def messages(self) -> tuple[SeenMessage, ...]:
        return messages_of(self.platform.view(), self.request)

    def ours(self) -> list[SeenMessage]:
        return [one for one in self.messages() if one.is_bot]

    def shows(self, text: str) -> bool:
        return any(text in text_of(one) for one in self.ours())


Act = Callable[[Thread], Awaitable[Callable[[], object]]]
"""Acts as a person in the thread. Returns a function that tells whether people see that the agent has noticed."""


async def stop(thread: Thread) -> Callable[[], object]:
    await thread.say("please stop")
    return lambda: thread.shows(STOPPED)


async def follow_up(thread: Thread) -> Callable[[], object]:
    said = await thread.say("also add the totals")
    return lambda: any(one.message_id == said and one.reactions for one in thread.messages())


async def edit(thread: Thread) -> Callable[[], object]:
    corrected = f"@{thread.platform.view().bot_name} Count the rows and the columns, please."
    await thread.platform.edit(PERSON, thread.channel, thread.request, corrected)
    return lambda: thread.shows(NOTED)


async def slower_p95_ms(name: str, act: Act) -> float:
    """From what the person does, without a mention, to what people see of it. The slower platform counts."""
    found: list[float] = []
    async with program(THINKING, slack=True, discord=True) as running:
        for platform in (running.slack, running.discord):
            assert platform is not None
            waits = [await _wait_ms(running.script, platform, act) for _ in range(1 + RUNS)][1:]
            note(f"{name}: {' '.join(f'{one:.0f}' for one in waits)}; median {median(waits):.0f}")
            found.append(percentile(waits, 95))
    return max(found)


async def _wait_ms(script: ScriptedServer, platform: SimulatedPlatform, act: Act) -> float:
    thread = await _thinking(script, platform)
    began = time.monotonic()
    await until(await act(thread), "people see that it was noticed")
    took = time.monotonic() - began
    if act is not stop:
        await until(await stop(thread), "the run is stopped")
    return took * 1000


async def _thinking(script: ScriptedServer, platform: SimulatedPlatform) -> Thread:
    """A new thread, in which a run has asked its model and shows so."""
    asked = len(script.requests)
    channel = next(one.channel_id for one in platform.view().channels if not one.is_direct)
    text = f"@{platform.view().bot_name} {REQUEST}"
    request = await platform.say(PERSON, channel, text)
    thread = Thread(platform=platform, channel=channel, request=request)
    await until(lambda: len(script.requests) > asked and thread.ours(), "a run asks its model")
    return thread


async def stop_p95_ms() -> float:
    return await slower_p95_ms("stop_p95_ms", stop)


async def follow_up_p95_ms() -> float:
    return await slower_p95_ms("follow_up_p95_ms", follow_up)


async def edit_p95_ms() -> float:
    return await slower_p95_ms("edit_p95_ms", edit)


STOP = Figure(name="stop_p95_ms", unit="ms", bound=250, measure=stop_p95_ms)
FOLLOW_UP = Figure(name="follow_up_p95_ms", unit="ms", bound=100, measure=follow_up_p95_ms)
EDIT = Figure(name="edit_p95_ms", unit="ms", bound=1_500, measure=edit_p95_ms)
