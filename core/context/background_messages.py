"""Adds chat messages that were not addressed to the agent to its conversation, as background."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain

from core.context.tokens import with_token_count
from core.context.untrusted_text import wrap_untrusted
from core.domain.errors import AgentError, SurfaceError
from core.domain.messages import JsonObject, Message
from core.domain.threads import Address, ChatMessage, ThreadInput
from core.ports import ChatHistory

BACKGROUND_MESSAGES_MAX = 50
BACKGROUND_CHARACTERS_MAX = 20_000
TEXT_CHARACTERS_MAX = 2_000
BACKGROUND_KEY = "is_heard"
BACKGROUND_REFS_KEY = "heard_refs"
FLOW_KEY = "flow"
"""Metadata key of user messages that a planning flow wrote, not a person."""
_BEFORE = "Said in the thread before you were called, oldest first. It was not said to you."
_SINCE = "Said in the thread since your last turn, oldest first. It was not said to you."


def background_message(
    heard: Sequence[ChatMessage], *, thread_id: str, run_id: str, is_first: bool
) -> Message | None:
    """Returns one message that lists chat messages with their authors, or None if there are none.

    Each line is a JSON object, so that no text can pretend to come from another author. If the list is too long, only
    the newest messages are kept. Set `is_first` if the conversation has no earlier messages.
    """
    lines: list[str] = []
    refs: list[str] = []
    room = BACKGROUND_CHARACTERS_MAX
    for one in sorted(heard, key=lambda one: one.sent_at)[: -BACKGROUND_MESSAGES_MAX - 1 : -1]:
        line = _line(one)
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
        refs.append(one.message_ref)
    if not lines:
        return None
    text = wrap_untrusted("\n".join(reversed(lines)), source="the chat thread")
    return with_token_count(
        Message(
            type="user",
            content={"role": "user", "content": f"[{_BEFORE if is_first else _SINCE}]\n{text}"},
            is_llm_message=True,
            thread_id=thread_id,
            run_id=run_id,
            metadata={BACKGROUND_KEY: True, BACKGROUND_REFS_KEY: [ref for ref in refs if ref]},
        )
    )


def _line(one: ChatMessage) -> str:
    text = one.text.strip()
    cut = text[:TEXT_CHARACTERS_MAX] + (" […]" if len(text) > TEXT_CHARACTERS_MAX else "")
    said: JsonObject = {
        "from": " ".join(one.author.name.split()),
        "id": one.author.person_id,
        "at": f"{one.sent_at:%Y-%m-%d %H:%M}",
        "text": cut,
    }
    return json.dumps(said, ensure_ascii=False)


def known_refs(history: Sequence[Message]) -> frozenset[str]:
    """Returns the platform ids of the chat messages that the history already contains."""
    told = (one.metadata.get(BACKGROUND_REFS_KEY) for one in history)
    refs = chain.from_iterable(one for one in told if isinstance(one, list))
    own = (one.metadata.get("message_ref") for one in history)
    return frozenset(str(ref) for ref in chain(refs, own) if ref)


def last_read_at(history: Sequence[Message]) -> datetime | None:
    """Returns the time of the newest message from people in the history, or None in a new conversation."""
    return next(
        (
            one.created_at
            for one in reversed(history)
            if one.type == "user" and not one.metadata.get(FLOW_KEY)
        ),
        None,
    )


def is_from_person(message: Message) -> bool:
    """Returns whether a person wrote the message to the agent. Background and flow messages do not count."""
    is_marked = message.metadata.get(BACKGROUND_KEY) or message.metadata.get(FLOW_KEY)
    return message.type == "user" and not is_marked


log = logging.getLogger(__name__)
READ_SECONDS = 5.0


class BackgroundMessageReader:
    """Reads new background messages of the thread for one run.

    Keeps the time of the last read and the ids of messages that the conversation already contains.
    """

    def __init__(self, talks: Mapping[str, ChatHistory], thread_id: str, run_id: str) -> None:
        """`talks` maps platform names to chat histories. Other platforms have no background messages."""
        self._talks = talks
        self._thread_id = thread_id
        self._run_id = run_id
        self._after: datetime | None = None
        self._refs: frozenset[str] = frozenset()

    def remember(self, history: Sequence[Message]) -> None:
        """Notes which chat messages the stored conversation contains, so `listen` does not return them again."""
        self._after = last_read_at(history)
        self._refs = known_refs(history)

    async def listen(self, address: Address, inputs: Sequence[ThreadInput]) -> Message | None:
        """Returns the thread's other messages since the last read as one message, or None if there are none.

        Also returns None if the platform fails or does not reply within READ_SECONDS.
        """
        talk = self._talks.get(address.platform)
        if talk is None or not inputs:
            return None
        before = max(one.sent_at for one in inputs)
        try:
            async with asyncio.timeout(READ_SECONDS):
                heard = await talk.read(
                    address, before=before, limit=BACKGROUND_MESSAGES_MAX, after=self._after
                )
        except (SurfaceError, AgentError, TimeoutError) as error:
            log.warning("the talk in the thread was not read: %s", type(error).__name__)
            return None
        known = self._refs | {one.message_ref for one in inputs if one.message_ref}
        is_first, self._after = self._after is None, before
        new = [one for one in heard if one.message_ref not in known]
        self._refs = known | {one.message_ref for one in new if one.message_ref}
        return background_message(
            new, thread_id=self._thread_id, run_id=self._run_id, is_first=is_first
        )
