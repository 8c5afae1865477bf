"""An open question with options, and three people in the thread: whose words answer it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bots.inbound.actions import IncomingMessage, decide_message
from core.domain.threads import (
    Accept,
    Address,
    Ask,
    Decision,
    Person,
    Run,
    Thread,
    ThreadParticipants,
    ThreadSnapshot,
)
from tests.fakes.spoken_lines import SMALL_TALK

NOW = datetime.now(UTC)
HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.1")
ALICE, BOB, CAROL = (Person(person_id=one, name=one) for one in ("alice", "bob", "carol"))
LINES = [line.partition(": ")[2] for line in SMALL_TALK]
RUN = Run(
    run_id="r1",
    thread_id="t1",
    agent_id="default",
    status="completed",
    requester=ALICE,
    created_at=NOW,
)
ASK = Ask(
    ask_id="a1",
    run_id="r1",
    text="In which format shall I write the report?",
    options=("Markdown", "Excel file", "PDF"),
    message_ref=f"{NOW.timestamp() - 10:.6f}",
)


def snapshot(*others: Person, options: tuple[str, ...] = ASK.options) -> ThreadSnapshot:
    """Right after the question to Alice; nobody has talked since."""
    return ThreadSnapshot(
        thread=Thread(
            thread_id="t1", address=HERE, state="active", created_at=NOW, last_activity_at=NOW
        ),
        active_run=None,
        last_run=RUN,
        open_ask=replace(ASK, options=options),
        talk=ThreadParticipants(
            participants=(ALICE, *others),
            last_requester_id="alice",
            work="Sum up the sales by region. Here are the sums: North 2700.",
        ),
    )


def said(text: str, author: Person, *, is_addressed: bool = False) -> IncomingMessage:
    return IncomingMessage(
        address=HERE,
        dedupe_key="k",
        message_ref="m",
        author=author,
        text=text,
        sent_at=NOW,
        is_addressed=is_addressed,
        is_to_others=text.startswith("@"),
    )


def answers(decision: Decision) -> bool:
    return isinstance(decision, Accept) and decision.ask_id is not None


@pytest.mark.parametrize("author", [ALICE, BOB, CAROL], ids=lambda one: one.name)
@pytest.mark.parametrize("line", LINES)
def test_no_small_talk_is_an_answer_whoever_says_it_first(line: str, author: Person) -> None:
    decision = decide_message(said(line, author), snapshot(BOB, CAROL))
    assert not answers(decision)
    # right after the agent's words to Alice, hers may be for it: the model sees whether they are talk
    assert author == ALICE or not isinstance(decision, Accept)


@pytest.mark.parametrize(
    "line", ["PDF", "excel file", "the PDF please", "Markdown, thanks", "a PDF report"]
)
def test_words_that_take_up_the_question_answer_it(line: str) -> None:
    assert answers(decide_message(said(line, ALICE), snapshot(BOB, CAROL)))


def test_other_words_to_the_agent_are_no_answer_and_reach_it() -> None:
    decision = decide_message(said("please add the totals first", ALICE), snapshot(BOB, CAROL))
    assert isinstance(decision, Accept)
    assert decision.ask_id is None


@pytest.mark.parametrize("line", ["a Word document", "whatever is quickest"])
def test_a_person_alone_with_the_agent_answers_in_any_words(line: str) -> None:
    assert answers(decide_message(said(line, ALICE), snapshot()))
    assert answers(decide_message(said(line, ALICE), snapshot(BOB, options=())))


@pytest.mark.parametrize("author", [ALICE, BOB], ids=lambda one: one.name)
@pytest.mark.parametrize("line", ["thanks", "lol", "brb, lunch", "👍 thanks!"])
def test_a_pleasantry_answers_nothing_though_it_mentions_the_agent(
    line: str, author: Person
) -> None:
    for options in (ASK.options, ()):
        decision = decide_message(
            said(line, author, is_addressed=True), snapshot(BOB, options=options)
        )
        assert not answers(decision)


@pytest.mark.parametrize("author", [ALICE, BOB], ids=lambda one: one.name)
def test_a_mention_answers_in_any_words(author: Person) -> None:
    assert answers(decide_message(said("as a Word file", author, is_addressed=True), snapshot(BOB)))


CARD = f"{NOW.timestamp() - 10:.6f}"
APPROVAL = Ask(ask_id="a1", run_id="r1", kind="approval", text="Run it?", message_ref=CARD)


@pytest.mark.parametrize("author", [ALICE, BOB], ids=lambda one: one.name)
def test_consent_counts_in_a_reply_to_the_card_and_not_to_another_message(author: Person) -> None:
    asking = replace(snapshot(BOB), open_ask=APPROVAL)
    yes = said("yes", author, is_addressed=True)
    assert answers(decide_message(replace(yes, reply_ref=CARD), asking))
    other = decide_message(replace(yes, reply_ref="an answer of yesterday"), asking)
    assert isinstance(other, Accept)
    assert not answers(other)


def test_a_reply_to_another_message_answers_a_question_only_by_who_was_asked() -> None:
    asking = snapshot(BOB)
    for author in (ALICE, BOB):
        reply = replace(said("Excel file", author, is_addressed=True), reply_ref="other")
        assert answers(decide_message(reply, asking)) is (author is ALICE)
