"""What is made of the things that people do: stored once, refused politely, answered at once where possible."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import (
    AskAnswered,
    MessageDeleted,
    MessageEdited,
    RunButtonPressed,
    StopRequested,
)
from core.domain.threads import IncomingFile
from tests.fakes.played_model import calls, text
from tests.integration.bots.reception_desk import ALICE, BOB, HERE, Desk, command, message, runs_of
from tests.integration.bots.reception_desk import desk as desk
from tests.integration.core.conftest import world as world


async def test_a_mention_makes_a_run_and_wakes_worker_and_delivery(desk: Desk) -> None:
    outcome = await desk.reception.receive(message())
    assert outcome.run_id is not None
    assert await desk.reception.queue.claim() == outcome.run_id
    assert desk.woken == [outcome.run_id]


async def test_a_second_delivery_changes_nothing(desk: Desk) -> None:
    first = await desk.reception.receive(message())
    second = await desk.reception.receive(message())
    assert second.is_ignored
    runs = await desk.world.engine.conversations.find(HERE)
    assert runs is not None
    assert [one.run_id for one in await runs_of(desk)] == [first.run_id]


async def test_talk_that_is_not_for_the_agent_is_left_alone(desk: Desk) -> None:
    outcome = await desk.reception.receive(message(is_addressed=False))
    assert outcome.is_ignored
    assert outcome.notice == ""
    assert await desk.world.engine.conversations.find(HERE) is None


async def test_a_thread_that_the_agent_is_in_needs_no_mention(desk: Desk) -> None:
    first = await desk.reception.receive(message())
    second = await desk.reception.receive(message("and", key="2", is_addressed=False, author=BOB))
    assert second.run_id == first.run_id


async def test_an_empty_mention_is_greeted(desk: Desk) -> None:
    outcome = await desk.reception.receive(message("  "))
    assert outcome.notice.startswith("Hello!")
    assert outcome.run_id is None


async def test_files_alone_are_a_message(desk: Desk) -> None:
    file = IncomingFile(file_ref="f", name="a.csv")
    assert (await desk.reception.receive(message("", files=(file,)))).run_id is not None


@pytest.mark.parametrize(
    ("policy", "admitted"),
    [
        (AccessPolicy(), False),
        (AccessPolicy(workspaces=("*",)), True),
        (AccessPolicy(workspaces=("T1",)), True),
        (AccessPolicy(workspaces=("T2",)), False),
        (AccessPolicy(workspaces=("T1",), channels=("C2",)), False),
        (AccessPolicy(workspaces=("T1",), channels=("C1",), users=("U1",)), True),
        (AccessPolicy(users=("U2",)), False),
    ],
)
async def test_only_who_is_listed_gets_in(desk: Desk, policy: AccessPolicy, admitted: bool) -> None:
    outcome = await desk.with_policy(policy).reception.receive(message())
    assert (outcome.run_id is not None) is admitted
    assert ("not allowed" in outcome.notice) is not admitted


async def test_a_click_is_checked_again(desk: Desk) -> None:
    started = await desk.reception.receive(message())
    desk.with_policy(AccessPolicy(users=("U1",)))
    click = RunButtonPressed(
        address=HERE, dedupe_key="b", run_id=str(started.run_id), action="stop", person=BOB
    )
    assert "not allowed" in (await desk.reception.receive(click)).notice
    assert [run.stop_requested for run in await runs_of(desk)] == [False]


async def test_strangers_among_themselves_hear_nothing(desk: Desk) -> None:
    desk.with_policy(AccessPolicy())
    now = datetime.now(UTC)
    for inbound in (
        message(is_addressed=False),
        MessageEdited(
            address=HERE, dedupe_key="e", message_ref="9", author=BOB, text="x", sent_at=now
        ),
        MessageDeleted(address=HERE, dedupe_key="d", message_ref="9", author=BOB, sent_at=now),
        StopRequested(address=HERE, dedupe_key="s", message_ref="9", person=BOB),
    ):
        assert (await desk.reception.receive(inbound)).notice == ""


async def test_the_word_stop_stops_and_says_so(desk: Desk) -> None:
    await desk.reception.receive(message())
    assert (await desk.reception.receive(command("stop"))).notice == "Stopping."
    assert [run.stop_requested for run in await runs_of(desk)] == [True]


async def test_stop_where_nothing_runs_says_so(desk: Desk) -> None:
    assert (await desk.reception.receive(command("stop"))).notice == "Nothing is running here."


async def test_a_cross_counts_on_the_request_alone(desk: Desk) -> None:
    await desk.reception.receive(message(key="m1"))
    await desk.reception.receive(message("more", key="m2"))
    for ref, stopped in (("m2", False), ("m1", True)):
        cross = StopRequested(address=HERE, dedupe_key=f"x{ref}", message_ref=ref, person=BOB)
        await desk.reception.receive(cross)
        assert [run.stop_requested for run in await runs_of(desk)] == [stopped]


async def test_deleting_the_request_stops_its_run(desk: Desk) -> None:
    await desk.reception.receive(message(key="m1"))
    now = datetime.now(UTC)
    gone = MessageDeleted(
        address=HERE, dedupe_key="d1", message_ref="m1", author=ALICE, sent_at=now
    )
    await desk.reception.receive(gone)
    (run,) = await runs_of(desk)
    assert run.stop_requested or run.status == "stopped"


async def test_an_edit_before_the_run_takes_the_message_up_changes_it(desk: Desk) -> None:
    outcome = await desk.reception.receive(message("red", key="m1"))
    edit = MessageEdited(
        address=HERE,
        dedupe_key="m1:edit",
        message_ref="m1",
        author=ALICE,
        text="blue",
        sent_at=datetime.now(UTC),
    )
    await desk.reception.receive(edit)
    desk.world.model.turns = [text("ok")]
    await desk.play(outcome.run_id)
    sent = str(desk.world.model.requests[0].messages[-1]["content"])
    assert "blue" in sent
    assert "red" not in sent


async def test_the_first_answer_wins(desk: Desk) -> None:
    asked = calls(("ask", '{"text": "Which?", "options": ["A", "B"]}'))
    desk.world.model.turns = [asked, text("ok")]
    await desk.play((await desk.reception.receive(message())).run_id)
    snapshot = await desk.world.engine.conversations.find(HERE)
    assert snapshot is not None
    assert snapshot.open_ask is not None
    ask_id = snapshot.open_ask.ask_id
    answers = [
        AskAnswered(
            address=HERE,
            dedupe_key=f"click{n}",
            ask_id=ask_id,
            value=value,
            person=person,
            sent_at=datetime.now(UTC),
        )
        for n, (value, person) in enumerate([("A", BOB), ("B", ALICE)])
    ]
    first = await desk.reception.receive(answers[0])
    second = await desk.reception.receive(answers[1])
    assert first.run_id is not None
    assert second.notice == "This question is no longer open."
    await desk.play(first.run_id)
    assert "bob (U2):\nA" in str(desk.world.model.requests[-1].messages[-1]["content"])


async def test_retry_makes_one_new_run_however_often_it_is_pressed(desk: Desk) -> None:
    desk.world.model.turns = [[RuntimeError("bang")], text("now it works")]
    failed = await desk.play((await desk.reception.receive(message())).run_id)
    presses = [
        await desk.reception.receive(
            RunButtonPressed(
                address=HERE, dedupe_key=f"p{n}", run_id=failed, action="retry", person=ALICE
            )
        )
        for n in range(2)
    ]
    assert presses[0].run_id is not None
    assert presses[1].run_id is None
    await desk.play(presses[0].run_id)
    assert [run.status for run in await runs_of(desk)] == ["failed", "completed"]


@pytest.mark.parametrize("action", ["stop", "retry", "continue"])
async def test_a_click_reaches_no_run_of_another_thread(
    desk: Desk, action: Literal["stop", "retry", "continue"]
) -> None:
    desk.world.model.turns = [[RuntimeError("bang")], text("now it works")]
    run_id = (await desk.reception.receive(message())).run_id
    assert run_id is not None
    if action != "stop":
        await desk.play(run_id)
    click = RunButtonPressed(
        address=replace(HERE, thread_key="2.0"),
        dedupe_key="p1",
        run_id=run_id,
        action=action,
        person=ALICE,
    )
    outcome = await desk.reception.receive(click)
    assert outcome.is_ignored
    assert outcome.notice == "That is not a run of this conversation."
    (run,) = await runs_of(desk)
    assert not run.stop_requested
    assert (await desk.reception.receive(replace(click, address=HERE))).run_id is not None


async def test_a_remark_on_a_message_is_made_once_though_the_message_comes_twice(
    desk: Desk,
) -> None:
    said = [(await desk.reception.receive(message("", key="k"))).notice for _ in range(2)]
    assert said[0].startswith("Hello!")
    assert said[1] == ""
    # what it was about may still come whole
    assert (await desk.reception.receive(message("Count.", key="k"))).run_id is not None
