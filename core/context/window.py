"""A run's view of its conversation: what the next model call is sent, always within the model's limit."""

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
"""A conversation that is larger is cut in a thread, away from the loop."""
HARDER_PERCENT = 60
ROOM_TOKENS_MIN = 2_000
WORTH_PERCENT = 20
"""A summary that is not yet forced waits until it would replace so much of the conversation."""
RETRY_GROWTH_PERCENT = 120
"""A summary that failed is tried again when the conversation has grown so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """How conversations are held. `limits` are by the model's whole name; others go by family.

    `window_tokens` and `answer_tokens` are the operator's word, for whatever model.
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
    """The conversation of one run. State: its messages, what of them is sent shortened, and the room there is."""

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
        """`overhead_tokens`: what the system prompt and the tools cost in every call."""
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
        """Takes a stored history up, with the cuts that were made in it before."""
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
        """What came next in the conversation; what no model is sent for good goes along where it stands."""
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
        """The next call: what is blank, the conversation, and notes for this call alone.

        Raises ContextOverflow, with the figures, where nothing helps.
        """
        return await self._filled(blank.messages, notes, blank)

    async def smaller(self, refused: ModelRequest) -> ModelRequest:
        """The same call with less of the conversation, for a model that refused it as too long."""
        self._room_max = min(self._room_max, self._sent_tokens) * HARDER_PERCENT // 100
        start, end = self._sent_place
        return await self._filled(refused.messages[:start], refused.messages[end:], refused)

    @property
    def shows_pictures(self) -> bool:
        """Whether a call may have pictures that the model was to look at."""
        return self._sees_images and bool(self._passing)

    async def blind(self, refused: ModelRequest) -> ModelRequest:
        """The same call without pictures, and so are all later ones: the model takes none."""
        self._sees_images = False
        start, end = self._sent_place
        return await self._filled(refused.messages[:start], refused.messages[end:], refused)

    def refused(self, error: ContextOverflow) -> ContextOverflow:
        """What people are told when even the smaller conversation was refused."""
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
        """The cuts since the last call of this, for the metadata of the message that the model answers with: so a later
        run sends the same again."""
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
        """Puts a summary in place of the older messages. One that fails changes nothing: cutting remains."""
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
        """The last resort: the oldest messages go, and a note says so. Nothing of it is stored."""
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
        """What is sent for this call alone stands in front of the last message of a person."""
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
    """The cuts that the assistant messages of a history tell of, the newest for each message."""
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
