"""A conversation over Socket Mode with the simulated Slack: what people do comes in once, what we say is seen."""

from dataclasses import replace

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.inbound.actions import CommandCalled, Outcome
from bots.slack.app import SlackApp
from bots.slack.install.manifest import BOT_EVENTS, BOT_SCOPES
from core.domain.actions import AskAnswered, IncomingMessage, StopRequested
from core.domain.threads import Address, Ask
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.web_api import METHODS, Call
from simulator.view import Button, SentFile
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, general, running
from tests.support.waiting import until


async def test_a_mention_comes_in_once(slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver):
    ts = await slack.say("alice", channel_of(slack), "@threadhand count to three, @bob")
    await until(lambda: receiver.taken)
    (message,) = receiver.taken
    assert isinstance(message, IncomingMessage)
    assert (message.text, message.person.name) == ("count to three, @bob", "alice")
    assert message.address.thread_key == message.message_ref == ts
    assert message.is_addressed


async def test_status_and_answer_stand_in_the_thread(slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver):
    await slack.say("alice", channel_of(slack), "@threadhand list the files")
    await until(lambda: receiver.taken)
    address = receiver.taken[0].address
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
        await slack.say("alice", channel_of(slack), "@threadhand sum", files=[file])
        await until(lambda: receiver.taken)
    (message,) = receiver.taken
    assert isinstance(message, IncomingMessage)
    assert [file.name for file in message.files] == ["a.csv"]


@pytest.mark.parametrize("mentions_first", [True, False])
async def test_the_pair_of_events_of_one_mention_is_received_once(receiver: RecordingReceiver, mentions_first: bool):
    settings = SlackSettings(mentions_first=mentions_first)
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver):
        await slack.say("alice", channel_of(slack), "@threadhand one")
        await until(lambda: receiver.taken)
        await slack.say("alice", channel_of(slack), "@threadhand two")
        await until(lambda: len(receiver.taken) == 2)
    assert receiver.calls == 2


@pytest.mark.parametrize("fault", ["drop_connection", "reconnect"])
async def test_a_lost_socket_is_made_again(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver, fault: str
):
    slack.misbehave(fault)
    await until(lambda: opened(slack) == 2)
    await slack.say("alice", channel_of(slack), "@threadhand still there?")
    await until(lambda: receiver.taken)


def opened(slack: SlackSimulator) -> int:
    return sum(call.method == "apps.connections.open" for call in slack.calls)


async def test_a_click_answers_a_question_after_a_restart(receiver: RecordingReceiver):
    async with SlackSimulator() as slack:
        async with running(slack, receiver) as app:
            await slack.say("alice", channel_of(slack), "@threadhand paint it")
            await until(lambda: receiver.taken)
            ask = Ask(ask_id="a-1", run_id="r-1", text="Which?", options=("Red", "Blue"))
            address = receiver.taken[0].address
            ref = await app.surface.post(address, AskPrompt(ask=ask), delivery_id="d1")
        async with running(slack, receiver) as app:
            (thread,) = general(slack).threads
            buttons = [one for one in thread.messages[1].elements if isinstance(one, Button)]
            blue = next(one for one in buttons if one.label == "Blue")
            await slack.press("bob", channel_of(slack), ref, blue.control_id)
            await until(lambda: len(receiver.taken) == 2)
    answer = receiver.taken[1]
    assert isinstance(answer, AskAnswered)
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
        root = await slack.say("alice", channel_of(slack), "@threadhand count")
        await until(lambda: receiver.taken)
        address = receiver.taken[0].address
        async with app.surface.typing(address):
            assert general(slack).typing
            await slack.stop_session("alice", channel_of(slack), root)
            await until(lambda: len(receiver.taken) == 2)
        assert not general(slack).typing
        with pytest.raises(ValueError, match="no session is processing"):
            await slack.stop_session("alice", channel_of(slack), root)
        assert statuses(slack) == [(SESSION, "")] * 2
    stop = receiver.taken[1]
    assert isinstance(stop, StopRequested)
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
    address = Address(
        platform="slack", workspace_id=slack.workspace.team_id, channel_id=channel_of(slack), thread_key="1.000001"
    )
    async with speaker.surface.typing(address):
        pass
    assert statuses(slack) == [(SESSION, "thread_not_found")] * 2


async def test_who_cannot_be_looked_up_goes_by_the_id(receiver: RecordingReceiver):
    scopes = tuple(scope for scope in SlackSettings().scopes if scope != "users:read")
    async with SlackSimulator(settings=SlackSettings(scopes=scopes)) as slack, running(slack, receiver):
        await slack.say("alice", channel_of(slack), "@threadhand hello @bob")
        await until(lambda: receiver.taken)
    (message,) = receiver.taken
    assert isinstance(message, IncomingMessage)
    assert message.person.name == message.person.person_id
    assert message.text.startswith("hello @U")
