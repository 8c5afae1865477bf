"""What people say to each other in the agent's thread is theirs; what they mean for it is taken without a mention."""

from core.domain.approval import APPROVE_ONCE, DENY
from simulator.discord.server import DiscordSimulator
from tests.chaos.harness import PlatformName, Stage
from tests.integration.e2e.staging import BOTH
from tests.integration.e2e.test_approvals import (
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


def heard(stage: Stage) -> int:
    return len(stage.rows("SELECT text FROM heard_message"))


def taken(stage: Stage) -> int:
    return len(stage.rows("SELECT text FROM thread_input WHERE kind = 'message'"))


@BOTH
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


@BOTH
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
