"""Shows an answer while the model is still writing it, if the platform supports streamed messages."""

import asyncio
import logging
import time
from contextlib import suppress

from bots.delivery.poster import Poster
from core.domain.errors import LeaseLost, StorageUnavailable, SurfaceError, SurfaceRateLimited
from core.domain.events import (
    AgentEvent,
    ReplyLeft,
    ResponseStarted,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolProgressed,
    ToolStarted,
    TurnStarted,
)
from core.domain.threads import Run
from core.loop.calls import ENDING_TOOLS
from core.stores import DeliveryDraft
from core.tasks import wait_at_most

log = logging.getLogger(__name__)

STREAM = DeliveryDraft(slot="stream", body={})
STREAM_AFTER_CHARACTERS = 200
"""Shorter text is not streamed, because it is a short answer or the words before a tool call."""
STREAM_CHARACTERS_MAX = 50_000
"""More than fits into one message on any platform. There is a limit because each addition copies the whole text."""
APPEND_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 20.0
"""After this long without new text, an empty append keeps the stream open. Slack closes idle streams after some
minutes."""


class AnswerStream:
    """The text that the model writes in the newest turn, and the message that shows it.

    A run streams at most one message. If a tool call follows the text, the message keeps the text, and the answer
    becomes a message of its own. Otherwise the message becomes the answer (`Poster.finish_stream`) when the run ends or
    leaves a reply, however much of the text was shown. So nothing is lost or doubled if an append fails, the model is
    asked again, or the process dies."""

    def __init__(self) -> None:
        self._text = ""
        self._next_sequence = 0
        self._is_complete = True
        self._has_begun = self._is_left = self._is_started = False
        self._is_due = asyncio.Event()
        self._ended = asyncio.Event()
        self.written = asyncio.Event()
        """Set once nothing more will be written to the message."""

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def is_growing(self) -> bool:
        """Whether users see the text grow in a message of its own."""
        return self._is_started and not self.has_ended

    def apply(self, event: AgentEvent) -> None:
        if self.has_ended:
            return
        match event:
            case TurnStarted():
                self._end_if_begun()
                self._next_sequence = 0
                self._begin_text()
            case ToolStarted(name=name) if name not in ENDING_TOOLS:
                self._end_if_begun()
            case ReplyLeft() | RunFinished() | RunFailed():
                self.leave_to_outbox()
            case ResponseStarted():
                self._begin_text()
            case TextStreamed() | ThinkingStreamed() | ToolCallStreamed() | ToolProgressed():
                self._is_complete &= event.sequence == self._next_sequence
                self._next_sequence = event.sequence + 1
                has_room = len(self._text) < STREAM_CHARACTERS_MAX
                if isinstance(event, TextStreamed) and self._is_complete and has_room:
                    self._text += event.text
                    if len(self._text) >= STREAM_AFTER_CHARACTERS:
                        self._is_due.set()
            case _:
                pass

    def leave_to_outbox(self) -> None:
        """Ends the text. If there is an answer, the outbox replaces the text with it (`Poster.finish_stream`)."""
        self._is_left = self._is_left or not self.has_ended
        self._ended.set()
        self._is_due.set()

    def _end_if_begun(self) -> None:
        if self._has_begun:
            self._ended.set()

    def _begin_text(self) -> None:
        """Discards the text of an earlier response. If that text is already shown, nothing is added to it."""
        self._is_complete = not self._has_begun
        if not self._has_begun:
            self._text = ""
            self._is_due.clear()

    async def stream_until_end(self, run: Run, poster: Poster) -> None:
        """Streams the text until it ends. Logs errors instead of raising them, because the answer is posted in any
        case."""
        try:
            if run.attention == "addressed" and not poster.rendering.has_earlier:
                while not self._is_due.is_set():  # a new response may clear the event before this task resumes
                    await self._is_due.wait()
                await self._write(poster)
        except (SurfaceError, StorageUnavailable) as error:
            log.info("the stream of run %s ends early: %s", run.run_id, error)
        except LeaseLost:
            log.info("another process shows run %s now", run.run_id)
        finally:
            self._is_started = False  # after a failure, the status message shows the text
            self.written.set()

    async def _write(self, poster: Poster) -> None:
        if self.has_ended or (streams := await poster.surface.find_streams(poster.address)) is None:
            return
        stream = await poster.plan_delivery(STREAM)
        if stream.state != "pending":
            return  # an earlier process has started the stream with another text
        self._has_begun = True
        self._is_started = await poster.start_stream(stream, streams)
        if not self._is_started:
            return
        sent, appended_at = 0, time.monotonic()
        while not self.has_ended:
            text, pause_seconds = self._text[sent : poster.surface.answer_limit], APPEND_SECONDS
            # ends with a whole word, because half a mention would not be recognised
            text = text[: max(text.rfind(" "), text.rfind("\n")) + 1]
            if text or time.monotonic() - appended_at > KEEP_ALIVE_SECONDS:
                try:
                    await poster.append_to_stream(stream, streams, text)
                    sent, appended_at = sent + len(text), time.monotonic()
                except SurfaceRateLimited as limited:  # the next append sends the text again
                    pause_seconds = max(pause_seconds, limited.retry_after_seconds)
            await wait_at_most(self._ended, pause_seconds)
        if not self._is_left:
            rest = self._text[sent : poster.surface.answer_limit]
            with suppress(SurfaceError):
                await poster.append_to_stream(stream, streams, rest)
            await poster.finish_stream(stream)
