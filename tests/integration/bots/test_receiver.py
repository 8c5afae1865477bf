"""What is made of the things that people do: stored once, refused politely, answered at once where possible."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bots.bootstrap.inbound import read_follow_modes
from bots.inbound.actions import UNKNOWN_CONTROL
from bots.settings import load_settings
from core.domain.actions import AskAnswered
from core.domain.errors import ConfigurationError
from core.domain.threads import IncomingFile
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


async def test_an_empty_mention_is_greeted(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(message("  "))
    assert outcome.notice.startswith("Hello!")
    assert outcome.run_id is None


async def test_files_alone_are_a_message(stage: ReceiverStage) -> None:
    file = IncomingFile(file_ref="f", name="a.csv")
    assert (await stage.receiver.receive(message("", files=(file,)))).run_id is not None


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
