"""An action touches only what people could see when they sent it, by the platform's clock."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bots.inbound.actions import decide_edit, decide_message, decide_stop
from core.domain.actions import IncomingMessage, MessageEdited, StopRequested
from core.domain.threads import (
    Accept,
    Address,
    Ask,
    Hold,
    Ignore,
    Person,
    Run,
    RunStatus,
    StopRun,
    Thread,
    ThreadSnapshot,
)
from tests.support.narrow import require_type

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
PLACE = {"workspace_id": "1", "channel_id": "2", "thread_key": "3"}
SLACK = Address(platform="slack", **PLACE)
DISCORD, HTTP = replace(SLACK, platform="discord"), replace(SLACK, platform="api")
ALICE = Person(person_id="alice", name="Alice")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def ref(address: Address, seconds: float) -> str:
    """Returns the id of a message that was posted then."""
    unix_time = at(seconds).timestamp()
    if address.platform == "slack":
        return f"{unix_time:.6f}"
    return str(round((unix_time - 1_420_070_400) * 1000) << 22)


def snapshot(address: Address, *, asks: str = "", card_ref: str = "") -> ThreadSnapshot:
    """A run that was requested at noon and goes on, or has asked something."""
    run = Run(
        run_id="r",
        thread_id="t",
        status={"": "running", "question": "completed", "approval": "waiting"}[asks],
        requester=ALICE,
        request_ref="request",
        requested_at=NOON,
        created_at=at(5),
    )
    kind = "approval" if asks == "approval" else "question"
    ask = Ask(ask_id="a", run_id="r", text="Well?", kind=kind, message_ref=card_ref, requester=ALICE)
    return ThreadSnapshot(
        thread=Thread(thread_id="t", address=address, state="idle", created_at=NOON, last_activity_at=NOON),
        active_run=None if asks == "question" else run,
        last_run=run,
        open_ask=ask if asks else None,
    )


def said(address: Address, seconds: float, text: str = "yes") -> IncomingMessage:
    return IncomingMessage(
        address=address,
        dedupe_key="k",
        message_ref=ref(address, seconds),
        person=ALICE,
        text=text,
        sent_at=at(seconds),
        is_addressed=True,
    )


@pytest.mark.parametrize(
    ("asks", "shown", "sent", "is_answer"),
    [
        pytest.param("question", 10, 11, True, id="words after the question"),
        pytest.param("question", 10, 9, False, id="words before the question"),
        pytest.param("question", None, 11, False, id="words while the question is being posted"),
        pytest.param("approval", 10, 12, True, id="consent after the card"),
        pytest.param("approval", 10, 11, False, id="consent sooner than anybody reads a card"),
        pytest.param("approval", 10, 9, False, id="consent to what came before the card"),
        pytest.param("approval", None, 12, False, id="consent while the card is being posted"),
    ],
)
@pytest.mark.parametrize("address", [SLACK, DISCORD], ids=lambda one: one.platform)
def test_words_answer_only_what_was_shown_before(
    address: Address, asks: str, shown: float | None, sent: float, *, is_answer: bool
) -> None:
    card_ref = "" if shown is None else ref(address, shown)
    now = snapshot(address, asks=asks, card_ref=card_ref)
    decision = require_type(decide_message(said(address, sent), now), Accept)
    assert (decision.ask_id == "a") == is_answer


@pytest.mark.parametrize("asks", ["question", "approval"])
def test_words_wait_for_a_question_that_is_being_posted(asks: str) -> None:
    posting = snapshot(SLACK, asks=asks)
    assert decide_message(said(SLACK, 9), posting, may_hold=True) == Hold()
    posted = snapshot(SLACK, asks=asks, card_ref=ref(SLACK, 1))
    assert isinstance(decide_message(said(SLACK, 9), posted, may_hold=True), Accept)
    assert isinstance(decide_message(said(HTTP, 9), snapshot(HTTP, asks=asks), may_hold=True), Accept)


@pytest.mark.parametrize(
    ("sent", "is_taken"),
    [pytest.param(2, False, id="sent before the stop"), pytest.param(4, True, id="sent after the stop")],
)
@pytest.mark.parametrize("status", ["running", "stopped"])
def test_a_message_that_a_stop_has_overtaken_starts_nothing(status: RunStatus, sent: float, *, is_taken: bool) -> None:
    now = snapshot(SLACK)
    run = replace(now.last_run, status=status, stop_requested=True, stopped_until=at(3))
    now = replace(now, last_run=run, active_run=run if status == "running" else None)
    assert isinstance(decide_message(said(SLACK, sent, "and this"), now), Accept) == is_taken


def test_over_http_a_question_counts_as_shown() -> None:
    decision = require_type(decide_message(said(HTTP, 0), snapshot(HTTP, asks="question")), Accept)
    assert decision.ask_id == "a"


def stop(seconds: float | None, message_ref: str = "") -> StopRequested:
    return StopRequested(
        address=SLACK,
        dedupe_key="k",
        message_ref=message_ref,
        person=ALICE,
        sent_at=None if seconds is None else at(seconds),
    )


@pytest.mark.parametrize(
    ("wish", "stops"),
    [
        pytest.param(stop(1), True, id="words after the request"),
        pytest.param(stop(-1), False, id="words before the request"),
        pytest.param(stop(None), True, id="a live command of unknown time"),
        pytest.param(stop(-1, "request"), True, id="a cross on the request, by a clock of ours"),
        pytest.param(stop(1, "another"), False, id="a cross on another message"),
    ],
)
def test_a_stop_touches_only_what_was_requested_before(wish: StopRequested, *, stops: bool) -> None:
    decision = decide_stop(wish, snapshot(SLACK))
    assert isinstance(decision, StopRun if stops else Ignore)


@pytest.mark.parametrize(("author", "stops"), [("alice", True), ("bob", False)])
def test_an_edit_into_stop_stops_for_the_requester_and_else_changes_the_message(author: str, *, stops: bool) -> None:
    edit = MessageEdited(
        address=SLACK,
        dedupe_key="k",
        message_ref="m",
        person=Person(person_id=author, name=author),
        text="Stop!",
        is_addressed=False,
        sent_at=at(1),
    )
    assert isinstance(decide_edit(edit, snapshot(SLACK)), StopRun if stops else Accept)


def test_a_stop_answers_only_a_question_that_was_shown_before() -> None:
    asking = snapshot(SLACK, asks="question", card_ref=ref(SLACK, 10))
    assert isinstance(decide_stop(stop(11), asking), Accept)
    assert isinstance(decide_stop(stop(9), asking), Ignore)
