"""A conversation over Socket Mode: what people do comes in once and in its order, what we say is seen."""

from dataclasses import replace

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.inbound.actions import NOT_STORED, CommandCalled, Outcome
from bots.slack.app import SlackApp
from bots.slack.install.manifest import BOT_EVENTS, BOT_SCOPES
from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.threads import Address, Ask
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.web_api import METHODS, Call
from simulator.view import Button, SentFile
from tests.integration.bots.slack.socket_mode_app import (
    RecordingReceiver,
    channel_of,
    general,
    mention,
    running,
    thread_in,
)
from tests.integration.bots.slack.storing_app import UNHEARD, StoringReceiver, listening, told
from tests.support.narrow import require_type
from tests.support.waiting import until


async def test_a_mention_comes_in_once(slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver):
    message = await mention(slack, receiver, "count to three, @bob")
    assert (message.text, message.person.name) == ("count to three, @bob", "alice")
    (posted,) = general(slack).messages
    assert message.address.thread_key == message.message_ref == posted.message_id
    assert message.is_addressed


async def test_status_and_answer_stand_in_the_thread(slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver):
    address = (await mention(slack, receiver, "list the files")).address
    task = Task(call_id="c1", title="`ls`", state="running")
    working = RunStatus(run_id="r1", view=RunView(state="working", tasks=(task,)))
    ref = await app.surface.post(address, working, delivery_id="d1")
    done = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
    await app.surface.edit(address, ref, done)
    await app.surface.post(address, AnswerPart(markdown="There are **two**."), delivery_id="d2")
    (thread,) = general(slack).threads
    _, status, answer = thread.messages
    assert (status.message_id, status.edits) == (ref, 1)
    assert "Done" in str(status.elements)
    assert "There are **two**." in str(answer.elements)


async def test_the_fallback_for_a_lost_message_event_fetches_the_whole_message(receiver: RecordingReceiver):
    settings = SlackSettings(subscriptions=("app_mention",))
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver):
        file = SentFile(name="a.csv", content=b"1,2", mime_type="text/csv")
        message = await mention(slack, receiver, "sum", files=[file])
    assert [file.name for file in message.files] == ["a.csv"]


@pytest.mark.parametrize("mentions_first", [True, False])
async def test_the_pair_of_events_of_one_mention_is_received_once(receiver: RecordingReceiver, mentions_first: bool):
    settings = SlackSettings(mentions_first=mentions_first)
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver):
        await mention(slack, receiver, "one")
        await slack.say("alice", channel_of(slack), "@threadhand two")
        await until(lambda: len(receiver.taken) == 2)
    assert receiver.calls == 2


@pytest.mark.parametrize("fault", ["drop_connection", "reconnect"])
async def test_a_lost_socket_is_made_again(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver, fault: str
):
    slack.misbehave(fault)
    await until(lambda: sum(call.method == "apps.connections.open" for call in slack.calls) == 2)
    await mention(slack, receiver, "still there?")


async def test_a_click_answers_a_question_after_a_restart(receiver: RecordingReceiver):
    async with SlackSimulator() as slack:
        async with running(slack, receiver) as app:
            address = (await mention(slack, receiver, "paint it")).address
            ask = Ask(ask_id="a-1", run_id="r-1", text="Which?", options=("Red", "Blue"))
            ref = await app.surface.post(address, AskPrompt(ask=ask), delivery_id="d1")
        async with running(slack, receiver) as app:
            (thread,) = general(slack).threads
            buttons = [one for one in thread.messages[1].elements if isinstance(one, Button)]
            blue = next(one for one in buttons if one.label == "Blue")
            await slack.press("bob", channel_of(slack), ref, blue.control_id)
            await until(lambda: len(receiver.taken) == 2)
    answer = require_type(receiver.taken[1], AskAnswered)
    assert (answer.ask_id, answer.text, answer.person.name) == ("a-1", "Blue", "bob")
    assert answer.address == address


@pytest.mark.parametrize("is_private", [True, False])
async def test_a_notice_is_shown_to_the_person_or_to_the_thread(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver, is_private: bool
):
    receiver.outcome = Outcome(notice="Nothing **runs** here.", is_private=is_private)
    await slack.say("alice", channel_of(slack), "@threadhand status")
    await until(lambda: "Nothing **runs** here." in str(slack.view()))
    (command,) = receiver.taken
    assert isinstance(command, CommandCalled)
    shown = [call.method for call in slack.calls if call.method.startswith("chat.post")]
    assert shown == ["chat.postEphemeral" if is_private else "chat.postMessage"]


SESSION, LINE = "agents.sessions.setStatus", "assistant.threads.setStatus"


def statuses(slack: SlackSimulator) -> list[tuple[str, str]]:
    return [(call.method, call.error) for call in slack.calls if "setStatus" in call.method]


async def test_slacks_own_stop_button_is_a_wish_to_stop():
    receiver = RecordingReceiver()
    settings = SlackSettings(scopes=BOT_SCOPES, subscriptions=BOT_EVENTS)
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver) as app:
        address = (await mention(slack, receiver, "count")).address
        root = address.thread_key
        async with app.surface.typing(address):
            assert general(slack).typing
            await slack.stop_session("alice", channel_of(slack), root)
            await until(lambda: len(receiver.taken) == 2)
        assert not general(slack).typing
        with pytest.raises(ValueError, match="no session is processing"):
            await slack.stop_session("alice", channel_of(slack), root)
        assert statuses(slack) == [(SESSION, "")] * 2
    stop = require_type(receiver.taken[1], StopRequested)
    assert stop.address == address
    assert stop.person.person_id == slack.member("alice").user_id


