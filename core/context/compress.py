"""Bringing a conversation under the model's limit: which messages are cut, in which order, and how far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.context.cutting import Cut, Shortened, shortened
from core.context.tokens import tokens_of
from core.domain.messages import JsonObject, Message, MessageType

FIRST_LIMIT_TOKENS = 4096
LAST_LIMIT_TOKENS = 256
TARGET_PERCENT = 90
"""Cutting goes a little under the limit, so that the next messages fit without another cut."""
CUT_TOKENS_MIN = 64
"""A cut that wins less would cost more in its note than it is worth."""
_ORDER: tuple[MessageType, ...] = ("tool", "assistant", "user")
_REPLANS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What is sent. `shown` are the messages that are sent shortened, by id, those of before and the new ones alike.

    `made` are the cuts that are new. `is_over`: it does not fit, even with everything cut that may be.
    """

    contents: tuple[JsonObject, ...]
    tokens: int
    shown: Mapping[str, Shortened]
    made: Mapping[str, Cut] = field(default_factory=dict[str, Cut])
    is_over: bool = False


def fit(messages: Sequence[Message], room: int, shown: Mapping[str, Shortened]) -> Fitted:
    """The messages in at most `room` tokens. What was cut before stays cut; no message goes, so pairs stay together."""
    sizes = [
        known.tokens if (known := shown.get(one.message_id)) else tokens_of(one) for one in messages
    ]
    tokens = sum(sizes)
    if tokens <= room:
        return Fitted(contents=_contents(messages, shown), tokens=tokens, shown=shown)
    now, made, spent = dict(shown), dict[str, Cut](), set[int]()
    for _ in range(_REPLANS_MAX):
        for index, cut in _planned(messages, sizes, room, spent).items():
            message = messages[index]
            short = shortened(message, cut)
            if short.tokens > cut.tokens:
                spent.add(index)
            if short.tokens < sizes[index]:
                now[message.message_id], made[message.message_id] = short, cut
                sizes[index] = short.tokens
        tokens = sum(sizes)
        if tokens <= room:
            break
    return Fitted(
        contents=_contents(messages, now),
        tokens=tokens,
        shown=now,
        made=made,
        is_over=tokens > room,
    )


def _contents(
    messages: Sequence[Message], shown: Mapping[str, Shortened]
) -> tuple[JsonObject, ...]:
    if not shown:
        return tuple(one.content for one in messages)
    return tuple(
        short.content if (short := shown.get(one.message_id)) else one.content for one in messages
    )


def _planned(
    messages: Sequence[Message], sizes: Sequence[int], room: int, spent: set[int]
) -> dict[int, Cut]:
    """Index to cut, found by counting alone: every message is then cut once, to its last length."""
    sizes = list(sizes)
    excess = sum(sizes) - room * TARGET_PERCENT // 100
    plan: dict[int, Cut] = {}
    limit = FIRST_LIMIT_TOKENS
    while limit >= LAST_LIMIT_TOKENS:
        for index, keeps_tail in _steps(messages):
            if index in spent or sizes[index] < limit + CUT_TOKENS_MIN:
                continue
            kept = max(limit, sizes[index] - excess - CUT_TOKENS_MIN)
            plan[index] = Cut(tokens=kept, keeps_tail=keeps_tail)
            excess -= sizes[index] - kept
            sizes[index] = kept
            if excess <= 0:
                return plan
        limit //= 2
    return plan


def _steps(messages: Sequence[Message]) -> Iterator[tuple[int, bool]]:
    """The messages of one round in order: of each kind the newest first, which keeps its end, then the oldest first."""
    for kind in _ORDER:
        indexes = [index for index, one in enumerate(messages) if one.type == kind]
        if indexes:
            yield indexes[-1], True
            yield from ((index, False) for index in indexes[:-1])
