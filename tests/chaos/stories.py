"""Short test scenarios for failpoints that the report scenario does not pass."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from bots.demo.thread_reader import text_of
from simulator.slack.server import SlackSimulator
from tests.chaos import report_story
from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.support.narrow import require_type


@dataclass(frozen=True, kw_only=True)
class Story:
    """A test scenario: `tell` plays the person, `check` verifies the result.

    `runs` is the number of runs at the end. Names in `settings` are lower-case and without prefix.
    """

    scenario: str
    tell: Callable[[Stage], Awaitable[None]]
    check: Callable[[Stage], None]
    platform: PlatformName = "slack"
    runs: int = 1
    sandbox: str = "unsafe-process"
    settings: dict[str, str] = field(default_factory=dict[str, str])


def _answers(text: str, name: str = "talk", when: str = "Hello") -> str:
    return f"""
  - name: {name}
    when: {{user: {{contains: "{when}"}}}}
    steps:
      - text: "{text}"
"""


TALK = "conversations:" + _answers("Hi there.")
SLEEP = """
conversations:
  - name: sleep
    when: {user: {contains: "Sleep"}}
    steps:
      - calls:
          - name: execute_command
            arguments: {command: "echo asleep >> marks.txt; sleep 30", blocking: true, session_name: main}
      - calls:
          - name: execute_command
            arguments: {command: "sleep 31", blocking: true, session_name: main}
"""
SHORT_SLEEP = """
conversations:
  - name: sleep
    when: {user: {contains: "Sleep"}}
    steps:
      - calls:
          - name: execute_command
            arguments: {command: "echo asleep >> marks.txt; sleep 30", blocking: true, session_name: main}
      - text: "Slept well."
"""
SECRET = """
conversations:
  - name: secret
    when: {user: {contains: "Hello"}}
    steps:
      - calls: [{name: full_file_rewrite, arguments: {file_path: secret.txt, file_contents: "x"}}]
      - text: "Hi there."
"""


async def stop(stage: Stage) -> None:
    await stage.connected()
    await stage.say("Sleep, please.")
    await stage.until(lambda: stage.workspace_file("marks.txt"), "the command runs")
    await stage.press("Stop")
    await stage.until(lambda: stage.runs() == ["stopped"], "it stops")
    await stage.until(lambda: stage.button("Stop") is None, "the button goes")


def check_stopped(stage: Stage) -> None:
    assert stage.runs() == ["stopped"]
    assert len(stage.ours()) == 1, "one status message and no answer"
    assert stage.workspace_file("marks.txt").split() == ["asleep"]


WRITTEN = " ".join(f"Sentence {number} of the answer." for number in range(1, 41))
WRITING = f"""
conversations:
  - name: essay
    when: {{user: {{contains: "essay"}}}}
    steps:
      - text: "{WRITTEN}"
        chunk_characters: 40
        chunk_delay_seconds: 0.12
