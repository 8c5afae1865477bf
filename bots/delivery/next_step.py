"""Decides what the delivery of a run does next: what the chat should show, less what it shows. Pure.

Two loops of `bots.delivery.run_delivery` carry out the steps, each of them one step at a time. With a single loop, a
reaction would wait for a post, which can take long: an upload 20 s, a limited post minutes. `next_post` returns the
steps that post and edit messages, in the order in which people should see them. `next_reaction` returns those that take
a moment. All times are in seconds of the event loop's clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bots.delivery.run_view import RunView, ViewState, apply_event, has_steps
from core.domain.events import AgentEvent, MessageAdded
from core.domain.threads import Attention, ThreadInput
from core.ports import Reaction

READ_NEXT = "I will read your new message next"
LONG_QUEUE = "Many requests are being worked on. Yours starts as soon as another ends"
FIRST_RETRY_SECONDS = 2.0
RETRY_SECONDS_MAX = 300.0
UNENDED_STATES = frozenset({"queued", "working", "waiting"})
FINAL_SIGNS: Mapping[str, Reaction] = {
    "completed": "done",
    "limited": "limited",
    "asking": "done",
    "stopped": "failed",
    "failed": "failed",
}
UNKNOWN_RUN = RunView()
"""The view of a run that no worker has begun. It has no status message unless it waits long."""
OutboxVersion = tuple[bool, int, int]
"""Whether the run waits for an approval, and how many approvals and replies it has left in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """What is stored of an ended run whose messages are posted. `refs` are the user messages that show its end."""

    state: ViewState = "completed"
    refs: tuple[str, ...] = ()
    request_ref: str = ""
    has_open_question: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """What is known of a run, and what the chat shows of it.

    `follow_ups` are the messages that came during the run, `unread` those that it has not read. `status`, `outbox` and
    `signs` are what the chat shows. `may_be_closed`: a reaction was refused as if the bot may not write there. `end` is
    set when all messages are posted.
    """

    request_ref: str = ""
    attention: Attention = "addressed"
    queued_sign_at: float = math.inf
    typing_at: float = math.inf
    status_at: float = math.inf
    long_queue_at: float = math.inf

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
    failed_posts: int = 0

    read_inputs_at: float = math.inf
    tell_wait_at: float = math.inf
    edit_status_at: float = 0.0
    post_at: float = 0.0
    react_at: float = 0.0

    @property
    def is_over(self) -> bool:
        has_ended = self.has_ended or self.end is not None
        return has_ended or self.view.state not in UNENDED_STATES

    @property
    def is_for_agent(self) -> bool:
        """False as long as the request may be meant for other people."""
        return self.attention != "unsure" or has_steps(self.view)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to do until this time, or until the state changes."""

    until: float


@dataclass(frozen=True, slots=True)
class ShowStatus:
    view: RunView


@dataclass(frozen=True, slots=True)
class PostOutbox:
    """Post the replies and approvals that the run has left so far, and edit the cards of decided approvals."""

    version: OutboxVersion


@dataclass(frozen=True, slots=True)
class PostEnd:
    """Post the rest of an ended run, then show the final state in its status message."""


@dataclass(frozen=True, slots=True)
class React:
    """Set the reaction; None removes it. If not `is_patient`, give up if it has to wait: another one follows."""

    message_ref: str
    sign: Reaction | None
    is_patient: bool


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """Read which messages came during the run."""


@dataclass(frozen=True, slots=True)
class TellWait:
    """Tell the requester that the answer waits for its turn, without a message that would wait as well."""


Step = Wait | ShowStatus | PostOutbox | PostEnd | React | ReadInputs | TellWait


def next_post(state: ChatState, now: float) -> Step | None:
    """Returns the next step that posts or edits, or None if none will follow.

    A run's first status message comes before what it leaves in the outbox. It is due at the first step or reply, or at
    `status_at` if the agent was certainly meant.
    """
    if state.end is not None:
        return None
    if state.is_over:
        return PostEnd() if now >= state.post_at else Wait(state.post_at)
    is_addressed = state.attention == "addressed"
    is_due = is_addressed and (state.may_be_closed or now >= state.status_at)
    if not (is_due or is_status_needed(state)):
        return _wait(now, state.status_at if is_addressed else math.inf)
    view, version = _status_view(state, now), outbox_version(state.view)
    if view != state.status and now >= state.edit_status_at:
        return ShowStatus(view)
    if version != state.outbox and now >= state.post_at:
        return PostOutbox(version)
    return _wait(now, state.edit_status_at, state.post_at, state.long_queue_at)


def next_reaction(state: ChatState, now: float) -> Step | None:
    """Returns the next step that must not wait for posts, or None if none will follow."""
    if now >= state.read_inputs_at and not state.is_over:
        return ReadInputs()
    if now >= state.tell_wait_at and state.end is None:
        return TellWait()
    for message_ref, sign in desired_signs(state, now).items():
        if message_ref not in state.signs or state.signs[message_ref] != sign:
            is_patient = sign == "asking" or state.end is not None
            step = React(message_ref, sign, is_patient)
            return step if now >= state.react_at else Wait(state.react_at)
    if state.end is not None:
        return None
    return _wait(now, state.read_inputs_at, state.tell_wait_at, state.queued_sign_at)


def is_typing(state: ChatState, now: float) -> bool:
    """Whether the agent is shown as typing: while it works, once it is certain that it will respond."""
    is_certain = state.attention == "addressed" or is_status_needed(state)
    works = not state.is_over and state.view.state != "waiting"
    return works and is_certain and now >= state.typing_at


def is_status_needed(state: ChatState) -> bool:
    """Whether the run has a status message or something to show in it."""
    return state.status != UNKNOWN_RUN or has_steps(state.view) or state.view.replies > 0


def needs_final_status(view: RunView, *, is_posted: bool, is_always: bool) -> bool:
    """Whether the end of a run is shown in a status message. If none was posted, the answer of a run without steps says
    it all, and a run that says nothing stays silent."""
    if is_posted or view.state == "silent":
        return is_posted
    return is_always or view.state not in ("completed", "asking") or has_steps(view)


def desired_signs(state: ChatState, now: float) -> Mapping[str, Reaction | None]:
    """Returns the reaction that each user message should have. Messages that are not named keep theirs.

    A request that may be meant for other people has none before the first step, and one that begins at once is never
    "queued". Nothing changes from the end of a run until its messages are posted.
    """
    if state.end is not None:
        had_none = state.end.state == "silent" and not state.is_for_agent
        return {} if had_none else final_signs(state.end)
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
    elif now >= state.queued_sign_at:
        signs[state.request_ref] = "queued"
    return signs


def final_signs(end: RunEnd) -> dict[str, Reaction | None]:
    """Returns the reactions that show the end of a run. The request shows an open question."""
    signs: dict[str, Reaction | None] = dict.fromkeys(end.refs, FINAL_SIGNS.get(end.state))
    if end.state == "asking" and end.has_open_question and end.request_ref in signs:
        signs[end.request_ref] = "asking"
    return signs


def outbox_version(view: RunView) -> OutboxVersion:
    """A run can resume and ask again between two looks, so the number of approvals counts as well as the state."""
    return view.state == "waiting", view.approvals, view.replies


def retry_seconds(failed_posts: int) -> float:
    """Returns the pause after this many failures in a row to post, which is at least one."""
    return min(FIRST_RETRY_SECONDS * 2 ** min(failed_posts - 1, 10), RETRY_SECONDS_MAX)


def add_event(state: ChatState, event: AgentEvent) -> ChatState:
    """Returns the state after an event of the run."""
    is_message = isinstance(event, MessageAdded)
    read = {str(event.message.metadata.get("message_ref"))} if is_message else frozenset[str]()
    return replace(state, view=apply_event(state.view, event), unread=state.unread - read)


def add_inputs(state: ChatState, unread_inputs: Sequence[ThreadInput]) -> ChatState:
    """Returns the state with the unread messages and edits, except those that may be meant for other people."""
    meant = [one for one in unread_inputs if one.attention != "unsure"]
    refs = [one.message_ref for one in meant if one.is_news_for(state.request_ref)]
    follow_ups = tuple(dict.fromkeys((*state.follow_ups, *refs)))
    return replace(state, follow_ups=follow_ups, unread=frozenset(refs))


def _status_view(state: ChatState, now: float) -> RunView:
    if state.view.state == "queued" and now >= state.long_queue_at:
        return replace(state.view, activity=LONG_QUEUE)
    # people read the text in the message that grows
    view = replace(state.view, preview="") if state.is_streaming else state.view
    if state.unread:
        activity = f"{view.activity} · {READ_NEXT}".removeprefix(" · ")
        return replace(view, activity=activity)
    return view


def _wait(now: float, *times: float) -> Wait:
    return Wait(min((one for one in times if one > now), default=math.inf))
