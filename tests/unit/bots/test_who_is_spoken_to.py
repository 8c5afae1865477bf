"""Who messages in a thread are for. The corpus has 300 messages of 31 scenes, labelled by what their authors meant."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from bots.inbound.actions import decide_message
from bots.inbound.commands.short_replies import calls_agent_by_name
from core.domain.actions import IncomingMessage
from core.domain.threads import (
    Accept,
    Address,
    Ask,
    FollowMode,
    Overhear,
    Person,
    Run,
    Thread,
    ThreadParticipants,
    ThreadSnapshot,
)
from tests.paths import FIXTURES

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.1")
CORPUS: dict[str, Any] = yaml.safe_load((FIXTURES / "thread_messages.yaml").read_text("utf-8"))
PRECISION_MIN, RECALL_MIN = 0.90, 0.94
"""What the rules reach on the corpus, without a look at the words: see docs/developers/architecture.md."""


def person(name: str) -> Person:
    return Person(person_id=name, name=name)


def snapshot(*people: str, asked: str = "", mode: FollowMode | None = None, **talk: Any) -> ThreadSnapshot:
    """A thread with these people, in which the agent has just asked one of them, if any."""
    run = Run(run_id="r", thread_id="t", status="completed", requester=person(asked or people[0]), created_at=NOON)
    shown = f"{NOON.timestamp():.6f}"
    return ThreadSnapshot(
        thread=Thread(thread_id="t", address=HERE, state="idle", created_at=NOON, last_activity_at=NOON),
        active_run=None,
        last_run=run,
        open_ask=Ask(ask_id="a", run_id="r", text="Which?", message_ref=shown, requester=run.requester)
        if asked
        else None,
        talk=ThreadParticipants(participants=tuple(map(person, people)), **talk),
        follow_mode=mode,
    )


def said(text: str, by: str = "alice", **flags: Any) -> IncomingMessage:
    return IncomingMessage(
        address=HERE,
        dedupe_key="k",
        message_ref="m",
        person=person(by),
        text=text,
        sent_at=NOON + timedelta(minutes=1),
        is_addressed=flags.pop("is_addressed", False),
        is_by_name=calls_agent_by_name(text, "threadhand"),
        **flags,
    )


def is_taken(message: IncomingMessage, now: ThreadSnapshot) -> bool:
    decision = decide_message(message, now)
    assert isinstance(decision, Accept | Overhear)
    return isinstance(decision, Accept)


def judged() -> Iterator[tuple[bool, bool, str]]:
    """Whether each message was meant for the agent, whether it is taken, and the message."""
    for scene in CORPUS["scenes"]:
        for line in scene["lines"]:
            asked = line["by"] if line.get("asked") else ""
            message = said(
                line["text"],
                line["by"],
                is_addressed=line.get("mentions_agent", False) or line.get("replies_to_agent", False),
                is_to_others=line.get("begins_with_mention", False),
            )
            taken = is_taken(message, snapshot(*scene["people"], asked=asked))
            yield line["is_for_agent"], taken, line["text"]


def test_most_messages_reach_whom_they_are_meant_for() -> None:
    lines = list(judged())
    assert len(lines) == 300
    found = Counter((meant, taken) for meant, taken, _ in lines)
    precision = found[True, True] / (found[True, True] + found[False, True])
    recall = found[True, True] / (found[True, True] + found[True, False])
    wrong = "\n".join(f"{meant} {taken} {text}" for meant, taken, text in lines if meant != taken)
    assert precision >= PRECISION_MIN, f"{precision:.3f}\n{wrong}"
    assert recall >= RECALL_MIN, f"{recall:.3f}\n{wrong}"


ALONE, SEVERAL = ("alice",), ("alice", "bob")


@pytest.mark.parametrize(
    ("people", "mode", "message", "taken"),
    [
        (ALONE, None, said("thanks"), True),
        (ALONE, None, said("@bob see this", is_to_others=True), False),
        (ALONE, "mention", said("and the totals?"), False),
        (ALONE, "quiet", said("and the totals?"), False),
        (SEVERAL, None, said("and the totals?"), False),
        (SEVERAL, None, said("and the totals?", is_addressed=True), True),
        (SEVERAL, None, said("threadhand, and the totals?"), True),
        (SEVERAL, "follow", said("and the totals?", "bob"), True),
        (SEVERAL, "follow", said("@alice lunch?", "bob", is_to_others=True), False),
        (SEVERAL, "mention", said("threadhand, and the totals?"), True),
        (("app:ci", "alice"), None, said("and the totals?"), True),
    ],
)
def test_without_a_mention_one_person_alone_is_heard_and_who_follows_hears_all(
    people: tuple[str, ...], mode: FollowMode | None, message: IncomingMessage, *, taken: bool
) -> None:
    assert is_taken(message, snapshot(*people, mode=mode)) is taken


def test_who_may_have_written_before_counts_as_somebody() -> None:
    assert not is_taken(said("and the totals?"), snapshot("alice", is_known=False))


def test_what_is_followed_may_stay_without_an_answer() -> None:
    decision = decide_message(said("lunch?", "bob"), snapshot(*SEVERAL, mode="follow"))
    assert isinstance(decision, Accept)
    assert decision.attention == "unsure"


@pytest.mark.parametrize(
    ("message", "is_answer"),
    [
        (said("the second one"), True),
        (said("what do you mean?"), False),
        (said("the second one", "bob"), False),
        (said("the second one", "bob", is_addressed=True), True),
        (said("@bob which one?", is_to_others=True), False),
        (said("the second one", reply_ref="another answer", is_addressed=True), True),
        (said("the second one", "bob", reply_ref="another answer", is_addressed=True), False),
    ],
)
def test_a_question_is_answered_by_who_was_asked_and_in_words_to_the_agent(
    message: IncomingMessage, *, is_answer: bool
) -> None:
    decision = decide_message(message, snapshot(*SEVERAL, asked="alice"))
    assert (isinstance(decision, Accept) and decision.ask_id == "a") is is_answer


@pytest.mark.parametrize(
    ("text", "among_people", "is_addressed", "is_answer"),
    [
        ("yes", False, False, True),
        ("yes", True, False, False),
        ("yes", True, True, True),
        ("no", False, False, True),
        ("yes, but first back it up", False, True, False),
        ("No, that is the wrong file", False, True, False),
    ],
)
@pytest.mark.parametrize("author", SEVERAL)
def test_only_a_yes_or_a_no_decides_about_a_card(
    text: str, author: str, *, among_people: bool, is_addressed: bool, is_answer: bool
) -> None:
    heard_at = NOON + timedelta(seconds=30 if among_people else -30)
    now = snapshot(*SEVERAL, asked="alice", heard_at=heard_at)
    assert now.open_ask is not None
    card = replace(now, open_ask=replace(now.open_ask, kind="approval"))
    decision = decide_message(said(text, author, is_addressed=is_addressed), card)
    assert (isinstance(decision, Accept) and decision.ask_id == "a") is is_answer
