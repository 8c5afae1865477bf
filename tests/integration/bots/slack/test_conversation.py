"""A conversation over Socket Mode with the simulated Slack: what people do comes in once, what we say is seen."""

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from bots.delivery.run_view import RunView, Task
from bots.inbound.actions import CommandCalled, Outcome
from bots.slack.app import SlackApp
from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.threads import Ask
from simulator.slack import SlackSettings, SlackSimulator
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


async def test_a_slack_that_was_away_is_found_again(receiver: RecordingReceiver):
    async with SlackSimulator() as slack:
        app = SlackApp(
            bot_token=slack.settings.bot_token,
            app_token=slack.settings.app_token,
            api_url=slack.api_url,
            receive=receiver.receive,
        )
        await app.start()
    async with SlackSimulator(slack.port) as slack:
        await slack.say("alice", channel_of(slack), "@threadhand back again?")
        await until(lambda: receiver.taken)
        await app.close()


def opened(slack: SlackSimulator) -> int:
    return sum(call.method == "apps.connections.open" for call in slack.calls)


async def test_edits_deletions_and_stop_signs_come_in(
    slack: SlackSimulator, app: SlackApp, receiver: RecordingReceiver
):
    channel = channel_of(slack)
    root = await slack.say("alice", channel, "@threadhand count to three")
    reply = await slack.say("bob", channel, "and four", thread_id=root)
    await until(lambda: len(receiver.taken) == 2)
    await slack.edit("bob", channel, reply, "and five")
    await until(lambda: len(receiver.taken) == 3)
    await slack.delete("bob", channel, reply)
    await until(lambda: len(receiver.taken) == 4)
    await slack.react("alice", channel, root, "x")
    await until(lambda: len(receiver.taken) == 5)
    assert [type(one) for one in receiver.taken] == [
        IncomingMessage,
        IncomingMessage,
        MessageEdited,
        MessageDeleted,
        StopRequested,
    ]
    assert {one.address.thread_key for one in receiver.taken} == {root}


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


async def test_reactions_follow_the_work_one_at_a_time(receiver: RecordingReceiver):
    async with SlackSimulator() as slack:
        async with running(slack, receiver) as app:
            ts = await slack.say("alice", channel_of(slack), "@threadhand go")
            await until(lambda: receiver.taken)
            address = receiver.taken[0].address
            await app.surface.react(address, ts, "queued")
            await app.surface.react(address, ts, "seen")
            assert reactions(slack) == ["eyes"]
        async with running(slack, receiver) as app:
            await app.surface.react(address, ts, "done")
            assert reactions(slack) == ["white_check_mark"]
            await app.surface.react(address, ts, "done")
            await app.surface.react(address, ts, None)
            assert reactions(slack) == []


def reactions(slack: SlackSimulator) -> list[str]:
    return [one.emoji for one in general(slack).messages[0].reactions]


async def test_who_cannot_be_looked_up_goes_by_the_id(receiver: RecordingReceiver):
    scopes = tuple(scope for scope in SlackSettings().scopes if scope != "users:read")
    async with SlackSimulator(settings=SlackSettings(scopes=scopes)) as slack, running(slack, receiver):
        await slack.say("alice", channel_of(slack), "@threadhand hello @bob")
        await until(lambda: receiver.taken)
    (message,) = receiver.taken
    assert isinstance(message, IncomingMessage)
    assert message.person.name == message.person.person_id
    assert message.text.startswith("hello @U")
