"""The command line as an operator meets it: in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {"PATH": os.environ["PATH"]}  # noqa: TID251 - a child needs its programs
    return {**kept, "PYTHONPATH": str(REPOSITORY), "HOME": str(folder), **more}


def command(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bots", *arguments],
        cwd=folder,
        env=environment(folder, THREADHAND_DATA_DIR=str(folder / "data"), **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "{'discord','slack_bolt','aiohttp','litellm','pydantic','sqlalchemy','asyncio'}"
    program = (
        "import sys, bots.__main__\nsys.argv[1:] = ['--help']\n"
        "try: bots.__main__.main()\nexcept SystemExit: pass\n"
        f"print('heavy:', sorted({heavy} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.endswith("heavy: []\n")


@pytest.mark.parametrize("name", ["up", "worker", "demo", "mcp", "migrate"])
def test_an_unknown_setting_is_one_line_and_exit_code_two(tmp_path: Path, name: str) -> None:
    result = command(tmp_path, name, THREADHAND_MODLE="x")
    assert result.returncode == 2
    assert result.stderr == ("threadhand: THREADHAND_MODLE is not a setting; did you mean THREADHAND_MODEL?\n")
    assert result.stdout == ""


def test_the_slack_manifest_is_printed_for_either_mode(tmp_path: Path) -> None:
    assert "socket_mode_enabled: true" in command(tmp_path, "slack", "manifest").stdout
    http = command(tmp_path, "slack", "manifest", "--public-url", "https://agent.example")
    assert "socket_mode_enabled: false" in http.stdout
    assert "org_deploy_enabled: false" in http.stdout
    whole = command(tmp_path, "slack", "manifest", "--organisation")
    assert "org_deploy_enabled: true" in whole.stdout
    assert "- team_access_revoked" in whole.stdout
    refused = command(tmp_path, "slack", "manifest", "--public-url", "http://agent.example")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_the_program_clean_up(tmp_path: Path, number: int, code: int) -> None:
    program = (
        "import asyncio, typer\nfrom bots.__main__ import _run\n"
        "async def work():\n"
        "    try:\n        print('ready', flush=True)\n        await asyncio.Event().wait()\n"
        "    finally:\n        print('cleaned', flush=True)\n"
        "try: _run(work())\nexcept typer.Exit as end: raise SystemExit(end.exit_code)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert (stdout, stderr, process.returncode) == ("cleaned\n", "", code)


def test_up_starts_with_what_is_set_and_names_the_rest(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bots", "up"],
        cwd=tmp_path,
        env=environment(
            tmp_path,
            THREADHAND_DATA_DIR=str(tmp_path),
            THREADHAND_HTTP_PORT="0",
            THREADHAND_MODEL="openai/gpt-5",
            THREADHAND_SLACK_BOT_TOKEN="xoxb-1",
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told: list[str] = []
    try:
        for line in process.stderr:
            told.append(line)
            if "Ready: no model" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, "".join(told)
    finally:
        process.kill()
        process.stderr.close()
    for problem in ("needs a key: set OPENAI_API_KEY", "add THREADHAND_SLACK_APP_TOKEN"):
        assert any(problem in line and "`threadhand setup`" in line for line in told)
