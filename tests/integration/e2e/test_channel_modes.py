"""An admin says what the agent takes up in a whole channel, and everybody is told: in both platforms."""

from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.test_access import id_of
from tests.integration.e2e.test_approvals import MOSTLY_DISCORD

SCENARIO = """
conversations:
  - name: count
    when: {user: {contains: "Count"}}
    steps:
      - text: "Seven rows."
      - {text: "Nine columns.", optional: true}
"""


def heard(stage: Stage) -> int:
    return len(stage.rows("SELECT text FROM heard_message"))


async def begun(stage: Stage) -> None:
    """A conversation of its own, in a new thread."""
    before = len(stage.runs())
    stage.thread_id = ""
    await stage.say("Count the rows of the table, please.")
    await stage.settled(before + 1)
    assert stage.shows("Seven rows.")


async def up(stage: Stage) -> None:
    stage.program.start()
    await stage.connected()


@MOSTLY_DISCORD
async def test_quiet_in_a_channel_holds_for_later_threads_until_an_admin_undoes_it(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.change(admins=id_of(stage, PERSON))
        await up(stage)
        await begun(stage)
        quiet = f"@{stage.view().bot_name} follow quiet channel"
        await stage.platform.say("bob", stage.channel_id, quiet, thread_id=stage.thread_id)
        await stage.until(lambda: stage.shows("Only admins of this bot can do that."), "a refusal")
        assert not stage.shows("I stay quiet")
        await stage.say(quiet)
        await stage.until(lambda: stage.shows("I stay quiet in the threads of this channel"), "it says so")

        stage.program.terminate()
        assert await stage.program.ended() == 0
        await up(stage)
        await begun(stage)
        await stage.say("also add the totals of the table, please")
        await stage.until(lambda: heard(stage) == 1, "it is only heard")
        assert len(stage.runs()) == 2

        await stage.say(f"@{stage.view().bot_name} follow channel")
        await stage.until(lambda: stage.shows("I read everything in the threads of this channel"), "it says so")
        await begun(stage)
        await stage.say("also add the totals of the table, please")
        await stage.until(lambda: stage.shows("Nine columns."), "it takes it up")
        await stage.settled(4)
        assert heard(stage) == 1
