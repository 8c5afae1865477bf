"""What people say to each other in the agent's thread is theirs; what they mean for it is taken without a mention."""

import pytest

from core.domain.approval import APPROVE_ONCE, DENY
from simulator.discord.server import DiscordSimulator
from tests.chaos.harness import PlatformName, Stage
from tests.fakes.spoken_lines import REQUESTS, SMALL_TALK
from tests.integration.e2e.staging import run_staged
from tests.integration.e2e.test_approvals import (
    BOTH,
    MOSTLY_DISCORD,
    MOSTLY_SLACK,
    answered,
    asking,
    notebook,
    question,
    read_card,
    says_who_answered,
    signs,
    status,
    told,
)


async def said(stage: Stage, lines: list[str]) -> None:
    for line in lines:
        person, _, text = line.partition(": ")
        before = heard(stage) + taken(stage)
        await stage.platform.say(person, stage.channel_id, text, thread_id=stage.thread_id)
        await stage.until(lambda seen=before: heard(stage) + taken(stage) > seen, f"{line} is stored")


def heard(stage: Stage) -> int:
    return len(stage.rows("SELECT text FROM heard_message"))


def taken(stage: Stage) -> int:
    return len(stage.rows("SELECT text FROM thread_input WHERE kind = 'message'"))


def reacted_to(stage: Stage) -> int:
    """How many of the people's messages have a reaction, besides the request."""
    return sum(bool(one.reactions) for one in stage.messages()[1:] if not one.is_bot)


