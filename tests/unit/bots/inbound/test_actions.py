"""Whose words, reactions and changes count for a request or a question, and whose do not."""

from dataclasses import replace

import pytest

from bots.inbound.actions import ANOTHER_AGENT_RUNNING, SHORT_HELP, UNKNOWN_CONTROL, decide_action
from core.agents.definition import AgentDefinition
from core.domain.actions import (
    ActorContext,
    AskAnswered,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
    StoredAction,
)
from core.domain.threads import (
    Accept,
    Decision,
    Ignore,
    IncomingFile,
    Overhear,
    Person,
    StopRun,
    ThreadParticipants,
    ThreadSnapshot,
)
from tests.unit.bots.test_what_actions_touch import ALICE, SLACK, at, ref, snapshot

BOB, APP = Person(person_id="bob", name="Bob"), Person(person_id="app:A1", name="alerts")
UNKNOWN = Person(person_id="", name="?")
BY_APP = ActorContext(app_ids=frozenset({"A1"}))
RUNNING = snapshot(SLACK)
AMONG_TWO = ThreadParticipants(participants=(ALICE, BOB))
ASKING = replace(snapshot(SLACK, asks="question", card_ref=ref(SLACK, 1)), talk=AMONG_TWO)
APPROVAL = snapshot(SLACK, asks="approval", card_ref=ref(SLACK, 1))
TALKING = replace(ASKING, talk=replace(AMONG_TWO, heard_at=at(5)))
OF_APP = replace(RUNNING, active_run=replace(RUNNING.active_run, requester=APP))
PLACE = {"address": SLACK, "dedupe_key": "k", "person": ALICE}
SAID = IncomingMessage(**PLACE, message_ref=ref(SLACK, 9), text="Python", sent_at=at(9), is_addressed=True)
ANSWER = AskAnswered(**PLACE, ask_id="a", text="R", sent_at=at(9))
CROSS = StopRequested(**PLACE, message_ref="request", is_addressed=False)
STOP = StopRequested(**PLACE, message_ref="", sent_at=at(9), is_addressed=False)
DELETION = MessageDeleted(**PLACE, message_ref="request", sent_at=at(9))
EDIT = MessageEdited(**PLACE, message_ref="request", text="Stop", sent_at=at(9), is_addressed=False)


def outcome(decision: Decision) -> str:
    match decision:
        case Accept():
            return "answers" if decision.ask_id else "is read"
        case StopRun():
            return "stops"
        case Overhear():
            return "is overheard"
        case Ignore():
            return "is ignored"
        case _:
            raise AssertionError(decision)


