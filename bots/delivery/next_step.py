"""Decides what the delivery of a run does next, by comparing what the chat should show with what it shows. Pure.

Two loops of `bots.delivery.run_delivery` carry out the steps, each of them one step at a time. With a single loop, a
reaction would wait for a post, which can take long: 20 s for an upload, minutes under a rate limit. `next_post_step`
returns the steps that post and edit messages, in the order in which users should see the messages. `next_reaction_step`
returns the quick steps. All times are in seconds of the event loop's clock."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bots.delivery.run_view import RunView, ViewState, apply_event, shows_more_than_working
from core.domain.events import AgentEvent, MessageAdded
from core.domain.threads import Attention, ThreadInput
from core.ports import Reaction

READ_NEXT = "I will read your new message next"
LONG_QUEUE = "Many requests are being worked on. Yours starts as soon as another ends"
QUEUED_AFTER_SECONDS = 1.5
TYPING_AFTER_SECONDS = 1.0
LONG_WAIT_SECONDS = 60.0
"""Users get a notice if their request, or the answer to it, waits longer than this."""
UNENDED_STATES = frozenset({"queued", "working", "waiting"})
FINAL_SIGNS: Mapping[str, Reaction] = {
    "completed": "done",
    "limited": "limited",
    "asking": "done",
    "stopped": "failed",
    "failed": "failed",
}
UNKNOWN_RUN = RunView()
"""The view of a run that no worker has begun. Such a run has no status message unless it waits long."""
OutboxVersion = tuple[bool, int, int]
"""Whether the run waits for an approval, and how many approvals and replies it has left in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The stored end of a run whose messages are posted. `refs` are the user messages whose reactions show the end."""

    state: ViewState = "completed"
    refs: tuple[str, ...] = ()
    request_ref: str = ""
    has_open_question: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """What is known of a run, and what the chat shows of it.

    `follow_ups` are the messages that came during the run, and `unread` those of them that it has not read. `end` is
    set once all messages are posted. `status`, `outbox` and `signs` are what the chat shows. `may_be_closed`: a
    reaction was refused, perhaps because the bot may not write in the thread. `inputs` counts how often new messages
    may have come, and `inputs_read` is the count at the last read. `paused_until` is the time before which a kind of
    step is not repeated, after a failure or an edit."""

    request_ref: str = ""
    attention: Attention = "addressed"
    began_at: float = math.inf
    status_after_seconds: float = 0.0
    view: RunView = UNKNOWN_RUN
    has_ended: bool = False
    is_streaming: bool = False
    follow_ups: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    end: RunEnd | None = None
    status: RunView = UNKNOWN_RUN
    outbox: OutboxVersion = (False, 0, 0)
    signs: Mapping[str, Reaction | None] = field(default_factory=dict[str, Reaction | None])
    may_be_closed: bool = False
    inputs: int = 0
    inputs_read: int = 0
    tell_wait_at: float = math.inf
    paused_until: Mapping[type[object], float] = field(default_factory=dict[type[object], float])

    @property
    def is_over(self) -> bool:
        has_ended = self.has_ended or self.end is not None
        return has_ended or self.view.state not in UNENDED_STATES

    @property
    def is_for_agent(self) -> bool:
        """Whether the request is for the agent. False as long as it may be meant for other users."""
        return self.attention != "unsure" or shows_more_than_working(self.view)


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do until this time, or until the state changes."""

    until: float


@dataclass(frozen=True, slots=True)
class ShowStatus:
    view: RunView


@dataclass(frozen=True, slots=True)
class PostOutbox:
    """Post the replies and approvals that the run has left so far, and edit the cards of decided approvals."""

    version: OutboxVersion


@dataclass(frozen=True, slots=True)
class FinishPosting:
    """Post the rest of an ended run, then show the final state in its status message."""


@dataclass(frozen=True, slots=True)
class SetReaction:
    """Set the reaction, or remove it if None. Unless `is_patient`, give up if the call would have to wait, because
    another reaction follows."""

    message_ref: str
    sign: Reaction | None
    is_patient: bool


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """Read which messages came during the run. `count` is the value of `ChatState.inputs` when the step was chosen."""

    count: int


@dataclass(frozen=True, slots=True)
class TellRequesterOfWait:
    """Tell the requester that the answer is waiting to be posted, without a message that would have to wait as well."""


Step = Wait | ShowStatus | PostOutbox | FinishPosting | SetReaction | ReadInputs | TellRequesterOfWait


def next_post_step(state: ChatState, now: float) -> Step | None:
    """Returns the next step that posts or edits, or None if no such step will follow.

    A run's first status message comes before its posts from the outbox. It is due at the first step or reply, or after
    `status_after_seconds` if the request is certainly for the agent."""
    if state.end is not None:
        return None
    if state.is_over:
        return _first_step([FinishPosting()], state, now)
    status_at = state.began_at + state.status_after_seconds
    if not is_status_needed(state):
        if state.attention != "addressed":
            return Wait(math.inf)  # the agent may decide to say nothing
        if now < status_at and not state.may_be_closed:
            return Wait(status_at)
    view, version = _status_view(state, now), outbox_version(state.view)
    steps: list[Step] = [ShowStatus(view)] if view != state.status else []
    steps += [PostOutbox(version)] if version != state.outbox else []
    return _first_step(steps, state, now, state.began_at + LONG_WAIT_SECONDS)


