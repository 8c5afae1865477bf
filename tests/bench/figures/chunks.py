"""What a piece of streamed text costs the program."""

from statistics import median

from simulator.model.scenario import Conversation, ConversationStart, Scenario, ScriptedCall, Step, TextCondition
from tests.bench.conversation import SENTENCE, converse
from tests.bench.figure import Figure, note
from tests.bench.figures.turns import SETTINGS
from tests.bench.program import program

CHUNKS = 5_000
CHUNK_CHARACTERS = 16
TIMES = 5
SHORT, LONG = 1, 2
"""The turns in the words that ask for each: both are answered in a single one."""


async def chunk_cpu_us() -> float:
    """CPU of the program alone, from the socket of the model to the stored message and to what Slack is shown.

    The difference between an answer of one piece and one of 5,000, so that nothing else of a conversation counts.
    """
    answers = Scenario(conversations=(_answer(SHORT, 1), _answer(LONG, CHUNKS + 1)))
    async with program(answers, slack=True, settings=SETTINGS) as running:
        for turns in (LONG, SHORT):
            await converse(running, turns)
        pairs = [(await converse(running, SHORT), await converse(running, LONG)) for _ in range(TIMES)]
        running.script.check()
    costs = sorted((long.cpu_seconds - short.cpu_seconds) * 1_000_000 / CHUNKS for short, long in pairs)
    note(f"chunk_cpu_us: {' '.join(f'{one:.1f}' for one in costs)}")
    return median(costs)


def _answer(turns: int, chunks: int) -> Conversation:
    """A text that stays in the turn, and a short answer: what posting a long one costs is no part of this."""
    length = chunks * CHUNK_CHARACTERS
    text = (SENTENCE * (length // len(SENTENCE) + 1))[:length]
    handing_over = ScriptedCall(name="complete", arguments={"text": "It is written."})
    return Conversation(
        name=f"chunks-{chunks}",
        when=ConversationStart(user=TextCondition(contains=f"Please take {turns} steps.")),
        steps=(Step(text=text, calls=(handing_over,), chunk_characters=CHUNK_CHARACTERS),),
    )


CHUNK = Figure(name="chunk_cpu_us", unit="us", bound=40, measure=chunk_cpu_us)
