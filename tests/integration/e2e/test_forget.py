"""Who may delete a conversation, in the real program against both platforms."""

import pytest

from simulator.discord.server import DiscordSimulator
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.test_approvals import BOTH, alice_of, answered, asking

SCENARIO = """
conversations:
  - name: count
    when: {user: {contains: "count"}}
    steps:
      - text: "One, two."
"""


@pytest.mark.slow
@BOTH
async def test_whoever_started_the_thread_may_forget_what_was_asked_in_it(
    platform: PlatformName,
) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.start()
        await stage.connected()
        place, bot = stage.platform, f"@{stage.view().bot_name}"
        first = await place.say("carol", stage.channel_id, "Numbers, please!")
        if isinstance(place, DiscordSimulator):
            await place.start_thread("carol", stage.channel_id, first, "Numbers")
        stage.thread_id = first
        in_thread = {"thread_id": first}
        await place.say("bob", stage.channel_id, f"{bot} count to two", **in_thread)
        await stage.settled(1)

        await place.say("alice", stage.channel_id, f"{bot} forget yes", **in_thread)
        await stage.until(lambda: stage.shows("whoever started this thread"), "alice is refused")
        assert stage.runs() == ["completed"]
        await place.say("carol", stage.channel_id, f"{bot} forget yes", **in_thread)
        await stage.until(lambda: stage.shows("Forgotten: this conversation"), "carol may")
        assert stage.runs() == []


@pytest.mark.slow
@BOTH
async def test_forget_me_leaves_no_word_and_no_name_of_the_person(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        me = alice_of(stage)
        await stage.say("No, that is the wrong file.")
        await answered(stage)
        assert [table for table, row in stored(stage) if "wrong file" in row]
        await stage.say(f"@{stage.view().bot_name} forget me yes")
        await stage.until(lambda: stage.shows("Forgotten in"), "it says so")
        left = [
            one
            for one in stored(stage)
            if any(word in one[1] for word in ("wrong file", "Write it down", PERSON, me))
        ]
        assert not left, "\n".join(map(str, left))


def stored(stage: Stage) -> list[tuple[str, str]]:
    """Every row of the database as text, with its table."""
    tables = [
        str(name) for (name,) in stage.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    return [(name, str(row)) for name in tables for row in stage.rows(f"SELECT * FROM {name}")]  # noqa: S608 - a table's name
