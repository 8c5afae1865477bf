"""What the delivery of a run does next, and which reactions its messages have: tables of states."""

from dataclasses import replace
from math import inf
from typing import Any, cast

import pytest

from bots.delivery.next_step import (
    LONG_QUEUE,
    READ_NEXT,
    UNKNOWN_RUN,
    ChatState,
    FinishPosting,
    PostOutbox,
    ReadInputs,
    RunEnd,
    SetReaction,
    ShowStatus,
    Step,
    TellRequesterOfWait,
    Wait,
    add_event,
    add_unread_inputs,
    desired_reactions,
    is_typing,
    needs_final_status,
    next_post_step,
    next_reaction_step,
)
from bots.delivery.run_view import RunView, Task, ViewState
from core.domain.events import MessageAdded, TurnStarted
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.threads import Attention, InputKind, ThreadInput
from tests.support.conversations import thread_input

STARTED = ChatState(request_ref="1", began_at=0.0, status_after_seconds=3.0)
UNSURE = replace(STARTED, attention="unsure")
CLEAR = replace(STARTED, attention="clear")
WORKS = RunView(state="working", activity="Thinking")
STEPS = replace(WORKS, tasks=(Task(call_id="1", title="Reading", state="running"),))
ASKS = RunView(state="waiting", approvals=1)
REPLIED = replace(WORKS, replies=1)
DONE = RunView(state="completed")
NO_CHANGE = Wait(inf)


def state(of: ChatState = STARTED, view: RunView = UNKNOWN_RUN, **more: Any) -> ChatState:
    return replace(of, view=view, **more)


POSTS: tuple[tuple[str, ChatState, float, Step | None], ...] = (
    ("a queued run shows nothing", state(), 5.0, Wait(60.0)),
    ("a queued run says after a minute why it waits", state(), 60.0,
     ShowStatus(replace(UNKNOWN_RUN, activity=LONG_QUEUE))),
    ("what began is no longer queued", state(view=WORKS), 60.0, ShowStatus(WORKS)),
    ("a quick answer may make the status needless", state(view=WORKS), 2.9, Wait(3.0)),
    ("one that takes longer does not", state(view=WORKS), 3.0, ShowStatus(WORKS)),
    ("the first step shows the status at once", state(view=STEPS), 0.1, ShowStatus(STEPS)),
    ("so does the first reply", state(view=REPLIED), 0.1, ShowStatus(REPLIED)),
    ("a refused reaction makes the status find out", state(view=WORKS, may_be_closed=True), 0.1, ShowStatus(WORKS)),
    ("the agent may decide to say nothing", state(CLEAR, WORKS), 99.0, NO_CHANGE),
    ("it does not decide so after a step", state(CLEAR, STEPS), 0.1, ShowStatus(STEPS)),
    ("an edit waits for the interval", state(view=STEPS, status=WORKS, paused_until={ShowStatus: 9.0}), 8.0, Wait(9.0)),
    ("a status that is shown is not edited", state(view=STEPS, status=STEPS, paused_until={ShowStatus: 9.0}), 60.0,
     NO_CHANGE),
    ("a growing answer is not repeated in the status",
     state(view=replace(STEPS, preview="text"), status=STEPS, is_streaming=True), 61.0, NO_CHANGE),
    ("an unread message is announced", state(view=STEPS, status=STEPS, unread=frozenset({"2"})), 9.0,
     ShowStatus(replace(STEPS, activity=f"Thinking · {READ_NEXT}"))),
    ("the status comes before the card", state(view=ASKS), 0.1, ShowStatus(ASKS)),
    ("the card follows", state(view=ASKS, status=ASKS, paused_until={ShowStatus: 9.0}), 8.0, PostOutbox((True, 1, 0))),
    ("a card does not wait for the interval of edits", state(view=ASKS, status=WORKS, paused_until={ShowStatus: 9.0}),
     8.0, PostOutbox((True, 1, 0))),
    ("a decided card is edited", state(view=replace(ASKS, state="working"), status=ASKS, outbox=(True, 1, 0)), 0.0,
     ShowStatus(replace(ASKS, state="working"))),
    ("a second card right after the first is a new one",
     state(view=replace(ASKS, approvals=2), status=ASKS, outbox=(True, 1, 0), paused_until={ShowStatus: 9.0}), 8.0,
     PostOutbox((True, 2, 0))),
    ("a reply that was left is posted", state(view=REPLIED, status=REPLIED), 4.0, PostOutbox((False, 0, 1))),
    ("posts that failed wait, and the status does not wait for them",
     state(view=REPLIED, status=WORKS, paused_until={PostOutbox: 50.0}), 40.0, ShowStatus(REPLIED)),
    ("posts that failed are tried again", state(view=REPLIED, status=REPLIED, paused_until={PostOutbox: 50.0}), 40.0,
     Wait(50.0)),
    ("the end comes at once", state(view=DONE, paused_until={ShowStatus: 9.0}), 0.1, FinishPosting()),
    ("also if the agent was not meant", state(UNSURE, DONE), 0.1, FinishPosting()),
    ("an end without its event is one", state(view=STEPS, has_ended=True), 0.1, FinishPosting()),
    ("an end that failed is tried again", state(view=DONE, paused_until={FinishPosting: 9.0}), 8.0, Wait(9.0)),
    ("nothing follows the end", state(view=DONE, end=RunEnd()), 9.0, None),
    ("an attempt that failed posts no end", state(view=WORKS, end=RunEnd()), 9.0, None),
)  # fmt: skip


