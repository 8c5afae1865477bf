"""What Slack offers beside messages, used by people against the whole program."""

from pathlib import Path

from bots.demo.thread_reader import text_of
from bots.slack.install.manifest import COMMAND
from simulator.slack.server import SlackSimulator
from tests.chaos import report_story
from tests.chaos.harness import PERSON, Stage, staged
from tests.integration.e2e.staging import run_staged
from tests.integration.e2e.test_bad_input import HELLO
from tests.ports import free_port


def slack_of(stage: Stage) -> SlackSimulator:
    assert isinstance(stage.platform, SlackSimulator)
    return stage.platform


async def test_a_shortcut_and_a_command_begin_runs_that_are_answered_in_their_threads() -> None:
    async with run_staged("slack", HELLO) as stage:
        slack = slack_of(stage)
        stage.thread_id = await slack.say("bob", stage.channel_id, "The build is red")
        await slack.use_shortcut(PERSON, "Ask Threadhand", stage.channel_id, stage.thread_id)
        await stage.until(lambda: stage.view().forms, "the form opens")
        form_id = stage.view().forms[0].form_id
        await slack.submit(PERSON, form_id, {"request": "Hello, why?"})
        await stage.until(lambda: stage.shows("Hi there."), "it answers in the thread")
        await stage.until(lambda: stage.shows("asked me: Hello, why?"), "who asked what is said")
        assert "> The build is red" in str(stage.script.requests[0])
        await slack.command(PERSON, stage.channel_id, COMMAND, {"text": "Hello again"})
        (channel,) = (one for one in stage.view().channels if not one.is_direct)
        roots = [one for one in channel.messages if one.is_bot]
        stage.thread_id = roots[-1].message_id
        await stage.until(lambda: stage.shows("Hi there."), "it answers the command")
        await stage.settled(2)
        assert stage.runs() == ["completed", "completed"]


def greetings(stage: Stage, channel_id: str) -> list[str]:
    return [
        text_of(message)
        for channel in stage.view().channels
        if channel.channel_id == channel_id
        for message in channel.messages
        if message.is_bot and "Hello!" in text_of(message)
    ]


async def test_a_new_person_and_a_new_channel_are_greeted_once() -> None:
    async with staged("slack", HELLO) as stage:
        slack = slack_of(stage)
        stage.program.start()
        await stage.connected()
        bot, channel = slack.workspace.bot, slack.workspace.channels[stage.channel_id]
        del channel.members[bot.user_id]
        slack.misbehave("duplicate", times=1)
        await slack.invite(stage.channel_id)
        await stage.until(lambda: greetings(stage, stage.channel_id), "the channel is greeted")
        slack.misbehave("none")
        direct = slack.workspace.direct_with(slack.member(PERSON).user_id, bot.user_id).channel_id
        await slack.open_app(PERSON)
        await stage.until(lambda: greetings(stage, direct), "alice is greeted")
        await slack.open_app(PERSON)
        await slack.open_app("bob")
        to_bob = slack.workspace.direct_with(slack.member("bob").user_id, bot.user_id).channel_id
        await stage.until(lambda: greetings(stage, to_bob), "bob is greeted")
        (line,) = greetings(stage, stage.channel_id)
        assert "@threadhand summarise this thread" in line
        assert "I also answer without a mention" in line
        assert len(greetings(stage, direct)) == 1


async def test_feedback_is_stored_with_its_reason_listed_and_exported(tmp_path: Path) -> None:
    async with staged("slack", HELLO) as stage:
        slack = slack_of(stage)
        stage.program.start()
        await stage.connected()
        await stage.say("Hello")
        await stage.settled(1)
        await stage.press("Good answer")
        await stage.until(lambda: feedback(stage) == [(1, "")], "the good word is stored")
        await stage.press("Bad answer")
        await stage.until(lambda: stage.view().forms, "the reason is asked for")
        assert feedback(stage) == [(0, "")]
        form_id = stage.view().forms[0].form_id
        await slack.submit(PERSON, form_id, {"request": "It <greets> & no more"})
        await stage.until(lambda: feedback(stage)[0][1], "the reason is stored")
        assert feedback(stage) == [(0, "It <greets> & no more")]
        tasks = tmp_path / "tasks"
        listing = stage.program.beside("feedback")
        listing.start(arguments=("feedback", "--bad", "--export", str(tasks)))
        assert await listing.ended() == 0, listing.log()
        told = listing.log()
        assert "bad  alice" in told
        assert "It <greets> & no more" in told
        assert [one.name for one in tasks.glob("*/task.yaml")] == ["task.yaml"]


def feedback(stage: Stage) -> list[tuple[object, ...]]:
    return [tuple(row) for row in stage.rows("SELECT is_good, reason FROM feedback")]


async def test_the_main_job_is_done_over_http() -> None:
    async with staged("slack", report_story.SCENARIO, events_port=free_port()) as stage:
        stage.program.start()
        await report_story.tell(stage)
        await stage.settled(2)
        report_story.check(stage)
