"""Selects the messages of a run's conversation for each model call, so that the request fits the context limit."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from core.context.limits import ASSUMED, ContextLimit, ObservedWindows, find_context_limit, with_overrides
from core.context.message_text import TIME_ZONE_KEY, build_link_rule, format_for_model, sources_of_message
from core.context.program_message import build_program_message
from core.context.request_tail import BROWSER_RESPONSES, PICTURE_RESPONSES, PICTURES_MAX, RequestTail, picture_name
from core.context.role_alternation import build_conversation, with_passing_message
from core.context.summary import (
    Complete,
    UnusableSummary,
    build_omission_note,
    find_summary_boundary,
    newest_summary_and_later,
    summarise,
)
from core.context.todo_file import todo_call, todo_text_in_history
from core.context.tokens import count_message, count_text, message_tokens, with_token_count
from core.context.truncation import Cut, FittedMessages, TruncatedMessage, fit_messages, truncate_message
from core.domain.answer_links import LinkRule
from core.domain.errors import ContextOverflow, ModelError
from core.domain.events import ActivityChanged, AgentEvent, MessageAdded
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.sources import NO_SOURCES, Sources, join_sources
from core.ports import ModelRequest

log = logging.getLogger(__name__)
CUTS = "cuts"
INLINE_TOKENS_MAX = 20_000
"""Larger conversations are truncated in a worker thread, so that the event loop is not blocked."""
HARDER_PERCENT = 60
ROOM_TOKENS_MIN = 2_000
WORTH_PERCENT = 20
"""An optional summary is made only if it replaces at least this share of the conversation."""
FULL_PERCENT = 70
"""If more of the room is used after a truncation, a summary follows, because the next truncation would come soon."""
RETRY_GROWTH_PERCENT = 100
"""After a failed summary, the next one waits until the conversation has got this percentage of its size in addition."""
NO_STATE: Mapping[str, str] = {}
PICTURES_GONE = "Pictures from earlier that are no longer shown: {names}. `see_image` shows a picture again."
SETTINGS = (
    "THREADHAND_CONTEXT_TOKENS sets the size of the window, and THREADHAND_ANSWER_TOKENS the part of"
    " it that is kept for the response."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """Limits for conversations, in tokens.

    A conversation above `summary_tokens` is summarised, except its newest `kept_tokens`. `limits` maps full and bare
    model names to context limits; other models use the limit of their family. `window_tokens` and `answer_tokens`
    override the limits of all models, and `observed` lowers them for services that cut requests."""

    summary_tokens: int = 120_000
    kept_tokens: int = 30_000
    limits: Mapping[str, ContextLimit] = field(default_factory=dict[str, ContextLimit])
    window_tokens: int | None = None
    answer_tokens: int | None = None
    observed: ObservedWindows = field(default_factory=ObservedWindows, compare=False)

    def limit_of(self, model: str) -> ContextLimit:
        limit = find_context_limit(model, self.limits)
        limit = with_overrides(limit, window=self.window_tokens, reserved=self.answer_tokens)
        return self.observed.lower_limit(limit, model)

    def window_text(self, model: str) -> str:
        """Returns a sentence for the operator about the window of the model and where its size comes from."""
        limit = self.limit_of(model)
        remedy = " Set THREADHAND_CONTEXT_TOKENS to its real size." if limit.source == ASSUMED else ""
        return f"The context window of {model} has {limit.window:,} tokens, a size that is {limit.source}.{remedy}"


class ContextWindow:
    """The conversation of one run: its messages as they are sent, the tokens available, and what is sent with one
    request only."""

    def __init__(
        self,
        *,
        model: str,
        run_id: str,
        policy: ContextPolicy,
        overhead_tokens: int,
        complete: Complete,
        emit: Callable[[AgentEvent], None],
        is_native: bool = True,
    ) -> None:
        """`overhead_tokens` is the token count of the system prompt and the tools, which every call includes.

        `is_native` says whether the model receives tool results in messages of their own role."""
        self._model = model
        self._run_id = run_id
        self._policy = policy
        self._overhead = overhead_tokens
        self._complete = complete
        self._emit = emit
        self._limit = policy.limit_of(model)
        self._room_max = self._limit.room - overhead_tokens
        self._messages: list[Message] = []
        self._is_native = is_native
        self._todo_results: dict[str, Message] = {}
        self._responses = 0
        self._pictures: list[tuple[int, Message]] = []
        self._browser: tuple[int, Message] | None = None
        self._tail = RequestTail()
        self._shown: Mapping[str, TruncatedMessage] = {}
        self._unnoted: dict[str, Cut] = {}
        self._added_tokens = self._whole_tokens = 0
        self._summary_from = 0
        self._may_repeat_summary = True
        self._sent_tokens = 0
        self._refused_tokens = 0
        self._head_length = 0
        self._sees_images = True
        self.time_zone = ""
        """The time zone of the author of the newest message that a user wrote, or an empty text."""
        self.sources = NO_SOURCES
        """The sources of all text that the conversation has contained. A summary carries those of what it replaces."""

    async def load(self, history: Sequence[Message]) -> None:
        """Adds the stored history of a thread, with messages truncated as in earlier runs. Instead of messages that a
        summary replaces, the summary is sent."""
        zones = (one.metadata[TIME_ZONE_KEY] for one in reversed(history) if TIME_ZONE_KEY in one.metadata)
        self.time_zone = str(next(zones, ""))
        recent = newest_summary_and_later(history)
        if sum(message_tokens(one) for one in recent) > INLINE_TOKENS_MAX:
            self._add(*await asyncio.to_thread(self._read, recent))
        else:
            self.add(recent)
        cuts = stored_cuts(self._messages)
        if cuts:
            known = [one for one in self._messages if one.message_id in cuts]
            self._shown = await asyncio.to_thread(
                lambda: {one.message_id: truncate_message(one, cuts[one.message_id]) for one in known}
            )

    def add(self, messages: Sequence[Message]) -> None:
        """Adds new messages to the conversation. Of browser states, only the newest is kept."""
        self._add(*self._read(messages))

    def _read(self, messages: Sequence[Message]) -> tuple[list[Message], Sources]:
        """Returns the messages as they are sent, and their sources."""
        sent = list[Message]()
        for message in messages:
            if message.is_llm_message:
                if message.type == "summary" or todo_call(message):
                    self._todo_results[message.message_id] = message
                message = with_token_count(format_for_model(message, is_native=self._is_native))
            sent.append(message)
        return sent, join_sources(map(sources_of_message, messages))

    def _add(self, messages: Sequence[Message], sources: Sources) -> None:
        self.sources = join_sources([self.sources, sources])
        for message in messages:
            self.time_zone = str(message.metadata.get(TIME_ZONE_KEY, self.time_zone))
            if message.is_llm_message:
                self._messages.append(message)
                self._responses += message.type == "assistant"
                self._added_tokens += message_tokens(message)
                self._whole_tokens += message_tokens(message)
            elif message.type == "browser_state":
                self._browser = (self._responses, message)
            elif message.type == "image_context":
                self._pictures.append((self._responses, message))

    async def request(
        self, blank: ModelRequest, notes: Sequence[str] = (), *, state: Mapping[str, str] = NO_STATE
    ) -> ModelRequest:
        """Returns the request `blank` with the conversation added, and the browser and pictures at its end.

        Before that, adds a message with `notes` and with the parts of `state` that the conversation does not tell yet.
        Raises ContextOverflow if the system prompt and the tools leave no room for a conversation."""
        self._limit = self._policy.limit_of(self._model)
        self._room_max = min(self._room_max, self._limit.room - self._overhead)
        age = self._responses - self._browser[0] if self._browser else 0
        browser = self._browser[1] if self._browser and age <= BROWSER_RESPONSES else None
        oldest = self._responses - PICTURE_RESPONSES
        self._tail = RequestTail(browser=browser, pictures=[picture for at, picture in self._pictures if at >= oldest])
        shown = set(map(picture_name, self._tail.pictures))
        older = dict.fromkeys(picture_name(picture) for at, picture in self._pictures if at < oldest)
        gone = ", ".join([name for name in older if name not in shown][-PICTURES_MAX:])
        state = {**state, "pictures": PICTURES_GONE.format(names=gone) if gone else ""}
        # a summary may replace an earlier program message, so it is made before the next one
        await self._contents(self._tail_tokens() + sum(map(count_text, (*state.values(), *notes))))
        if message := build_program_message(state, notes, self._messages, run_id=self._run_id):
            self._emit(MessageAdded(message=message))
            self.add([message])
        return await self._filled(blank.messages, blank)

    async def shorten(self, refused: ModelRequest) -> ModelRequest:
        """Returns the request with a shorter conversation, after the model refused it as too long."""
        self._lower_room()
        return await self._filled(refused.messages[: self._head_length], refused)

    async def start_over(self, refused: ModelRequest) -> ModelRequest:
        """Returns the request with a summary in place of the whole conversation, after the model refused it again."""
        self._lower_room()
        if not await self._summarise_until(len(self._messages), self._room_max):
            self._leave_out(len(self._messages), self._room_max)
        return await self._filled(refused.messages[: self._head_length], refused)

    def _lower_room(self) -> None:
        self._refused_tokens = self._overhead + self._sent_tokens + self._tail_tokens()
        self._room_max = min(self._room_max, self._sent_tokens) * HARDER_PERCENT // 100

    @property
    def newest(self) -> Message | None:
        """The newest message of the conversation, or None if it is empty."""
        return self._messages[-1] if self._messages else None

    @property
    def links(self) -> LinkRule:
        """Which addresses the answer may link to. It has the sources of the conversation."""
        return build_link_rule(self._messages, self.sources)

    @property
    def shows_pictures(self) -> bool:
        """Whether the newest request contains a browser screenshot or a picture."""
        return self._sees_images and self._tail.has_images

    async def without_pictures(self, refused: ModelRequest) -> ModelRequest:
        """Returns the request without images, after the model refused them. Later requests have no images either."""
        self._sees_images = False
        return await self._filled(refused.messages[: self._head_length], refused)

    def build_overflow_error(self, error: ContextOverflow) -> ContextOverflow:
        """Returns the error to show to users if the model refused even a summary of the conversation."""
        self._lower_room()
        return self._overflow(detail=error.detail)

    async def _filled(self, head: Sequence[JsonObject], request: ModelRequest) -> ModelRequest:
        contents = await self._contents(self._tail_tokens())
        stable = (*head, *build_conversation(self._messages, contents))
        self._head_length = len(head)
        request = replace(request, messages=stable, stable_messages=len(stable))
        tail = self._tail.build_message(sees_images=self._sees_images)
        return request if tail is None else with_passing_message(request, tail)

    def _tail_tokens(self) -> int:
        tail = self._tail.build_message(sees_images=self._sees_images)
        return 0 if tail is None else count_message(tail)

    def _todo_after(self, messages: Sequence[Message]) -> str | None:
        known = self._todo_results
        return todo_text_in_history([known[one.message_id] for one in messages if one.message_id in known])

    async def _contents(self, tail_tokens: int) -> tuple[JsonObject, ...]:
        """Makes the conversation fit, and returns the contents of its messages. Raises ContextOverflow."""
        room = self._room_max - tail_tokens
        if room < ROOM_TOKENS_MIN:
            raise self._overflow(tail_tokens)
        if self._whole_tokens > self._policy.summary_tokens:
            await self._summarise(room)
        fitted = await self._fit(room)
        is_full = bool(fitted.made) and fitted.tokens > room * FULL_PERCENT // 100
        if fitted.is_over or is_full:
            await self._summarise(room, is_needed=fitted.is_over)
            fitted = await self._fit(room)
        if fitted.is_over and (place := find_summary_boundary(self._messages, room * 2 // 3, self._sizes())):
            self._leave_out(place, room)
            fitted = await self._fit(room)
        if fitted.is_over:
            self._leave_out(len(self._messages), room)
            fitted = await self._fit(room)
        self._sent_tokens = fitted.tokens
        if fitted.is_over:
            raise self._overflow(tail_tokens, fitted.tokens)
        return fitted.contents

    def take_cut_notes(self) -> JsonObject:
        """Returns the truncations made since the last call of this method, as metadata for the model's next message.

        A later run reads them to send the same truncated messages, so that the provider's prompt cache stays valid."""
        cuts, self._unnoted = self._unnoted, {}
        if not cuts:
            return {}
        return {CUTS: {key: [cut.tokens, cut.keeps_reasoning] for key, cut in cuts.items()}}

    async def _fit(self, room: int) -> FittedMessages:
        messages = self._messages
        if self._whole_tokens <= max(room, INLINE_TOKENS_MAX):
            fitted = fit_messages(messages, room, self._shown)
        else:
            fitted = await asyncio.to_thread(fit_messages, messages, room, self._shown)
        self._shown = fitted.shown
        self._unnoted.update(fitted.made)
        return fitted

    async def _summarise(self, room: int, *, is_needed: bool = False) -> None:
        """Replaces the older messages with a summary. If the model call fails, the messages stay as they were.

        An optional summary is not made if it would replace too little. A needed one replaces the newest turn as well if
        that turn is too long for the model, for example because it has very many calls."""
        kept = min(self._policy.kept_tokens, room // 3)
        place = find_summary_boundary(self._messages, kept, self._sizes())
        won = sum(message_tokens(one) for one in self._messages[:place])
        is_worth_it = won * 100 >= self._whole_tokens * WORTH_PERCENT
        sizes = self._sizes() if is_needed else {}
        newer = (sizes.get(one.message_id) or message_tokens(one) for one in self._messages[place:])
        if is_needed and sum(newer) > room:
            place = len(self._messages)
        if place and (is_needed or is_worth_it):
            await self._summarise_until(place, room)

    async def _summarise_until(self, place: int, room: int) -> bool:
        """Replaces that many messages with a summary. Returns False if no summary could be made, or if a summary has
        failed and the conversation has not grown much since."""
        if self._added_tokens < self._summary_from:
            return False
        older, newer = self._messages[:place], self._messages[place:]
        self._emit(ActivityChanged(text="Summing up the earlier conversation"))
        make = partial(
            summarise,
            older,
            complete=self._complete,
            model=self._model,
            room=room,
            answer_tokens=self._limit.reserved,
            run_id=self._run_id,
            todo=self._todo_after(older),
        )
        try:
            try:
                made = await make(is_last_attempt=not self._may_repeat_summary)
            except UnusableSummary:
                if not self._may_repeat_summary:
                    raise
                self._may_repeat_summary = False  # once in a run
                made = await make(is_last_attempt=True)
        except (ModelError, UnusableSummary) as error:
            log.warning("no summary for run %s: %s", self._run_id, type(error).__name__)
            growth = self._whole_tokens * RETRY_GROWTH_PERCENT // 100
            self._summary_from = self._added_tokens + growth
            return False
        self._emit(MessageAdded(message=made))
        self._replace(made, newer)
        return True

    def _leave_out(self, place: int, room: int) -> None:
        """Replaces the given number of messages with a note. Used if truncation and a summary were not enough. Stores
        nothing."""
        older = self._messages[:place]
        note = build_omission_note(older, run_id=self._run_id, room=room, todo=self._todo_after(older))
        self._replace(note, self._messages[place:])

    def _replace(self, message: Message, newer: Sequence[Message]) -> None:
        self._messages = [message, *newer]
        self._whole_tokens = sum(map(message_tokens, self._messages))
        self._todo_results[message.message_id] = message
        left = {one.message_id for one in newer}
        self._shown = {key: short for key, short in self._shown.items() if key in left}

    def _sizes(self) -> dict[str, int]:
        return {key: short.tokens for key, short in self._shown.items()}

    def _overflow(self, tail_tokens: int = 0, conversation_tokens: int = 0, *, detail: str = "") -> ContextOverflow:
        limit = self._limit
        window = f"its window of {limit.window:,} tokens (a size that is {limit.source})"
        parts = {
            "the instructions and the tools": self._overhead,
            "the response": limit.reserved,
            "the images, the browser page and the notes": tail_tokens,
            "the conversation in its shortest form": conversation_tokens,
        }
        largest = max(parts, key=parts.__getitem__)
        sentence = (
            f"{self._model} refuses the conversation as too long, even in its shortest form: the last request had about"
            f" {self._refused_tokens:,} tokens of {window}."
            if self._refused_tokens
            else f"{self._model} has no room for a conversation: of {window}, about {parts[largest]:,} are for"
            f" {largest}."
        )
        return ContextOverflow(sentence, detail=f"{detail} {SETTINGS}".strip())


def stored_cuts(messages: Sequence[Message]) -> dict[str, Cut]:
    """Returns the newest truncation of each message, by message id, from the metadata of a stored history."""
    found: dict[str, Cut] = {}
    for message in messages:
        noted = message.metadata.get(CUTS)
        if not isinstance(noted, dict):
            continue
        for key, value in noted.items():
            match value:
                case [int(tokens), *_, bool(keeps_reasoning)]:
                    found[key] = Cut(tokens, keeps_reasoning=keeps_reasoning)
                case _:
                    log.warning("a cut of message %s cannot be read", key)
    return found
