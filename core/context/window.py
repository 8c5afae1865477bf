"""Selects the messages of a run's conversation for each model call, so that the request fits the context limit."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.context.ephemeral_messages import ephemeral_contents
from core.context.limits import ContextLimit, find_context_limit, with_overrides
from core.context.summary import (
    OUTPUT_TOKENS_MAX,
    PROMPT_TOKENS,
    Complete,
    find_summary_boundary,
    messages_since_summary,
    omission_note,
    summarise,
)
from core.context.tokens import count_message, message_tokens, with_token_count
from core.context.truncation import (
    Cut,
    FittedMessages,
    TruncatedMessage,
    fit_messages,
    truncate_message,
)
from core.domain.errors import ContextOverflow, ModelError
from core.domain.events import ActivityChanged, AgentEvent, MessageAdded
from core.domain.messages import JsonObject, Message
from core.ports import ModelRequest

log = logging.getLogger(__name__)
CUTS = "cuts"
INLINE_TOKENS_MAX = 20_000
"""Larger conversations are truncated in a worker thread, so that the event loop is not blocked."""
HARDER_PERCENT = 60
ROOM_TOKENS_MIN = 2_000
WORTH_PERCENT = 20
"""An optional summary is made only if it replaces at least this share of the conversation."""
RETRY_GROWTH_PERCENT = 120
"""After a failed summary, the next attempt waits until the conversation has grown to this percentage of its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """Limits for conversations, in tokens.

    A conversation above `summary_tokens` is summarised, except its newest `kept_tokens`. `limits` maps full model names
    to context limits; other models use the limit of their family. `window_tokens` and `answer_tokens` override the
    limits of all models.
    """

    summary_tokens: int = 120_000
    kept_tokens: int = 30_000
    limits: Mapping[str, ContextLimit] = field(default_factory=dict[str, ContextLimit])
    window_tokens: int | None = None
    answer_tokens: int | None = None

    def limit_of(self, model: str) -> ContextLimit:
        return with_overrides(
            find_context_limit(model, self.limits),
            window=self.window_tokens,
            reserved=self.answer_tokens,
        )