@pytest.mark.parametrize("refusal", ["feature_not_enabled", "missing_scope", "not_authorized", "unknown_method"])
async def test_an_app_without_sessions_shows_the_line_and_asks_no_more(
    slack: SlackSimulator, speaker: SlackApp, address: Address, monkeypatch: pytest.MonkeyPatch, refusal: str
):
    def refuse(call: Call) -> Payload:
        raise Refused(refusal)

    monkeypatch.setitem(METHODS, SESSION, replace(METHODS[SESSION], run=refuse))
    for _ in range(2):
        async with speaker.surface.typing(address):
            assert general(slack).typing
        assert not general(slack).typing
    assert statuses(slack) == [(SESSION, refusal), *[(LINE, "")] * 4]


async def test_typing_that_slack_refuses_is_no_error(slack: SlackSimulator, speaker: SlackApp):
    async with speaker.surface.typing(thread_in(slack, "1.000001")):
        pass
    assert statuses(slack) == [(SESSION, "thread_not_found")] * 2


async def test_who_cannot_be_looked_up_goes_by_the_id(receiver: RecordingReceiver):
    scopes = tuple(scope for scope in SlackSettings().scopes if scope != "users:read")
    async with SlackSimulator(settings=SlackSettings(scopes=scopes)) as slack, running(slack, receiver):
        message = await mention(slack, receiver, "hello @bob")
    assert message.person.name == message.person.person_id
    assert message.text.startswith("hello @U")


async def test_changes_do_not_overtake_a_message_whose_names_are_looked_up_slowly(
    slack: SlackSimulator, receiver: RecordingReceiver
) -> None:
    async with running(slack, receiver):
        channel = channel_of(slack)
        root = (await mention(slack, receiver, "hello")).message_ref
        slack.misbehave("slow", method="users.info", times=2, seconds=1.5)
        asked = await slack.say("alice", channel, "Pay @bob 1000 EUR.", thread_id=root)
        await slack.edit("alice", channel, asked, "Pay @bob 10 EUR.")
        await slack.say("alice", channel, "No, wait.", thread_id=root)
        await slack.delete("alice", channel, asked)
        await until(lambda: len(receiver.taken) == 5)
        order = [type(one) for one in receiver.taken[1:]]
        assert order == [IncomingMessage, MessageEdited, IncomingMessage, MessageDeleted]


@pytest.mark.parametrize("mentions_first", [True, False])
async def test_a_reply_that_comes_before_its_root_is_not_lost(
    storing_receiver: StoringReceiver, *, mentions_first: bool
) -> None:
    settings = SlackSettings(mentions_first=mentions_first)
    async with SlackSimulator(settings=settings) as slack, listening(slack, storing_receiver):
        channel = channel_of(slack)
        slack.misbehave("delay", method="message.channels", seconds=1.2)
        slack.misbehave("delay", method="app_mention", seconds=1.2)
        root = await slack.say("alice", channel, "@threadhand count the rows")
        await slack.say("alice", channel, "and the columns", thread_id=root)
        await until(lambda: len(storing_receiver.taken) == 2)
        assert storing_receiver.taken == ["count the rows", "and the columns"]


IMPATIENT = replace(UNHEARD, retry_seconds=())
"""Slack delivers nothing again."""


async def test_what_was_refused_is_taken_when_the_database_is_back(
    storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with SlackSimulator(settings=IMPATIENT) as slack, listening(slack, storing_receiver):
        storing_receiver.is_away = True
        root = await slack.say("alice", channel_of(slack), "@threadhand begin")
        await until(lambda: "never took" in caplog.text)
        calls = storing_receiver.calls
        await until(lambda: storing_receiver.calls > calls)
        await slack.say("alice", channel_of(slack), "go on", thread_id=root)
        await slack.say("alice", channel_of(slack), "stop", thread_id=root)
        await until(lambda: caplog.text.count("never took") >= 3)
        assert storing_receiver.taken == []

        storing_receiver.is_away = False
        await told(caplog, "events that had to wait were handled")
        assert storing_receiver.taken == ["begin", "go on", "(stop)"]
        assert "dropped" not in caplog.text


async def test_a_click_that_cannot_be_stored_is_told_to_be_tried_again(storing_receiver: StoringReceiver) -> None:
    async with SlackSimulator(settings=IMPATIENT) as slack, listening(slack, storing_receiver) as app:
        root = await slack.say("alice", channel_of(slack), "@threadhand begin")
        await until(lambda: storing_receiver.taken)
        ask = Ask(ask_id="a-1", run_id="r-1", text="Which?", options=("Red", "Blue"))
        ref = await app.surface.post(thread_in(slack, root), AskPrompt(ask=ask), delivery_id="d1")
        (thread,) = general(slack).threads
        button = next(one for one in thread.messages[1].elements if isinstance(one, Button))
        storing_receiver.is_away = True
        await slack.press("alice", channel_of(slack), ref, button.control_id)
        await until(lambda: NOT_STORED in str(slack.view()))


async def test_a_slack_that_answers_no_look_up_delays_no_message(receiver: RecordingReceiver) -> None:
    async with SlackSimulator(settings=SlackSettings(mentions_first=True)) as slack, running(slack, receiver):
        slack.misbehave("delay", method="message.channels", seconds=60)
        for method in ("users.info", "conversations.replies", "files.info"):
            slack.misbehave("slow", method=method, times=9, seconds=60)
        await mention(slack, receiver, "hello @bob")


async def test_the_time_zone_of_an_author_is_looked_up(slack: SlackSimulator, receiver: RecordingReceiver) -> None:
    slack.member("alice").time_zone = "Europe/Helsinki"
    async with running(slack, receiver):
        said = await mention(slack, receiver, "hello")
    assert said.person.time_zone == "Europe/Helsinki"