@pytest.mark.parametrize(("why", "given", "now", "expected"), POSTS, ids=[row[0] for row in POSTS])
def test_what_is_posted_next(why: str, given: ChatState, now: float, expected: Step | None) -> None:
    assert next_post_step(given, now) == expected, why


ENDED = RunEnd(state="completed", refs=("1", "2"), request_ref="1")
SIGNS: tuple[tuple[str, ChatState, float, dict[str, str | None]], ...] = (
    ("a run that begins at once is never queued", state(), 1.4, {}),
    ("one that waits is", state(), 1.5, {"1": "queued"}),
    ("a run that works has seen its request", state(view=WORKS), 0.0, {"1": "seen"}),
    ("a request may have no message", state(view=WORKS, request_ref=""), 9.0, {}),
    ("a card that is not posted asks nothing", state(view=ASKS), 0.0, {"1": "seen"}),
    ("a card asks", state(view=ASKS, outbox=(True, 1, 0)), 0.0, {"1": "asking"}),
    ("a request for other people has none", state(UNSURE, WORKS), 9.0, {}),
    ("it has one after the first step", state(UNSURE, STEPS), 9.0, {"1": "seen"}),
    ("what came during the run is seen", state(UNSURE, WORKS, follow_ups=("2", "3")), 0.0, {"2": "seen", "3": "seen"}),
    ("nothing changes before the answer is posted", state(view=DONE, follow_ups=("2",)), 9.0, {}),
    ("all messages that it read show the end", state(end=ENDED), 9.0, {"1": "done", "2": "done"}),
    ("a refused answer is a failure", state(view=DONE, end=replace(ENDED, state="failed")), 9.0,
     {"1": "failed", "2": "failed"}),
    ("silence leaves none", state(CLEAR, RunView(state="silent"), end=replace(ENDED, state="silent")), 9.0,
     {"1": None, "2": None}),
    ("silence on what was for other people changes none",
     state(UNSURE, RunView(state="silent"), end=replace(ENDED, state="silent")), 9.0, {}),
    ("the request shows an open question", state(end=replace(ENDED, state="asking", has_open_question=True)), 9.0,
     {"1": "asking", "2": "done"}),
    ("a question that is answered or withdrawn is done", state(end=replace(ENDED, state="asking")), 9.0,
     {"1": "done", "2": "done"}),
    ("the run of the answer shows the end on the request",
     state(end=RunEnd(state="asking", request_ref="1", has_open_question=True)), 9.0, {}),
    ("an attempt that failed signs nothing", state(view=WORKS, end=RunEnd()), 9.0, {}),
    *(
        (f"the end {view}", state(end=RunEnd(state=view, refs=("1",))), 9.0, {"1": sign})
        for view, sign in cast(
            dict[ViewState, str], {"completed": "done", "limited": "limited", "stopped": "failed", "failed": "failed"}
        ).items()
    ),
)  # fmt: skip


@pytest.mark.parametrize(("why", "given", "now", "expected"), SIGNS, ids=[row[0] for row in SIGNS])
def test_the_reactions_of_messages(why: str, given: ChatState, now: float, expected: dict[str, str | None]) -> None:
    assert desired_reactions(given, now) == expected, why


