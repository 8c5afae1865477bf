"""A full disk: the run waits for space and goes on, and nobody has to say anything twice."""

from contextlib import AsyncExitStack
from pathlib import Path

from tests.chaos.disks import MEBIBYTE, small_disk
from tests.chaos.harness import staged

DISK_BYTES = 32 * MEBIBYTE


async def test_a_run_outlives_a_full_disk_and_no_word_is_lost(tmp_path: Path) -> None:
    scenario = f"""
conversations:
  - name: wait
    when: {{user: {{contains: "Hello"}}}}
    steps:
      - calls:
          - name: execute_command
            arguments: {{command: "until [ -e {tmp_path}/go ]; do sleep 0.1; done", blocking: true}}
      - text: "Hi there."
"""
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(DISK_BYTES))
        stage = await stack.enter_async_context(staged("slack", scenario))
        stage.program.wrapped_in = disk.entered
        stage.program.change(data_dir=str(disk.place / "data"))
        stage.program.start()
        await stage.connected()
        await stage.say("Hello")
        await stage.until(lambda: stage.button("Stop"), "the run shows itself")
        await stage.until((disk.folder / "data" / "sandboxes").exists, "the command runs")
        disk.fill()
        (tmp_path / "go").touch()
        await stage.until(lambda: "given back until" in stage.program.log(), "it is given back")
        await stage.say("And this too.")
        await stage.until(lambda: stage.program.log().count("database or disk is full") > 1, "it cannot be stored")
        disk.clear()
        await stage.until(lambda: stage.shows("Hi there."), "it answers", seconds=60)
        await stage.until(lambda: stage.button("Stop") is None, "it ends")
        assert "And this too." in str(stage.script.requests[-1])
        assert len(stage.ours()) == 2, stage.report()
        assert "Traceback" not in str(stage.messages())
