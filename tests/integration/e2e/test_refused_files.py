"""Files that Discord does not take: the answer comes all the same, and people read why the files do not."""

import pytest

from bots.demo.thread_reader import text_of
from simulator.discord.rules.permissions import ATTACH
from tests.chaos.harness import Stage, staged
from tests.integration.e2e.staging import run_staged
from tests.integration.e2e.test_refusals import discord_of

SCENARIO = """
conversations:
  - name: files
    steps:
      - calls: [{name: execute_command, arguments: {command: "head -c SIZE /dev/zero > a.bin; echo 1 > b.txt"}}]
      - calls: [{name: complete, arguments: {text: "Here they are.", attachments: "FILES"}}]
"""


def uploads(stage: Stage) -> list[str]:
    """The names of the files that stand in the thread."""
    return [file.name for message in stage.ours() for file in message.files]


def sentences(stage: Stage) -> list[str]:
    """What the agent says about its files, besides the answer and the status."""
    return [text for one in stage.ours() if "could not" in (text := text_of(one)) or "too large" in text]


@pytest.mark.parametrize(("tier", "size", "limit"), [(0, 11_000_000, "10.5 MB"), (2, 53_000_000, "52.4 MB")])
async def test_a_file_over_the_limit_of_the_server_is_told_with_size_and_limit(
    tier: int, size: int, limit: str
) -> None:
    scenario = SCENARIO.replace("SIZE", str(size)).replace("FILES", "a.bin, b.txt")
    async with staged("discord", scenario) as stage:
        discord_of(stage).settings.guild_tier = tier
        stage.program.start()
        await stage.connected()
        await stage.say("Make the files.")
        await stage.settled(1)
        assert stage.shows("Here they are.")
        assert uploads(stage) == ["b.txt"]
        (told,) = sentences(stage)
        assert f"it has {size / 1e6:.1f} MB, and at most {limit} are accepted. It is here" in told


async def test_without_the_right_to_attach_the_answer_says_why_the_files_do_not_come() -> None:
    scenario = SCENARIO.replace("SIZE", "9").replace("FILES", "a.bin, b.txt")
    async with run_staged("discord", scenario) as stage:
        discord_of(stage).allow(stage.channel_id, denied=ATTACH)
        await stage.say("Make the files.")
        await stage.settled(1)
        assert stage.shows("Here they are.")
        assert uploads(stage) == []
        for name, told in zip(("a.bin", "b.txt"), sentences(stage), strict=True):
            assert f"`{name}` could not be attached" in told
            assert "“Attach Files” here. It is here: http" in told
