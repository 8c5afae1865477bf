"""How much CPU it takes to bring a long conversation under a model's limit."""

import time
from statistics import median

from core.context.limits import find_context_limit
from core.context.truncation import fit_messages
from tests.bench.figure import Figure, note
from tests.support.conversations import long_thread

TIMES = 5
TURNS = 200
WORDS_EACH = 1475
KEPT_PERCENT_MIN = 70


async def compress_ms() -> float:
    """401 messages, some 651,000 tokens, cut for a model of the sonnet family; CPU of one pass from scratch."""
    messages = long_thread(TURNS, words_each=WORDS_EACH)
    room = find_context_limit("claude-sonnet").room
    spent: list[float] = []
    fitted = fit_messages(messages, room, {})
    for _ in range(TIMES):
        started = time.process_time()
        fitted = fit_messages(messages, room, {})
        spent.append((time.process_time() - started) * 1000)
        assert not fitted.is_over
        assert fitted.tokens * 100 >= room * KEPT_PERCENT_MIN
    tokens = sum(one.token_count for one in messages)
    note(f"compress_ms: {len(messages)} messages, {tokens} tokens to {fitted.tokens} of {room}")
    return median(spent)


COMPRESS = Figure(name="compress_ms", unit="ms", bound=50, measure=compress_ms)
