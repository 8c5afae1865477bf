"""`threadhand demo --headless` as a user runs it: a child process, its last line and its exit code."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from bots.demo import handbook_story
from bots.demo.environment import start_demo
from bots.demo.thread_reader import StoryBroken
from bots.settings import load_settings
from tests.integration.demo.namespaces import forbidden_here, without_namespaces
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking

SECONDS_MAX = 280


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    lines: list[str]
    complaints: str
    seconds: float

    @property
    def verdict(self) -> dict[str, object]:
        return cast(dict[str, object], json.loads(self.lines[-1]))

    @property
    def skipped(self) -> list[str]:
        return cast(list[str], self.verdict["skipped"])

    def figures(self, platform: str) -> dict[str, float]:
        return cast(dict[str, float], self.verdict[platform])


def play(folder: Path, settings: Mapping[str, str] | None = None, *, prefix: tuple[str, ...] = ()) -> Ended:
    """The demo in a folder of its own, with nothing of this process's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}  # noqa: TID251 - tests have no settings
    environ = {**kept, "HOME": str(folder), "PYTHONPATH": str(REPOSITORY), **(settings or {})}
    command = [*prefix, sys.executable, "-m", "bots", "demo", "--headless"]
    started = time.monotonic()
    ended = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, encoding="utf-8", timeout=SECONDS_MAX, check=False
    )
    return Ended(
        code=ended.returncode,
        lines=ended.stdout.splitlines(),
        complaints=ended.stderr,
        seconds=time.monotonic() - started,
    )


def check_told(ended: Ended, *, is_scripted: bool = True) -> None:
    assert ended.code == 0, "\n".join([*ended.lines, ended.complaints])
    assert ended.verdict["ok"] is True
    is_drawn = "[file] chart.svg.png" in "\n".join(ended.lines)
    for platform in ("slack", "discord"):
        figures = ended.figures(platform)
        assert set(figures) == {"runs", "edits", "files", "seconds"}
        assert figures["runs"] == 5 + is_scripted + ("browser" not in ended.skipped)
        assert figures["edits"] >= 3
        assert figures["files"] == (2 if "browser" in ended.skipped else 3) + is_drawn


def test_the_story_is_told_and_counted(tmp_path: Path) -> None:
    ended = play(tmp_path)
    check_told(ended)
    assert not [line for line in ended.lines if "THREADHAND_PRICE" in line]  # the model is scripted
    is_lacking = "jail" in ended.skipped
    assert ended.verdict["sandbox"] == ("unsafe-process" if is_lacking else "local")
    assert ended.complaints == ""
    if "browser" in ended.skipped:
        lacking("chromium", "the sandbox has no browser; run: scripts/setup --toolbox")
    told = "\n".join(ended.lines[:-1])
    for file in ("report.md", "chart.png", "page.png"):
        assert told.count(f"[file] {file}") == 2
    assert len(re.findall(r"(\d) of \1 tasks", told)) >= 4


def test_without_namespaces_plain_processes_stand_in_with_one_loud_line(tmp_path: Path) -> None:
    if reason := forbidden_here():
        lacking("jail", f"a filter against namespaces cannot be set: {reason}")
    ended = play(tmp_path, prefix=without_namespaces())
    check_told(ended)
    assert ended.verdict["sandbox"] == "unsafe-process"
    assert ended.skipped == ["jail", "browser"]
    loud = [line for line in ended.lines if line.startswith("THIS MACHINE ALLOWS NO JAIL")]
    assert len(loud) == 1


def test_a_demo_without_any_sandbox_is_refused_in_one_sentence(tmp_path: Path) -> None:
    ended = play(tmp_path, {"THREADHAND_SANDBOX": "none"})
    assert ended.code == 2
    assert "leave THREADHAND_SANDBOX unset" in ended.complaints
    assert len(ended.complaints.splitlines()) == 1


async def test_a_notice_that_nobody_has_to_allow_breaks_the_story(tmp_path: Path) -> None:
    """What the story checks is real: an agent that pins without a word is found out."""
    async with start_demo(load_settings({"THREADHAND_SANDBOX": "unsafe-process"}, None)) as stage:
        assert stage.slack.web_api.rates.scale == 1.0, "the demo keeps to Slack's own limits"
        assert stage.discord.settings.rate_limit_scale == 1.0
        stage.board.write_text("pinned for Alice before anybody was asked\n")
        with pytest.raises(StoryBroken, match="pinned before anybody allowed it"):
            await handbook_story.play_approval(stage.slack, stage.board)