@pytest.mark.parametrize(
    ("action", "now", "expected"),
    [
        (ANSWER, ASKING, "answers"),
        (ANSWER, RUNNING, "is ignored"),
        (replace(ANSWER, ask_id="b"), ASKING, "is ignored"),
        (replace(ANSWER, person=BOB), ASKING, "answers"),
        (replace(ANSWER, actor=BY_APP), ASKING, "is ignored"),
        (replace(ANSWER, ask_ref=ref(SLACK, 1)), APPROVAL, "answers"),
        (replace(ANSWER, ask_ref=ref(SLACK, 1)), ASKING, "is ignored"),
        (replace(ANSWER, ask_ref="2"), APPROVAL, "is ignored"),
        (SAID, ASKING, "answers"),
        (replace(SAID, is_addressed=False), ASKING, "answers"),
        (replace(SAID, is_addressed=False), TALKING, "is overheard"),
        (replace(SAID, is_to_others=True), ASKING, "is read"),
        (replace(SAID, person=BOB), ASKING, "answers"),
        (replace(SAID, person=BOB, is_addressed=False), ASKING, "is overheard"),
        (replace(SAID, text="Which do you know?"), ASKING, "is read"),
        (replace(SAID, reply_ref="7"), ASKING, "answers"),
        (replace(SAID, reply_ref="7", person=BOB), ASKING, "is read"),
        (replace(SAID, actor=BY_APP), ASKING, "is read"),
        (replace(SAID, is_automatic=True), ASKING, "is read"),
        (replace(SAID, text="yes"), APPROVAL, "answers"),
        (replace(SAID, text="yes", reply_ref="7"), APPROVAL, "is read"),
        (replace(SAID, text="yes", actor=BY_APP), APPROVAL, "is read"),
        (replace(SAID, text="later"), APPROVAL, "is read"),
        (CROSS, RUNNING, "stops"),
        (replace(CROSS, person=BOB), RUNNING, "is ignored"),
        (replace(CROSS, person=BOB, is_addressed=True), RUNNING, "is ignored"),
        (replace(CROSS, actor=BY_APP), RUNNING, "is ignored"),
        (replace(CROSS, message_ref="2"), RUNNING, "is ignored"),
        (STOP, RUNNING, "stops"),
        (replace(STOP, person=BOB), RUNNING, "is ignored"),
        (replace(STOP, person=BOB, is_addressed=True), RUNNING, "stops"),
        (STOP, ASKING, "answers"),
        (replace(STOP, person=BOB, is_addressed=True), ASKING, "is ignored"),
        (STOP, TALKING, "is ignored"),
        (replace(STOP, is_addressed=True), TALKING, "answers"),
        (DELETION, RUNNING, "stops"),
        (replace(DELETION, message_ref="2"), RUNNING, "is read"),
        (replace(DELETION, person=BOB), RUNNING, "is read"),
        (replace(DELETION, person=BOB), OF_APP, "stops"),
        (replace(DELETION, person=UNKNOWN), RUNNING, "stops"),
        (DELETION, ASKING, "is ignored"),
        (EDIT, RUNNING, "stops"),
        (replace(EDIT, text="Go on"), RUNNING, "is read"),
        (replace(EDIT, person=BOB), RUNNING, "is read"),
        (EDIT, ASKING, "is ignored"),
    ],
)
def test_whose_action_counts(action: StoredAction, now: ThreadSnapshot, expected: str) -> None:
    decision = decide_action(action, now)
    assert outcome(decision) == expected
    if isinstance(decision, Accept) and expected == "is read":
        assert decision.is_steering is isinstance(action, IncomingMessage)


@pytest.mark.parametrize(
    ("action", "expected"),
    [(SAID, "answers"), (replace(SAID, text="Which?"), "is ignored"), (replace(SAID, text=""), "is ignored")],
)
def test_words_of_a_command_may_answer_a_question_and_are_no_request(action: IncomingMessage, expected: str) -> None:
    assert outcome(decide_action(action, ASKING, must_answer=True)) == expected


@pytest.mark.parametrize(
    ("now", "is_late", "expected"),
    [
        (None, False, "is read"),
        (None, True, "is read"),
        (RUNNING, True, "is read"),
        (ASKING, True, "is read"),
        (APPROVAL, True, "is ignored"),
        (replace(ASKING, open_ask=replace(ASKING.open_ask, message_ref=ref(SLACK, 10))), True, "is overheard"),
    ],
)
def test_what_comes_late_answers_nothing_and_is_asked_about_once(
    now: ThreadSnapshot | None, is_late: bool, expected: str
) -> None:
    decision = decide_action(replace(SAID, text="yes"), now, is_late=is_late)
    assert outcome(decision) == expected
    assert getattr(decision, "is_late", is_late) is is_late


AGENTS = {"coding": AgentDefinition(agent_id="coding", name="A", description="B")}
OF_CODING = replace(RUNNING, active_run=replace(RUNNING.active_run, agent_id="coding"))
FILE = IncomingFile(file_ref="f", name="a.csv")


@pytest.mark.parametrize(
    ("action", "now", "notice"),
    [
        (replace(SAID, agent_id="nobody"), None, "There is no agent nobody. There are: coding."),
        (replace(SAID, agent_id="nobody", is_addressed=False), None, ""),
        (replace(SAID, agent_id="coding"), RUNNING, ANOTHER_AGENT_RUNNING),
        (replace(SAID, agent_id="coding"), OF_CODING, None),
        (replace(SAID, text=" "), RUNNING, SHORT_HELP),
        (replace(SAID, text=" ", is_addressed=False), RUNNING, ""),
        (replace(SAID, text="", files=(FILE,)), None, None),
        (ANSWER, RUNNING, "This question is no longer open."),
        (replace(ANSWER, option=0), ASKING, UNKNOWN_CONTROL),
    ],
)
def test_what_is_not_taken_is_answered_with_a_word(
    action: StoredAction, now: ThreadSnapshot | None, notice: str | None
) -> None:
    decision = decide_action(action, now, agents=AGENTS)
    assert (decision.notice if isinstance(decision, Ignore) else None) == notice
