"""What is made of the things that people do: stored once, refused politely, answered at once where possible."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from bots.bootstrap.inbound import read_follow_modes
from bots.inbound.access import AccessPolicy
from bots.inbound.actions import UNKNOWN_CONTROL, RunButtonPressed
from bots.settings import load_settings
from core.domain.actions import ActorContext, AskAnswered
from core.domain.errors import ConfigurationError, StorageUnavailable
from core.domain.threads import Address, IncomingFile, Platform
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require


async def test_a_mention_makes_a_run_and_wakes_worker_and_delivery(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(message())
    assert outcome.run_id is not None
    assert await stage.receiver.queue.claim() == outcome.run_id
    assert stage.woken == [outcome.run_id]


async def test_a_run_begins_once_it_is_prepared(stage: ReceiverStage) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def prepare() -> None:
        begun.set()
        await may_end.wait()

    receiving = asyncio.ensure_future(stage.receiver.receive(replace(message(), prepare=prepare)))
    await begun.wait()
    claim = asyncio.ensure_future(stage.receiver.queue.claim())
    await asyncio.sleep(0.05)
    assert not claim.done()
    may_end.set()
    assert await claim == (await receiving).run_id


@pytest.mark.parametrize("way", ["raises", "hangs"])
async def test_a_run_that_could_not_be_prepared_begins_all_the_same(
    stage: ReceiverStage, way: str, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """Its delivery opens the thread, or tells why that is not allowed."""
    monkeypatch.setattr("bots.inbound.receiver.PREPARE_SECONDS_MAX", 0.05)

    async def prepare() -> None:
        if way == "raises":
            raise StorageUnavailable("the database is away")
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        outcome = await stage.receiver.receive(replace(message(), prepare=prepare))
        assert outcome.run_id is not None
        assert not outcome.is_ignored
        assert await stage.receiver.queue.claim() == outcome.run_id
    assert f"run {outcome.run_id} begins unprepared" in caplog.text


async def test_an_empty_mention_is_greeted(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(message("  "))
    assert outcome.notice.startswith("Hello!")
    assert outcome.run_id is None


async def test_files_alone_are_a_message(stage: ReceiverStage) -> None:
    file = IncomingFile(file_ref="f", name="a.csv")
    assert (await stage.receiver.receive(message("", files=(file,)))).run_id is not None


async def test_a_click_is_checked_again(stage: ReceiverStage) -> None:
    started = await stage.receiver.receive(message())
    stage.with_policy(AccessPolicy(users=("U1",)))
    click = RunButtonPressed(address=HERE, dedupe_key="b", run_id=str(started.run_id), action="stop", person=BOB)
    assert "not allowed" in (await stage.receiver.receive(click)).notice
    assert [run.stop_requested for run in await runs_of(stage)] == [False]


async def test_the_word_stop_stops_and_says_so(stage: ReceiverStage) -> None:
    await stage.receiver.receive(message())
    assert (await stage.receiver.receive(command("stop"))).notice == "Stopping."
    assert (await stage.receiver.receive(command("stop"))).notice == ""  # the same one again
    assert [run.stop_requested for run in await runs_of(stage)] == [True]


async def test_stop_where_nothing_runs_says_so(stage: ReceiverStage) -> None:
    assert (await stage.receiver.receive(command("stop"))).notice == "Nothing is running here."


async def test_the_first_answer_wins(stage: ReceiverStage) -> None:
    asked = calls(("ask", '{"text": "Which?", "options": ["A", "B"]}'))
    stage.world.model.turns = [asked, text("ok")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    snapshot = require(await stage.world.deps.stores.conversations.find(HERE))
    assert snapshot.open_ask is not None
    ask_id = snapshot.open_ask.ask_id
    answers = [
        AskAnswered(
            address=HERE, dedupe_key=f"click{n}", ask_id=ask_id, text=value, person=person, sent_at=datetime.now(UTC)
        )
        for n, (value, person) in enumerate([("A", BOB), ("B", ALICE)])
    ]
    first = await stage.receiver.receive(answers[0])
    second = await stage.receiver.receive(answers[1])
    assert first.run_id is not None
    assert second.notice == "This question is no longer open."
    await stage.play(first.run_id)
    assert '<message from="bob (U2)"' in str(stage.world.model.requests[-1].messages[-1]["content"])


@pytest.mark.parametrize(("option", "told"), [(0, "alike 1"), (1, "alike 2"), (2, "")])
async def test_a_chosen_option_is_told_whole_however_short_its_label_is(
    stage: ReceiverStage, option: int, told: str
) -> None:
    options = ["alike " * 50 + end for end in ("alike 1", "alike 2")]
    asking = calls(("ask", json.dumps({"text": "A or B?", "options": options})))
    stage.world.model.turns = [asking, text("Right.")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    snapshot = require(await stage.world.deps.stores.conversations.find(HERE))
    assert snapshot.open_ask is not None
    click = AskAnswered(
        address=HERE,
        dedupe_key="click",
        ask_id=snapshot.open_ask.ask_id,
        option=option,
        person=ALICE,
        sent_at=datetime.now(UTC),
    )
    outcome = await stage.receiver.receive(click)
    if not told:
        assert (outcome.run_id, outcome.notice) == (None, UNKNOWN_CONTROL)
        return
    await stage.play(outcome.run_id)
    answer = str(stage.world.model.requests[-1].messages[-1]["content"])
    assert f"\n{options[option]}\n" in answer


@pytest.mark.parametrize("action", ["stop", "retry", "continue"])
async def test_a_click_reaches_no_run_of_another_thread(
    stage: ReceiverStage, action: Literal["stop", "retry", "continue"]
) -> None:
    stage.world.model.turns = [[RuntimeError("bang")], text("now it works")]
    run_id = (await stage.receiver.receive(message())).run_id
    assert run_id is not None
    if action != "stop":
        await stage.play(run_id)
    click = RunButtonPressed(
        address=replace(HERE, thread_key="2.0"),
        dedupe_key="p1",
        run_id=run_id,
        action=action,
        person=replace(ALICE, person_id="U9"),
    )
    outcome = await stage.receiver.receive(click)
    assert outcome.is_ignored
    assert outcome.notice == "That is not a run of this conversation."
    (run,) = await runs_of(stage)
    assert not run.stop_requested
    assert (await stage.receiver.receive(replace(click, address=HERE))).run_id is not None


async def test_the_requester_may_retry_from_where_the_bot_told_of_a_refusal(stage: ReceiverStage) -> None:
    stage.world.model.turns = [[RuntimeError("bang")], text("now it works")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    (failed,) = await runs_of(stage)
    click = RunButtonPressed(
        address=replace(HERE, channel_id="D1", thread_key="2.0"),
        dedupe_key="p1",
        run_id=failed.run_id,
        action="retry",
        person=ALICE,
    )
    elsewhere = replace(click, address=replace(click.address, workspace_id="T9"))
    assert (await stage.receiver.receive(elsewhere)).is_ignored
    run_id = (await stage.receiver.receive(click)).run_id
    assert run_id not in (None, failed.run_id)


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_retry_is_allowed_by_the_place_of_the_run_not_of_the_button(
    stage: ReceiverStage, platform: Platform
) -> None:
    is_discord = platform == "discord"
    policy = AccessPolicy(workspaces=("T1",), channels=("C1",), roles=("R1",))
    stage.with_policy(policy)
    member = ActorContext(groups=frozenset({"R1"}))
    asked = replace(message(), address=replace(HERE, platform=platform), actor=member)
    stage.world.model.turns = [[RuntimeError("bang")], text("now it works")]
    await stage.play((await stage.receiver.receive(asked)).run_id)
    (failed,) = await runs_of(stage, asked.address)
    click = RunButtonPressed(
        address=Address(
            platform=platform,
            workspace_id="@me" if is_discord else "T1",
            channel_id="D1",
            thread_key="dm" if is_discord else "2.0",
        ),
        dedupe_key="p1",
        run_id=failed.run_id,
        action="retry",
        person=ALICE,
        actor=ActorContext(is_direct=True, groups=frozenset() if is_discord else member.groups, expects_answer=True),
    )
    assert not (await stage.receiver.receive(replace(click, person=BOB))).run_id
    stage.with_policy(replace(policy, channels=("C2",)))
    assert not (await stage.receiver.receive(click)).run_id
    stage.with_policy(policy)
    assert (await stage.receiver.receive(click)).run_id not in (None, failed.run_id)


async def test_a_remark_on_a_message_is_made_once_though_the_message_comes_twice(stage: ReceiverStage) -> None:
    said = [(await stage.receiver.receive(message("", key="k"))).notice for _ in range(2)]
    assert said[0].startswith("Hello!")
    assert said[1] == ""
    # what it was about may still come whole
    assert (await stage.receiver.receive(message("Count.", key="k"))).run_id is not None


async def test_a_program_is_told_each_time_why_its_message_was_not_taken(stage: ReceiverStage) -> None:
    api = replace(HERE, platform="api")
    asked = replace(message("go", key="k"), address=api, agent_id="nobody")
    outcomes = [await stage.receiver.receive_trusted(asked) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].notice
    assert outcomes[0].run_id is None


@pytest.mark.parametrize(
    ("default", "channels", "is_taken"),
    [
        ("follow", "", True),
        ("mention", "", False),
        ("quiet", "", False),
        ("mention", f"C9=quiet, {HERE.channel_id} = follow", True),
        ("follow", f"{HERE.channel_id}=quiet", False),
        ("follow", "C9=mention", True),
    ],
)
async def test_settings_choose_what_is_taken_up_without_a_mention(
    stage: ReceiverStage, default: str, channels: str, is_taken: bool
) -> None:
    chosen = {"THREADHAND_FOLLOW_MODE": default, "THREADHAND_CHANNEL_FOLLOW_MODES": channels}
    modes = read_follow_modes(load_settings(chosen, None))
    receiver = replace(stage.receiver, follow_modes=modes)
    stage.world.model.turns = [text("one")]
    await stage.play((await receiver.receive(message(key="m1"))).run_id)
    said = await receiver.receive(message("Please count the rows, too.", key="m2", is_addressed=False))
    assert (said.run_id is not None, said.is_ignored) == (is_taken, not is_taken)


@pytest.mark.parametrize(
    ("channels", "sentence"),
    [
        ("C1=always", "for C1: the modes are follow, mention and quiet."),
        ("C1", "has a bad value .'C1'.: write channel=mode pairs"),
        ("#general=quiet", "has a bad value .'#general=quiet'.: write channel=mode pairs"),
    ],
)
def test_wrong_follow_modes_are_refused(channels: str, sentence: str) -> None:
    chosen = load_settings({"THREADHAND_CHANNEL_FOLLOW_MODES": channels}, None)
    with pytest.raises(ConfigurationError, match=f"THREADHAND_CHANNEL_FOLLOW_MODES:? {sentence}"):
        read_follow_modes(chosen)
    with pytest.raises(ConfigurationError, match="THREADHAND_FOLLOW_MODE has a bad value"):
        load_settings({"THREADHAND_FOLLOW_MODE": "always"}, None)
