"""Who may delete a conversation, in the real program against both platforms."""

import pytest

from simulator.discord.server import DiscordSimulator
from tests.chaos.harness import PlatformName, staged
from tests.integration.e2e.test_approvals import BOTH

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