@BOTH
async def test_small_talk_answers_nothing_and_starts_nothing(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        await said(stage, SMALL_TALK)
        assert heard(stage) == 50, stage.rows("SELECT text FROM thread_input")
        assert (stage.runs(), notebook(stage), reacted_to(stage)) == (["waiting"], [], 0)
        assert stage.rows("SELECT state FROM pending_ask") == [("open",)]
        await stage.say(f"@{stage.view().bot_name} yes")
        await answered(stage)
        assert notebook(stage) == ["milk"]
        requests = len(stage.script.requests)
        await said(stage, SMALL_TALK)
        assert heard(stage) == 100, stage.rows("SELECT text FROM thread_input")
        assert (stage.runs(), reacted_to(stage)) == (["completed"], 0)
        assert len(stage.script.requests) == requests


@BOTH
async def test_with_follow_the_agent_reads_what_several_people_write(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        await stage.say("yes")
        await answered(stage)
        await said(stage, SMALL_TALK[:10])
        await stage.say("follow")
        await stage.until(lambda: stage.shows("I read everything in this thread"), "it says so")
        await said(stage, REQUESTS)
        assert heard(stage) == 10, stage.rows("SELECT text FROM heard_message")
        assert taken(stage) == 31


@BOTH
async def test_other_words_leave_the_question_open_and_reach_the_agent(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        await stage.say("yes but first rename the file")
        await stage.platform.say("bob", stage.channel_id, "yes, go ahead", thread_id=stage.thread_id)
        await stage.until(lambda: taken(stage) == 2 and heard(stage) == 1, "both are stored")
        assert (stage.runs(), notebook(stage)) == (["waiting"], [])
        await stage.platform.say("bob", stage.channel_id, f"@{stage.view().bot_name} yes", thread_id=stage.thread_id)
        await answered(stage)
        assert notebook(stage) == ["milk"]
        assert "yes but first rename the file" in str(stage.script.requests[-1]["messages"])


@BOTH
async def test_a_thumb_on_the_card_approves_once(platform: PlatformName) -> None:
    thumb, other = ("+1::skin-tone-3", "eyes") if platform == "slack" else ("👍🏽", "👀")
    async with asking(platform, is_alice_alone=True) as stage:
        card = question(stage).message_id
        await stage.until(lambda: signs(stage), "the question mark")
        await stage.platform.react("alice", stage.channel_id, card, other)
        await stage.platform.react("bob", stage.channel_id, card, thumb)
        await stage.platform.react("alice", stage.channel_id, status(stage).message_id, thumb)
        assert (stage.runs(), notebook(stage)) == (["waiting"], [])
        await stage.platform.react("alice", stage.channel_id, card, thumb)
        await answered(stage)
        assert notebook(stage) == ["milk"]
        assert stage.rows("SELECT answer FROM pending_ask") == [(APPROVE_ONCE,)]


@MOSTLY_SLACK
async def test_a_thumb_down_of_who_may_approve_denies_and_one_of_somebody_else_does_nothing(
    platform: PlatformName,
) -> None:
    down, up = ("-1", "+1") if platform == "slack" else ("👎", "👍")
    async with asking(platform, is_alice_alone=True) as stage:
        card = question(stage).message_id
        await stage.until(lambda: signs(stage), "the question mark")
        before = len(stage.ours())
        for thumb in (up, down):
            await stage.platform.react("bob", stage.channel_id, card, thumb)
        assert (stage.runs(), notebook(stage)) == (["waiting"], [])
        await stage.platform.react("alice", stage.channel_id, card, down)
        await answered(stage)
        assert (notebook(stage), stage.runs()) == ([], ["completed"])
        assert stage.rows("SELECT answer FROM pending_ask") == [(DENY,)]
        assert says_who_answered(stage, DENY)
        assert "alice denied it" in told(stage)
        assert len(stage.ours()) == before + 1  # the answer; nothing is said about bob


@MOSTLY_DISCORD
async def test_a_yes_that_replies_to_the_card_approves_once(platform: PlatformName) -> None:
    """Discord's own reply to the card is for the agent, whoever writes it, and one to another message of the agent
    is no consent. In Slack, one replies in the thread."""
    async with asking(platform) as stage:
        if isinstance(stage.platform, DiscordSimulator):
            for replied in (status(stage), question(stage)):
                assert (stage.runs(), notebook(stage)) == (["waiting"], [])
                before = taken(stage)
                await stage.platform.say(
                    "bob", stage.channel_id, "yes", thread_id=stage.thread_id, reply_to=replied.message_id
                )
                await stage.until(lambda seen=before: taken(stage) > seen or stage.runs() != ["waiting"], "it is taken")
        else:
            await stage.platform.say("bob", stage.channel_id, "yes", thread_id=stage.thread_id)
        await answered(stage)
        assert notebook(stage) == ["milk"]
        assert stage.rows("SELECT answer FROM pending_ask") == [(APPROVE_ONCE,)]


WORKING = """
conversations:
  - name: long
    when: {user: {contains: "Count the rows"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "sleep 60", blocking: true}}]
      - text: "Seven rows."
"""


@pytest.mark.parametrize("words", ["please stop", "stop"])
@MOSTLY_SLACK
async def test_a_stop_without_a_mention_stops_and_one_for_somebody_else_does_not(
    platform: PlatformName, words: str
) -> None:
    async with run_staged(platform, WORKING) as stage:
        await stage.say("Count the rows, please.")
        await stage.until(lambda: stage.shows("sleep 60"), "it works")
        await said(stage, [f"carol: @bob {words}"])
        assert (heard(stage), stage.runs()) == (1, ["running"])
        await stage.say(words)
        await stage.until(lambda: stage.shows("Stopped"), "it says so")
        await stage.settled(1)
        assert stage.runs() == ["stopped"]
        assert stage.button("Stop") is None


@BOTH
async def test_follow_modes_hold_until_they_are_changed(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        await stage.say("no")
        await answered(stage)
        await stage.say("follow quiet")
        await stage.until(lambda: stage.shows("I stay quiet in this thread"), "it says so")
        await stage.say("also add the totals")
        await stage.until(lambda: heard(stage) == 1, "it is only heard")
        assert stage.runs() == ["completed"]
        await stage.say(f"@{stage.view().bot_name} And again, please.")
        await stage.until(lambda: stage.button(APPROVE_ONCE), "it is back")
        await read_card()
        await stage.say("yes")
        await answered(stage, "Through again.", runs=2)
        await stage.say("follow mention")
        await stage.until(lambda: stage.shows("only when I am mentioned"), "it says so")
        await stage.say("now sort the table by date")
        await stage.until(lambda: heard(stage) == 2, "it is only heard")
        assert stage.runs() == ["completed", "completed"]


WEIGHING = """
conversations:
  - name: first
    when: {user: {contains: "Count the rows"}}
    steps:
      - {text: "Seven rows.", delay_seconds: 4}
      - {text: "With totals.", optional: true}
"""


@BOTH
async def test_a_message_during_a_run_is_acknowledged_at_once(platform: PlatformName) -> None:
    async with run_staged(platform, WEIGHING) as stage:
        await stage.say("Count the rows, please.")
        await stage.until(lambda: stage.ours(), "the status is shown")
        await stage.until(lambda: stage.script.requests, "the model is asked")
        said_id = await stage.say("also add the totals")

        def is_acknowledged() -> bool:
            (one,) = [one for one in stage.messages() if one.message_id == said_id]
            return [seen.emoji for seen in one.reactions] in (["eyes"], ["👀"])

        await stage.until(is_acknowledged, "a reaction")
        await stage.until(lambda: stage.shows("I will read your new message next"), "it says so")
        await stage.settled(1)
        assert len(stage.runs()) == 1


REPORTING = """
conversations:
  - name: report
    when: {user: {contains: "sales report"}}
    steps: [{text: "The northern region sold most, and the southern region least."}]
  - name: region
    when: {user: {contains: "southern region"}}
    steps: [{text: "It lost a customer."}]
"""
COLLEAGUES = """
bob: can you check if the kitchen has oat milk
carol: send me the invite for Friday's retro pls
alice: did the build go green for you?
bob: put my name down for the offsite
carol: could you review my PR after lunch
alice: I'll update the ticket later
bob: which version are you on?
carol: 会議室の予約を確認してもらえる？
alice: 把周五会议的邀请发给我
bob: schick mir bitte die Einladung
""".strip().splitlines()


@BOTH
async def test_what_colleagues_ask_each_other_starts_nothing_and_a_call_by_name_does(platform: PlatformName) -> None:
    async with run_staged(platform, REPORTING) as stage:
        await stage.say("Make the sales report, please.")
        await stage.settled(1)
        await said(stage, COLLEAGUES)
        assert heard(stage) == 10, stage.rows("SELECT text FROM thread_input")
        assert (stage.runs(), reacted_to(stage)) == (["completed"], 0)
        await said(stage, ["carol: threadhand, why did the southern region sell so little?"])
        await stage.until(lambda: stage.shows("It lost a customer."), "it answers")


DISPUTED = """
conversations:
  - name: report
    when: {user: {contains: "Group the report"}}
    steps:
      - calls: [{name: ask, arguments: {text: "By start year or by end year?"}}]
      - text: "By start year, then."
"""


@MOSTLY_DISCORD
async def test_who_was_asked_answers_with_a_mention_while_others_are_talking(platform: PlatformName) -> None:
    async with run_staged(platform, DISPUTED) as stage:
        await stage.say("Group the report, please.")
        await stage.settled(1)
        await said(
            stage,
            [
                "bob: @alice by start year, I think",
                "alice: yes",
                "alice: lunch at 12?",
                "bob: by end year is what the boss wanted last year",
                "alice: which year did the boss start?",
            ],
        )
        assert stage.rows("SELECT state FROM pending_ask") == [("open",)]
        await stage.say(f"@{stage.view().bot_name} OK, Bob is right: by start year.")
        await stage.until(lambda: stage.shows("By start year, then."), "it goes on")
        await stage.settled(2)
        answer = stage.rows("SELECT state, answer, answered_by_name FROM pending_ask")
        assert [(one[0], one[1], str(one[2]).lower()) for one in answer] == [
            ("answered", "OK, Bob is right: by start year.", "alice")
        ]