SEEN = {"1": "seen"}
REACTIONS: tuple[tuple[str, ChatState, float, Step | None], ...] = (
    ("a queued run looks at the clock", state(), 0.0, Wait(1.5)),
    ("a first reaction does not wait", state(view=WORKS), 0.0, SetReaction("1", "seen", False)),
    ("one that is there is not set again", state(view=WORKS, signs=SEEN), 9.0, NO_CHANGE),
    ("a follow-up", state(view=WORKS, signs=SEEN, follow_ups=("2",)), 9.0, SetReaction("2", "seen", False)),
    ("a question waits for its turn, because none may follow", state(view=ASKS, outbox=(True, 1, 0), signs=SEEN), 9.0,
     SetReaction("1", "asking", True)),
    ("without database it waits", state(view=WORKS, paused_until={SetReaction: 12.0}), 9.0, Wait(12.0)),
    ("new messages are read", state(view=WORKS, inputs=2, inputs_read=1), 9.0, ReadInputs(2)),
    ("but not after the end", state(view=DONE, inputs=2), 9.0, NO_CHANGE),
    ("a long wait is told", state(view=DONE, tell_wait_at=60.0), 60.0, TellRequesterOfWait()),
    ("a shorter one is not", state(view=DONE, tell_wait_at=60.0), 59.0, Wait(60.0)),
    ("nor is one that is over", state(view=DONE, tell_wait_at=60.0, end=RunEnd()), 60.0, None),
    ("the last ones are certain", state(end=ENDED, signs=SEEN), 9.0, SetReaction("1", "done", True)),
    ("also if they remove one", state(end=RunEnd(state="silent", refs=("1",)), signs=SEEN), 9.0,
     SetReaction("1", None, True)),
    ("also if this process set none", state(end=RunEnd(state="silent", refs=("1",))), 9.0,
     SetReaction("1", None, True)),
    ("nothing follows them", state(end=ENDED, signs={"1": "done", "2": "done"}), 9.0, None),
)  # fmt: skip


@pytest.mark.parametrize(("why", "given", "now", "expected"), REACTIONS, ids=[row[0] for row in REACTIONS])
def test_which_reaction_is_next(why: str, given: ChatState, now: float, expected: Step | None) -> None:
    assert next_reaction_step(given, now) == expected, why


@pytest.mark.parametrize(
    ("given", "now", "types"),
    [
        (state(view=WORKS), 0.9, False),
        (state(view=WORKS), 1.0, True),
        (state(), 1.0, True),
        (state(view=ASKS), 1.0, False),
        (state(CLEAR, WORKS), 9.0, False),
        (state(CLEAR, STEPS), 9.0, True),
        (state(view=DONE), 9.0, False),
        (state(view=WORKS, end=RunEnd()), 9.0, False),
    ],
)
def test_when_the_agent_types(given: ChatState, now: float, *, types: bool) -> None:
    assert is_typing(given, now) == types


@pytest.mark.parametrize(
    ("view", "is_posted", "is_always", "expected"),
    [
        (DONE, False, False, False),
        (DONE, True, False, True),
        (DONE, False, True, True),
        (replace(DONE, tasks=STEPS.tasks), False, False, True),
        (RunView(state="asking"), False, False, False),
        (RunView(state="failed"), False, False, True),
        (RunView(state="silent", tasks=STEPS.tasks), False, True, False),
        (RunView(state="silent"), True, False, True),
    ],
)
def test_which_ends_have_a_status(view: RunView, *, is_posted: bool, is_always: bool, expected: bool) -> None:
    assert needs_final_status(view, is_posted=is_posted, is_always=is_always) == expected


def unread_input(message_ref: str, kind: InputKind = "message", attention: Attention = "addressed") -> ThreadInput:
    return thread_input(input_id=f"{kind} {message_ref}", kind=kind, message_ref=message_ref, attention=attention)


def test_what_comes_during_a_run_is_unread_until_the_run_reads_it() -> None:
    inputs = [
        unread_input("1"),
        unread_input("1", kind="edit"),
        unread_input("2"),
        unread_input("3", attention="unsure"),
        unread_input("4", kind="delete"),
    ]
    assert add_unread_inputs(STARTED, 1, inputs[:1]).unread == frozenset()
    found = add_unread_inputs(STARTED, 1, inputs)
    assert (found.follow_ups, found.unread) == (("1", "2"), frozenset({"1", "2"}))
    content: JsonObject = {"role": "user", "content": "text"}
    message = Message(type="user", content=content, is_llm_message=True, thread_id="t", metadata={"message_ref": "2"})
    later = add_event(found, MessageAdded(message=message))
    assert (later.follow_ups, later.unread) == (("1", "2"), frozenset({"1"}))
    assert add_event(later, TurnStarted(turn_id="t", number=1)).view.state == "working"
    again = add_unread_inputs(later, 2, [unread_input("5")])
    assert (again.follow_ups, again.unread) == (("1", "2", "5"), frozenset({"5"}))
