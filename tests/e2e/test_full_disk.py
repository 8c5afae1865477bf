"""A full disk: the run waits for space and goes on, and nobody has to say anything twice."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.chaos.harness import Stage, staged
from tests.requirements_of_the_machine import lacking

DISK_BYTES = 32 * 1024 * 1024
MOUNT = 'mount -t tmpfs -o size={size},mode=711 tmpfs "{folder}" && exec "$@"'


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
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs "$0"', tmp_path], capture_output=True
    )
    if tried.returncode:
        lacking("jail", "a disk of its own takes root and the program unshare")
    async with staged("slack", scenario) as stage:
        folder = stage.program.folder / "data"
        mount = MOUNT.format(size=DISK_BYTES, folder=folder)
        stage.program.wrapped_in = ("unshare", "-m", "sh", "-c", mount, "sh")
        stage.program.start()
        await stage.connected()
        await stage.say("Hello")
        await stage.until(lambda: stage.button("Stop"), "the run shows itself")
        filler = Path(f"/proc/{stage.program.pid}/root{folder}/filler")
        await stage.until(filler.parent.joinpath("sandboxes").exists, "the command runs")
        fill(filler)
        (tmp_path / "go").touch()
        await stage.until(lambda: "given back until" in stage.program.log(), "it is given back")
        await stage.say("And this too.")
        await stage.until(lambda: _refused(stage), "it cannot be stored")
        filler.unlink()

        await stage.until(lambda: stage.shows("Hi there."), "it answers", seconds=60)
        await stage.until(lambda: stage.button("Stop") is None, "it ends")
        assert "And this too." in str(stage.script.requests[-1])
        assert len(stage.ours()) == 2, stage.report()
        assert "Traceback" not in str(stage.messages())


def fill(filler: Path) -> None:
    """Until not a byte more goes in."""
    with filler.open("wb", buffering=0) as written:
        for size in (1024 * 1024, 4096):
            with suppress(OSError):
                while True:
                    written.write(bytes(size))
    assert os.statvfs(filler.parent).f_bavail == 0


def _refused(stage: Stage) -> bool:
    return stage.program.log().count("database or disk is full") > 1