class ContextWindow:
    """The conversation of one run: its messages, the truncated versions that are sent, and the tokens available."""

    def __init__(
        self,
        *,
        model: str,
        run_id: str,
        policy: ContextPolicy,
        overhead_tokens: int,
        complete: Complete,
        emit: Callable[[AgentEvent], None],
    ) -> None:
        """`overhead_tokens` is the token count of the system prompt and the tools, which every call includes."""
        self._model = model
        self._run_id = run_id
        self._policy = policy
        self._overhead = overhead_tokens
        self._complete = complete
        self._emit = emit
        self._limit = policy.limit_of(model)
        self._room_max = self._limit.room - overhead_tokens
        self._messages: list[Message] = []
        self._passing: list[Message] = []
        self._shown: Mapping[str, TruncatedMessage] = {}
        self._unnoted: dict[str, Cut] = {}
        self._summary_from = policy.summary_tokens
        self._sent_tokens = 0
        self._sent_place = (0, 0)
        self._browser_place = 0
        self._sees_images = True

    async def load(self, history: Sequence[Message]) -> None:
        """Adds a stored history, with messages truncated as in earlier runs."""
        self.add(messages_since_summary(history))
        cuts = stored_cuts(self._messages)
        if cuts:
            known = [one for one in self._messages if one.message_id in cuts]
            self._shown = await asyncio.to_thread(
                lambda: {
                    one.message_id: truncate_message(one, cuts[one.message_id]) for one in known
                }
            )

    def add(self, messages: Sequence[Message]) -> None:
        """Adds new messages to the conversation. Only the newest browser state and the newest viewed image are kept."""
        for message in messages:
            if message.is_llm_message:
                self._messages.append(with_token_count(message))
            elif message.type in ("browser_state", "image_context"):
                self._passing = [one for one in self._passing if one.type != message.type]
                self._passing.append(message)
            else:
                continue
            if message.type == "browser_state":
                self._browser_place = len(self._messages)

    async def request(self, blank: ModelRequest, notes: Sequence[JsonObject]) -> ModelRequest:
        """Returns the request `blank` with the conversation added, then `notes`, which are sent with this call only.

        Raises ContextOverflow if the conversation is too long even after it was shortened.
        """
        return await self._filled(blank.messages, notes, blank)

    async def smaller(self, refused: ModelRequest) -> ModelRequest:
        """Returns the request with a shorter conversation, after the model refused it as too long."""
        self._room_max = min(self._room_max, self._sent_tokens) * HARDER_PERCENT // 100
        start, end = self._sent_place
        return await self._filled(refused.messages[:start], refused.messages[end:], refused)

    @property
    def shows_pictures(self) -> bool:
        """Whether the next request may contain a browser screenshot or a viewed image."""
        return self._sees_images and bool(self._passing)

    async def blind(self, refused: ModelRequest) -> ModelRequest:
        """Returns the request without images, after the model refused them. Later requests have no images either."""
        self._sees_images = False
        start, end = self._sent_place
        return await self._filled(refused.messages[:start], refused.messages[end:], refused)

    def refused(self, error: ContextOverflow) -> ContextOverflow:
        """Returns the error to show to people if the model refused even the shorter conversation."""
        return self._overflow(self._sent_tokens + self._overhead, detail=error.detail)

    async def _filled(
        self, head: Sequence[JsonObject], tail: Sequence[JsonObject], request: ModelRequest
    ) -> ModelRequest:
        contents = await self._contents()
        self._sent_place = (len(head), len(head) + len(contents))
        return replace(request, messages=(*head, *contents, *tail))

    async def _contents(self) -> tuple[JsonObject, ...]:
        passing = self._passing_contents()
        room = self._room_max - sum(count_message(one) for one in passing)
        if room < ROOM_TOKENS_MIN:
            raise self._overflow(self._overhead)
        if self._whole_tokens() > self._summary_from:
            await self._summarise(room, percent_min=WORTH_PERCENT)
        fitted = await self._fit(room)
        if fitted.is_over:
            await self._summarise(room, percent_min=0)
            fitted = await self._fit(room)
        if fitted.is_over:
            self._leave_out(room)
            fitted = await self._fit(room)
        self._sent_tokens = fitted.tokens
        if fitted.is_over:
            raise self._overflow(fitted.tokens + self._overhead)
        return self._placed(fitted.contents, passing)

    def notes(self) -> JsonObject:
        """Returns the truncations made since the last call of this method, as metadata for the model's next message.

        A later run reads them to send the same truncated messages, so that the provider's prompt cache stays valid.
        """
        cuts, self._unnoted = self._unnoted, {}
        if not cuts:
            return {}
        return {CUTS: {key: [cut.tokens, cut.keeps_tail] for key, cut in cuts.items()}}

    def _whole_tokens(self) -> int:
        return sum(message_tokens(one) for one in self._messages)

    async def _fit(self, room: int) -> FittedMessages:
        messages = self._messages
        if self._whole_tokens() <= max(room, INLINE_TOKENS_MAX):
            fitted = fit_messages(messages, room, self._shown)
        else:
            fitted = await asyncio.to_thread(fit_messages, messages, room, self._shown)
        self._shown = fitted.shown
        self._unnoted.update(fitted.made)
        return fitted

    async def _summarise(self, room: int, *, percent_min: int) -> None:
        """Replaces the older messages with a summary. If the model call fails, the messages stay as they were.

        Does nothing if the summary would replace less than `percent_min` percent of the conversation.
        """
        kept = min(self._policy.kept_tokens, room // 3)
        place = find_summary_boundary(self._messages, kept, self._sizes())
        older, newer = self._messages[:place], self._messages[place:]
        won = sum(message_tokens(one) for one in older)
        if not older or won * 100 < self._whole_tokens() * percent_min:
            return
        self._emit(ActivityChanged(text="Summing up the earlier conversation"))
        try:
            made = await summarise(
                older,
                complete=self._complete,
                model=self._model,
                room=max(1, self._limit.room - PROMPT_TOKENS - OUTPUT_TOKENS_MAX),
                run_id=self._run_id,
            )
        except (ModelError, ValueError) as error:
            log.warning("no summary for run %s: %s", self._run_id, type(error).__name__)
            self._summary_from = self._whole_tokens() * RETRY_GROWTH_PERCENT // 100
            return
        self._emit(MessageAdded(message=made))
        self._replace(made, newer)

    def _leave_out(self, room: int) -> None:
        """Replaces the oldest messages with a note, if neither truncation nor a summary was enough. Stores nothing."""
        place = find_summary_boundary(self._messages, room * 2 // 3, self._sizes())
        if place:
            note = omission_note(self._messages[:place], run_id=self._run_id)
            self._replace(note, self._messages[place:])

    def _replace(self, message: Message, newer: Sequence[Message]) -> None:
        gone = len(self._messages) - len(newer)
        self._browser_place = max(0, self._browser_place - gone + 1)
        self._messages = [message, *newer]
        left = {one.message_id for one in newer}
        self._shown = {key: short for key, short in self._shown.items() if key in left}

    def _sizes(self) -> dict[str, int]:
        return {key: short.tokens for key, short in self._shown.items()}

    def _passing_contents(self) -> tuple[JsonObject, ...]:
        if not self._passing:
            return ()
        return ephemeral_contents(
            self._passing,
            messages_since_browser=len(self._messages) - self._browser_place,
            sees_images=self._sees_images,
        )

    def _placed(
        self, contents: tuple[JsonObject, ...], passing: tuple[JsonObject, ...]
    ) -> tuple[JsonObject, ...]:
        """Returns the contents with the ephemeral messages inserted before the newest user message."""
        if not passing:
            return contents
        users = [index for index, one in enumerate(self._messages) if one.type == "user"]
        place = users[-1] if users else len(contents)
        return (*contents[:place], *passing, *contents[place:])

    def _overflow(self, tokens: int, *, detail: str = "") -> ContextOverflow:
        return ContextOverflow(
            f"The conversation is too long for {self._model} even when it is shortened: it comes to about {tokens:,}"
            f" tokens, and the model takes {self._limit.window:,} with its answer. Start a new thread, or have a model"
            " with a larger window set.",
            detail=detail,
        )


def stored_cuts(messages: Sequence[Message]) -> dict[str, Cut]:
    """Returns the newest truncation of each message, by message id, from the metadata of a stored history."""
    found: dict[str, Cut] = {}
    for message in messages:
        noted = message.metadata.get(CUTS)
        if not isinstance(noted, dict):
            continue
        for key, value in noted.items():
            match value:
                case [int(tokens), bool(keeps_tail)]:
                    found[key] = Cut(tokens=tokens, keeps_tail=keeps_tail)
                case _:
                    log.warning("a cut of message %s cannot be read", key)
    return found
