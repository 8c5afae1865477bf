"""A conversation over Socket Mode with the simulated Slack: what people do comes in once, what we say is seen."""

from bots.inbound import IncomingMessage
from bots.rendering.content import AnswerPart, RunStatus
from bots.rendering.run_view import RunView, Task
from bots.simulator.slack import SlackSimulator
from bots.slack.app import SlackApp
from tests.bots.slack.scene import Desk, channel_of, eventually


async def test_a_mention_comes_in_once(slack: SlackSimulator, app: SlackApp, desk: Desk):
    ts = await slack.say("alice", channel_of(slack), "@threadhand count to three, @bob")
    await eventually(lambda: desk.taken)
    (message,) = desk.taken
    assert isinstance(message, IncomingMessage)
    assert (message.text, message.author.name) == ("count to three, @bob", "alice")
    assert message.address.thread_key == message.message_ref == ts
    assert message.is_addressed


async def test_status_and_answer_stand_in_the_thread(
    slack: SlackSimulator, app: SlackApp, desk: Desk
):
    await slack.say("alice", channel_of(slack), "@threadhand list the files")
    await eventually(lambda: desk.taken)
    address = desk.taken[0].address
    task = Task(call_id="c1", title="`ls`", state="running")
    working = RunStatus(run_id="r1", view=RunView(state="working", tasks=(task,)))
    ref = await app.surface.post(address, working, delivery_id="d1")
    done = RunStatus(run_id="r1", view=RunView(state="completed", can_stop=False))
    await app.surface.edit(address, ref, done)
    await app.surface.post(address, AnswerPart(markdown="There are **two**."), delivery_id="d2")
    (thread,) = slack.view().channels[0].threads
    _, status, answer = thread.messages
    assert (status.message_id, status.edits) == (ref, 1)
    assert "Done" in str(status.elements)
    assert "There are **two**." in str(answer.elements)