def next_reaction_step(state: ChatState, now: float) -> Step | None:
    """Returns the next step that must not wait for posts, or None if no such step will follow."""
    steps: list[Step] = []
    if state.inputs_read != state.inputs and not state.is_over:
        steps.append(ReadInputs(state.inputs))
    if state.end is None and now >= state.tell_wait_at:
        steps.append(TellRequesterOfWait())
    is_last = state.end is not None
    for ref, sign in desired_reactions(state, now).items():
        if ref not in state.signs or state.signs[ref] != sign:
            steps.append(SetReaction(ref, sign, is_patient=is_last or sign == "asking"))
    if is_last and not steps:
        return None
    queued_sign_at = state.began_at + QUEUED_AFTER_SECONDS
    return _first_step(steps, state, now, state.tell_wait_at, queued_sign_at)


def is_typing(state: ChatState, now: float) -> bool:
    """Whether the agent is shown as typing: it is working, and it is certain that it will respond."""
    is_certain = state.attention == "addressed" or is_status_needed(state)
    works = not state.is_over and state.view.state != "waiting"
    return works and is_certain and now >= typing_starts_at(state)


def typing_starts_at(state: ChatState) -> float:
    return state.began_at + min(TYPING_AFTER_SECONDS, state.status_after_seconds)


def is_status_needed(state: ChatState) -> bool:
    """Whether the run has a status message or something to show in it."""
    return state.status != UNKNOWN_RUN or shows_more_than_working(state.view) or state.view.replies > 0


def needs_final_status(view: RunView, *, is_posted: bool, is_always: bool) -> bool:
    """Whether the end of a run is shown in a status message. If none was posted, a run without steps needs only its
    answer, and a run that says nothing stays silent."""
    if is_posted or view.state == "silent":
        return is_posted
    return is_always or view.state not in ("completed", "asking") or shows_more_than_working(view)


def desired_reactions(state: ChatState, now: float) -> Mapping[str, Reaction | None]:
    """Returns the reaction that each user message should have. Messages that are not in the result keep their reaction.

    A request that may be meant for other users has no reaction before the first step. A request whose run begins at
    once is never shown as queued. Nothing changes between the end of a run and the time when its messages are
    posted."""
    if state.end is not None:
        had_none = state.end.state == "silent" and not state.is_for_agent
        return {} if had_none else final_reactions(state.end)
    if state.is_over:
        return {}
    signs: dict[str, Reaction | None] = dict.fromkeys(state.follow_ups, "seen")
    if not (state.request_ref and state.is_for_agent):
        return signs
    is_asking, *_ = state.outbox
    if is_asking:
        signs[state.request_ref] = "asking"
    elif state.view.state != "queued":
        signs[state.request_ref] = "seen"
    elif now >= state.began_at + QUEUED_AFTER_SECONDS:
        signs[state.request_ref] = "queued"
    return signs


def final_reactions(end: RunEnd) -> dict[str, Reaction | None]:
    """Returns the reactions that show the end of a run. If a question is open, the request gets the reaction for that
    instead."""
    signs: dict[str, Reaction | None] = dict.fromkeys(end.refs, FINAL_SIGNS.get(end.state))
    if end.state == "asking" and end.has_open_question and end.request_ref in signs:
        signs[end.request_ref] = "asking"
    return signs


def outbox_version(view: RunView) -> OutboxVersion:
    """Returns the version of a run's outbox. The number of approvals is part of it, because a run can resume and ask
    again between two checks, after which its state is the same."""
    return view.state == "waiting", view.approvals, view.replies


def add_event(state: ChatState, event: AgentEvent) -> ChatState:
    """Returns the state after an event of the run."""
    view, unread = apply_event(state.view, event), state.unread
    if unread and isinstance(event, MessageAdded):
        unread -= {str(event.message.metadata.get("message_ref"))}
    is_same = view is state.view and unread is state.unread
    return state if is_same else replace(state, view=view, unread=unread)


def add_unread_inputs(state: ChatState, count: int, unread_inputs: Sequence[ThreadInput]) -> ChatState:
    """Returns the state with the unread messages and edits, except those that may be meant for other users."""
    meant = [one for one in unread_inputs if one.attention != "unsure"]
    refs = [one.message_ref for one in meant if one.is_news_for(state.request_ref)]
    follow_ups = tuple(dict.fromkeys((*state.follow_ups, *refs)))
    return replace(state, inputs_read=count, follow_ups=follow_ups, unread=frozenset(refs))


def _status_view(state: ChatState, now: float) -> RunView:
    if state.view.state == "queued" and now >= state.began_at + LONG_WAIT_SECONDS:
        return replace(state.view, activity=LONG_QUEUE)
    # users read the text in the streamed message
    view = replace(state.view, preview="") if state.is_streaming else state.view
    if state.unread:
        activity = f"{view.activity} · {READ_NEXT}".removeprefix(" · ")
        return replace(view, activity=activity)
    return view


def _first_step(steps: Sequence[Step], state: ChatState, now: float, *times: float) -> Step:
    """Returns the first step that is not paused. If all steps are paused, returns a wait until the first of their
    pauses and `times` is over."""
    pauses = [state.paused_until.get(type(step), 0.0) for step in steps]
    for step, until in zip(steps, pauses, strict=True):
        if now >= until:
            return step
    return Wait(min((one for one in (*pauses, *times) if one > now), default=math.inf))
