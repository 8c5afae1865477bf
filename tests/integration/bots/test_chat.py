"""`threadhand chat` in a terminal, with the scripted model and a real sandbox."""

import json
import os
import re
import sys
from pathlib import Path

from bots.demo.mcp_notice_board import board_server_settings
from bots.demo.scripted_model import serve_scenario
from simulator.model.scenario import load_scenario
from tests.integration.bots.terminal import play_in_terminal
from tests.integration.bots.test_cli import command, environment
from tests.paths import FAKES

STORY = (Path(__file__).parent / "chat_story.yaml").read_text("utf-8")
FAKE_DOCKER = FAKES / "docker_cli.py"
# what the line editor writes beside the prompt
_EDITOR = re.compile(r"\x1b\[\?2004[hl]\r?")


async def chat(folder: Path, *turns: tuple[str, str], **variables: str) -> tuple[str, int | None]:
    (folder / "mcp.json").write_text(board_server_settings(folder / "board.txt"))
    async with serve_scenario(load_scenario(STORY)) as script:
        own = {
            "THREADHAND_DATA_DIR": str(folder / "data"),
            "THREADHAND_MODEL": "story",
            "THREADHAND_LLM_BASE_URL": script.base_url,
            "THREADHAND_LLM_API_KEY": "scripted",
            "THREADHAND_MCP_CONFIG": str(folder / "mcp.json"),
            **variables,
        }
        shown, code = await play_in_terminal(
            ("-m", "bots", "chat"), turns, folder=folder, environ=environment(folder, **own)
        )
    return _EDITOR.sub("", shown).replace("\r\n", "\n"), code


async def test_a_conversation_in_the_terminal_from_a_file_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("mine")
    (tmp_path / "my words.txt").write_text("theirs")
    shown, code = await chat(
        tmp_path,
        ("> ", f"'{tmp_path}/my words.txt'"),
        ("> ", "/attach nowhere.txt"),
        ("> ", "make the report"),
        ("> ", "2"),
        ("> ", "Yes!"),
        ("> ", "/new"),
        ("> ", "pin another"),
        ("> ", "too loud"),
        ("> ", "/quit"),
    )
    assert code == 0, shown
    for told in (
        "Model story, sandbox ",
        "my words.txt goes with your next message.",
        "nowhere.txt cannot be attached: No such file or directory.",
        "I will look.",
        "exit code 1",
        "format?\n  1  Short\n  2  Long\n",
        "The report is ready",
        "Approve once",
        "Pinned and done. Here it is.",
        "Saved report-2.txt.",
        "A new conversation.",
        "I leave it.",
    ):
        assert told in shown, f"{told!r} is not in {shown}"
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\x07" not in shown
    assert (tmp_path / "report.txt").read_text() == "mine"
    assert (tmp_path / "report-2.txt").read_text() == "theirs"
    assert (tmp_path / "board.txt").read_text().count("\n") == 1


async def test_nothing_of_a_conversation_stays_in_docker(tmp_path: Path) -> None:
    (docker := tmp_path / "docker").mkdir()
    (docker / "docker").write_text(f"#!{sys.executable}\n{FAKE_DOCKER.read_text()}")
    (docker / "docker").chmod(0o755)
    (tmp_path / "my words.txt").write_text("theirs")
    shown, code = await chat(
        tmp_path,
        ("> ", f"'{tmp_path}/my words.txt'"),
        ("> ", "make the report"),
        ("> ", "2"),
        ("> ", "Yes!"),
        ("> ", "/quit"),
        THREADHAND_SANDBOX="docker",
        PATH=f"{docker}:{os.environ['PATH']}",  # noqa: TID251 - tests
    )
    assert code == 0, shown
    calls = [json.loads(line)[:2] for line in (docker / "asked").read_text().splitlines()]
    assert ["volume", "create"] in calls
    assert list((docker / "volumes").iterdir()) == []


async def test_ctrl_c_stops_the_run_and_then_leaves(tmp_path: Path) -> None:
    shown, code = await chat(
        tmp_path,
        ("> ", "count slowly"),
        ("One, ", "^C"),
        ("> ", "pin another"),
        ("say why not.\r\n> ", "^C"),
        ("> ", "^C"),
    )
    assert code == 0, shown
    assert shown.count("Stopping. Ctrl-C again leaves.") == 2
    assert "twelve" not in shown


def test_a_chat_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    assert "threadhand: Set THREADHAND_MODEL" in command(tmp_path, "chat").stderr
    keyless = command(tmp_path, "chat", THREADHAND_MODEL="openai/gpt-5")
    assert (keyless.returncode, "set OPENAI_API_KEY" in keyless.stderr) == (2, True)