"""


async def direct(stage: Stage) -> None:
    """Asks in a direct message, where the answer is streamed."""
    await stage.connected()
    slack = require_type(stage.platform, SlackSimulator)
    with_bot = slack.workspace.direct_with(slack.member(PERSON).user_id, slack.workspace.bot.user_id)
    stage.thread_id = await slack.say(PERSON, with_bot.channel_id, "Write an essay")
    await stage.until(lambda: stage.runs() == ["completed"], "it answers")


def check_streamed(stage: Stage) -> None:
    """Checks that the answer is there once and whole, whether its stream was kept or replaced."""
    assert stage.runs() == ["completed"]
    assert _count(stage, WRITTEN) == 1
    assert _count(stage, "Sentence 1 of") == 1
    assert not any("Writing" in str(one.elements) for one in stage.ours())


def word(said: str, *answers: str) -> Callable[[Stage], Awaitable[None]]:
    """Returns a scenario that sends the command `said` after a conversation, up to three times until it is answered."""

    async def tell(stage: Stage) -> None:
        await stage.connected()
        await stage.say("Hello")
        await stage.until(lambda: stage.shows("Hi there."), "it answers")
        await stage.settled(1)
        await stage.say_until(said, answers)

    return tell


def check_talk(stage: Stage) -> None:
    assert stage.runs() in (["completed"], [])
    assert _count(stage, "Hi there.") == 1


def check_forgotten(stage: Stage) -> None:
    check_talk(stage)
    assert stage.rows("SELECT thread_id FROM thread") == []
    assert list((stage.program.folder / "data" / "sandboxes").glob("**/secret.txt")) == []


async def asked_to_end(stage: Stage) -> None:
    """Sends SIGTERM to the program in the middle of a run."""
    await stage.connected()
    await stage.say("Sleep, please.")
    await stage.until(lambda: stage.workspace_file("marks.txt"), "the command runs")
    stage.program.terminate()
    await stage.until(lambda: stage.shows("Slept well."), "it goes on")


def check_ended(stage: Stage) -> None:
    assert stage.runs() == ["completed"]
    assert _count(stage, "Slept well.") == 1
    assert stage.workspace_file("marks.txt").split() == ["asleep"]
    assert report_story.INTERRUPTED in str(stage.last_request())


async def over_http(stage: Stage) -> None:
    """Calls the HTTP API, and repeats requests that got no response."""
    thread = await _call(stage, "/api/thread", json={"title": "x"}, key="t")
    stage.thread_id = str(thread["thread_id"])
    path = f"/api/thread/{stage.thread_id}/messages"
    sent = await _call(stage, path, file=b"a,b\n", key="m")
    assert sent["agent_run_id"]
    await stage.until(lambda: stage.runs() == ["completed"], "the run ends")


def check_http(stage: Stage) -> None:
    assert stage.runs() == ["completed"]
    assert len(stage.rows("SELECT input_id FROM thread_input")) == 1
    assert "table.csv" in str(stage.last_request())


async def _call(stage: Stage, path: str, *, key: str, json: object = None, file: bytes = b"") -> dict[str, object]:
    patience = aiohttp.ClientTimeout(total=10)
    async with asyncio.timeout(60), aiohttp.ClientSession(timeout=patience) as session:
        while True:
            body: aiohttp.FormData | None = None
            if file:
                body = aiohttp.FormData()
                body.add_field("text", "Hello")
                body.add_field("file", file, filename="table.csv", content_type="text/csv")
            try:
                async with session.post(
                    f"http://127.0.0.1:{stage.http_port}{path}",
                    json=json,
                    data=body,
                    headers={"Idempotency-Key": key, "Authorization": "Bearer secret"},
                ) as answer:
                    if answer.status < 500:
                        assert answer.status in (201, 202), await answer.text()
                        return await answer.json()
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.1)


def _count(stage: Stage, text: str) -> int:
    return sum(text in text_of(one) for one in stage.ours())


REPORT = Story(scenario=report_story.SCENARIO, tell=report_story.tell, check=report_story.check, runs=2)
REPORT_IN_DISCORD = Story(
    scenario=report_story.SCENARIO, tell=report_story.tell, check=report_story.check, runs=2, platform="discord"
)
STREAM = Story(scenario=WRITING, tell=direct, check=check_streamed)
STOP = Story(scenario=SLEEP, tell=stop, check=check_stopped)
STATUS = Story(scenario=TALK, tell=word("status", "Idle."), check=check_talk)
FORGET = Story(
    scenario=SECRET,
    tell=word("forget yes", "Forgotten", "no conversation with me here"),
    check=check_forgotten,
    runs=0,
    sandbox="local",
)
END = Story(scenario=SHORT_SLEEP, tell=asked_to_end, check=check_ended, settings={"drain_seconds": "0.2"})
HTTP = Story(scenario=TALK, tell=over_http, check=check_http, settings={"api_token": "secret"})
