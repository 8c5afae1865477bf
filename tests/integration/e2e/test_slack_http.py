"""Slack over signed HTTP requests instead of a socket: the same story, and nobody else gets in."""

import json
import socket
import time

import aiohttp

from simulator.slack.events.http_events import sign
from simulator.slack.server import SlackSimulator
from simulator.view import SentFile
from tests.chaos import report_story
from tests.chaos.harness import PERSON, Stage, staged
from tests.chaos.stories import TALK
from tests.integration.e2e.staging import run_staged


def free_port() -> str:
    """Slack has to know the address before the program starts."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return str(asked.getsockname()[1])


async def test_the_main_job_is_done_over_http() -> None:
    async with staged("slack", report_story.SCENARIO, events_port=free_port()) as stage:
        stage.program.start()
        await report_story.tell(stage)
        await stage.settled(2)
        report_story.check(stage)


async def test_a_restart_between_question_and_answer_loses_nothing_over_http() -> None:
    async with run_staged("slack", report_story.SCENARIO, events_port=free_port()) as stage:
        table = SentFile(name="table.csv", content=b"a,b\n1,2\n", mime_type="text/csv")
        await stage.say("Sum it up, please.", files=(table,))
        await stage.until(lambda: stage.button("Short"), "it asks")
        await stage.settled(1)
        stage.program.kill()
        await stage.say("Short")  # delivered again until somebody listens
        stage.program.start()
        await stage.until(lambda: stage.shows(report_story.ANSWER), "it answers", seconds=60)
        await stage.settled(2)
        report_story.check(stage)


async def test_what_slack_has_not_signed_is_refused_and_starts_nothing() -> None:
    async with run_staged("slack", TALK, events_port=free_port()) as stage:
        assert isinstance(stage.platform, SlackSimulator)
        assert stage.platform.http_events is not None
        assert await stage.platform.http_events.verify()
        now = int(time.time())
        secret = stage.platform.settings.signing_secret
        body = _mention(stage)
        for timestamp, signature, expected in (
            (now, sign("guessed", str(now), body), 401),
            (now - 301, sign(secret, str(now - 301), body), 401),
            (now, "", 401),
            (now, sign(secret, str(now), body), 200),
        ):
            assert await _post(stage, body, timestamp, signature) == expected
        await stage.until(lambda: stage.runs() == ["completed"], "the signed one is taken")
        assert "Traceback" not in stage.program.log()


def _mention(stage: Stage) -> bytes:
    assert isinstance(stage.platform, SlackSimulator)
    workspace = stage.platform.workspace
    (alice,) = [one.user_id for one in workspace.members.values() if one.name == PERSON]
    event = {
        "type": "app_mention",
        "user": alice,
        "text": f"<@{workspace.bot.user_id}> Hello",
        "ts": "1700000000.000100",
        "channel": stage.channel_id,
        "event_ts": "1700000000.000100",
    }
    return json.dumps(
        {
            "type": "event_callback",
            "team_id": "T0SIM0001",
            "api_app_id": "A0SIMULATED",
            "event": event,
            "event_id": "Ev1",
            "event_time": 1700000000,
        }
    ).encode()


async def _post(stage: Stage, body: bytes, timestamp: int, signature: str) -> int:
    headers = {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": str(timestamp),
        "X-Slack-Signature": signature,
    }
    url = f"http://127.0.0.1:{stage.http_port}/slack/events"
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status
