"""Reading what was said in a chat thread beside the agent, before it takes up what was said to it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from core.context.heard import HEARD_MESSAGES_MAX, heard_message, known_refs, listened_until
from core.domain.errors import AgentError, SurfaceError
from core.domain.messages import Message
from core.domain.threads import Address, ThreadInput
from core.ports import ThreadTalk

log = logging.getLogger(__name__)
READ_SECONDS = 5.0


class Listener:
    """One run's ear. State: until when it has listened, and what the agent has been told."""

    def __init__(self, talks: Mapping[str, ThreadTalk], thread_id: str, run_id: str) -> None:
        """`talks` by platform; on one that is not among them nothing is heard."""
        self._talks = talks
        self._thread_id = thread_id
        self._run_id = run_id
        self._after: datetime | None = None
        self._refs: frozenset[str] = frozenset()

    def remember(self, history: Sequence[Message]) -> None:
        """Takes up what the stored conversation tells already."""
        self._after = listened_until(history)
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
                    address, before=before, limit=HEARD_MESSAGES_MAX, after=self._after
                )
        except (SurfaceError, AgentError, TimeoutError) as error:
            log.warning("the talk in the thread was not read: %s", type(error).__name__)
            return None
        known = self._refs | {one.message_ref for one in inputs if one.message_ref}
        is_first, self._after = self._after is None, before
        new = [one for one in heard if one.message_ref not in known]
        self._refs = known | {one.message_ref for one in new if one.message_ref}
        return heard_message(new, thread_id=self._thread_id, run_id=self._run_id, is_first=is_first)
