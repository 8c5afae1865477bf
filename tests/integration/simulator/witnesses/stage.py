"""The program on a stage whose simulated platform is recorded."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from bots.demo import file_stories, handbook_story
from bots.demo.environment import STORY_AGENT
from bots.demo.mcp_notice_board import board_server_settings
from simulator.recording import recording
from simulator.view import SentFile
from tests.chaos.harness import PlatformName, Stage, staged
from tests.chaos.stories import TALK, WRITING

FAILING = """
  - name: failing
    when: {user: {contains: "Fail"}}
    steps:
      - text: "No."
        fault: {kind: status, status: 401, message: "bad key"}
"""
_OWN = TALK + WRITING.partition("conversations:")[2] + FAILING
SCENARIO = files("bots.demo").joinpath("story.yaml").read_text("utf-8").replace("conversations:", _OWN, 1)
"""The stories of the demo. Its last conversation answers everything, so those of the tests stand first."""


@asynccontextmanager
async def recorded(platform: PlatformName) -> AsyncGenerator[tuple[Stage, list[tuple[str, Any]]], None]:
    """Context manager: the program runs the stories of the demo, and is connected.

    Yields what it and the platform say to each other with it: kinds, as the simulator names them, with their payloads.
    """
    payloads: list[tuple[str, Any]] = []

    def note(kind: str, payload: object) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload, default=repr)
        payloads.append((kind.removeprefix(f"{platform} "), json.loads(text)))

    with recording(note):
        async with staged(platform, SCENARIO) as stage:
            folder = stage.program.folder
            (folder / "agents").mkdir()
            (folder / "agents" / "threadhand.yaml").write_text(STORY_AGENT, "utf-8")
            (folder / "mcp.json").write_text(board_server_settings(folder / "notices.txt"), "utf-8")
            stage.program.change(agents_dir=str(folder / "agents"), mcp_config=str(folder / "mcp.json"))
            stage.program.start()
            await stage.connected()
            yield stage, payloads


async def play_stories(stage: Stage) -> None:
    """Plays the stories of the demo in which a table is read and a notice is approved."""
    await file_stories.play_table(stage.platform)
    stage.thread_id = min(stage.threads())
    await stage.details()
    stage.thread_id = ""
    await handbook_story.play_approval(stage.platform, stage.program.folder / "notices.txt")


async def talk_beside(stage: Stage, text: str, emoji: str) -> AsyncGenerator[tuple[str | None, str], None]:
    """Has the agent answer, then a person write, edit and delete a message in the channel and in the agent's thread.

    Yields the thread, or None for the channel, with the id of the message while it is there.
    """
    platform, channel = stage.platform, stage.channel_id
    said = await stage.say("Hello", files=(SentFile(name="a.bin", content=b"a"),))
    await stage.until(lambda: stage.shows("Hi there."), "it answers")
    for place in (None, said):
        other = await platform.say("bob", channel, text, thread_id=place)
        await platform.react("alice", channel, other, emoji)
        await platform.react("alice", channel, other, emoji, is_removed=True)
        await platform.edit("bob", channel, other, f"beside @{stage.view().bot_name}")
        yield place, other
        await platform.delete("bob", channel, other)
