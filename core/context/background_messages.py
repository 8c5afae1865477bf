"""What was said in the chat thread beside the agent, as the agent is told it."""

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
"""Marks a message on the users' side that carries out a plan: no person wrote it."""
_BEFORE = "Said in the thread before you were called, oldest first. It was not said to you."
_SINCE = "Said in the thread since your last turn, oldest first. It was not said to you."


def background_message(
    heard: Sequence[ChatMessage], *, thread_id: str, run_id: str, is_first: bool
) -> Message | None:
    """One message that tells who said what: a JSON object a line, so that no text can pass for another person's.

    The newest are kept where all would be too long. None where there is nothing to tell.
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
    """The chat messages that the agent has been told of already."""
    told = (one.metadata.get(BACKGROUND_REFS_KEY) for one in history)
    refs = chain.from_iterable(one for one in told if isinstance(one, list))
    own = (one.metadata.get("message_ref") for one in history)
    return frozenset(str(ref) for ref in chain(refs, own) if ref)


def last_read_at(history: Sequence[Message]) -> datetime | None:
    """When the agent last took up what people said; None in a new conversation."""
    return next(
        (
            one.created_at
            for one in reversed(history)
            if one.type == "user" and not one.metadata.get(FLOW_KEY)
        ),
        None,
    )


def is_from_person(message: Message) -> bool:
    """Whether a person said it to the agent."""
    is_marked = message.metadata.get(BACKGROUND_KEY) or message.metadata.get(FLOW_KEY)
    return message.type == "user" and not is_marked


log = logging.getLogger(__name__)
READ_SECONDS = 5.0


class BackgroundMessageReader:
    """One run's ear. State: until when it has listened, and what the agent has been told."""

    def __init__(self, talks: Mapping[str, ChatHistory], thread_id: str, run_id: str) -> None:
        """`talks` by platform; on one that is not among them nothing is heard."""
        self._talks = talks
        self._thread_id = thread_id
        self._run_id = run_id
        self._after: datetime | None = None
        self._refs: frozenset[str] = frozenset()

    def remember(self, history: Sequence[Message]) -> None:
        """Takes up what the stored conversation tells already."""
        self._after = last_read_at(history)
        self._refs = known_refs(history)

    async def listen(self, address: Address, inputs: Sequence[ThreadInput]) -> Message | None:
        """What was said beside the inputs since it listened last. A chat that does not answer is no reason to wait."""
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
