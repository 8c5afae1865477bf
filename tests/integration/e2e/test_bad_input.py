"""Whatever is put in, there is one clear sentence for the right person, nothing is lost and nothing hangs."""

import json
import re

import aiohttp
import pytest

from simulator.view import SentFile
from tests.chaos.harness import PlatformName, staged
from tests.integration.e2e.staging import BOTH, run_staged

HELLO = """
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Hi there."
"""


async def test_without_a_model_it_starts_and_says_what_mends_it() -> None:
    async with run_staged("slack", HELLO, model="") as stage:
        log = stage.program.log
        await stage.until(lambda: "Ready: " in log(), "it is ready")
        assert "No model can be used, so runs fail: `threadhand setup` asks for one." in log()
        assert "(19 of 19 scopes), no model, " in log()
        await stage.say("Hello")
        await stage.until(lambda: stage.shows("No model is set up yet."), "people are told")
        assert " is failed: requester U" in log()


@pytest.mark.parametrize(
    ("works", "name", "wrong"),
    [
        ("slack", "discord_token", "wrong"),
        ("discord", "slack_bot_token", "xoxb-wrong"),
        ("discord", "slack_app_token", "xapp-wrong"),
    ],
)
async def test_a_refused_token_leaves_one_platform_out_and_the_other_works(
    works: PlatformName, name: str, wrong: str
) -> None:
    refuses: PlatformName = "discord" if works == "slack" else "slack"
    async with staged(works, HELLO) as stage, staged(refuses, HELLO) as other:
        tokens = {
            name.removeprefix("THREADHAND_").lower(): value
            for name, value in other.program.settings.items()
            if refuses.upper() in name
        }
        stage.program.change(**tokens | {name: wrong})
        stage.program.start()
        await stage.connected()
        log = stage.program.log
        await stage.until(lambda: f"Ready: {works.capitalize()}" in log(), "it is ready")
        (line,) = (line for line in log().splitlines() if f"{refuses.capitalize()} is off: " in line)
        assert f"THREADHAND_{name.upper()}" in line
        await stage.say("Hello")
        await stage.until(lambda: stage.shows("Hi there."), "it answers")
        address = f"http://127.0.0.1:{stage.http_port}"
        async with aiohttp.ClientSession(address) as http, http.get("/readyz") as answer:
            assert answer.status == 200, await answer.text()


@BOTH
async def test_hostile_names_and_empty_files_and_every_script_arrive_as_text(platform: str) -> None:
    async with run_staged(platform, HELLO) as stage:
        files = [
            SentFile(name="../../etc/x", content=b"x"),
            SentFile(name="a\x00b\x1b[31m\n.txt", content=b"y"),
            SentFile(name="empty.txt", content=b""),
            SentFile(name="\u202efdp.exe", content=b"z"),
        ]
        await stage.say("Hello 👩‍👩‍👧‍👦 שלום \u202eabc", files=tuple(files))
        await stage.until(lambda: stage.shows("Hi there."), "it answers")
        await stage.settled(1)
        sent = json.dumps(stage.script.requests[-1], ensure_ascii=False)
        assert "👩‍👩‍👧‍👦 שלום" in sent
        workspaces = stage.program.folder / "data" / "sandboxes"
        stored = [path for path in workspaces.glob("**/uploads/*") if path.is_file()]
        assert all(re.fullmatch(r"[^\x00-\x1f\u202e/]+", path.name) for path in stored)
        assert {b"x", b"y", b"z"} <= {path.read_bytes() for path in stored}
        assert sent.count("Attached file") == len(files)


@pytest.mark.timeout(180)
async def test_a_very_large_file_passes_through_little_memory() -> None:
    async with run_staged("slack", HELLO) as stage:
        size = 200 * 1024 * 1024
        await stage.say("Hello", files=(SentFile(name="big.bin", content=bytes(size)),))
        await stage.until(lambda: stage.shows("Hi there."), "it answers", seconds=120)
        await stage.settled(1)
        assert f"{size} bytes" in str(stage.script.requests[-1])
        assert stage.program.memory_bytes_peak() < 400 * 1024 * 1024
