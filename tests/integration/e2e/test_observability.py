"""What whoever runs the program sees of it: a log without what was said, figures, and which part is not ready."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import cast

import aiohttp

from bots.observability.metrics import LAG_SECONDS
from simulator.view import SentFile
from tests.chaos.harness import MODEL, PlatformName, Stage, staged
from tests.integration.e2e.staging import BOTH
from tests.integration.e2e.test_planning_flow import ANALYSIS

API_TOKEN = "the-token-of-the-api-1234"
LINK_SECRET = "secret-of-links-" * 3
SAID = (
    *("Chart the sales, please", "Rome sold most", "Oslo", "sales.csv", "sales.svg", "draw.py"),
    *("import csv", "city,sales", "Violet Quinn"),
)
"""What was said, by whom, and what was worked with."""


async def answer(stage: Stage, path: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    url = f"http://127.0.0.1:{stage.http_port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, await response.text()


def figure(text: str, name: str, labels: Mapping[str, str] | None = None) -> float:
    """The sum of the samples of that name that have the labels."""
    found = 0.0
    for line in text.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match is None:
            continue
        told = dict(re.findall(r'(\w+)="([^"]*)"', match[1] or ""))
        if (labels or {}).items() <= told.items():
            found += float(match[2])
    return found


def ids(stage: Stage) -> tuple[str, str]:
    """The run's, and its thread's."""
    ((run_id, thread_id),) = stage.rows("SELECT run_id, thread_id FROM run")
    return str(run_id), str(thread_id)


@BOTH
async def test_a_story_is_counted_and_nothing_that_was_said_is_logged(platform: PlatformName) -> None:
    async with staged(platform, ANALYSIS) as stage:
        stage.program.change(log_format="json", api_token=API_TOKEN, link_secret=LINK_SECRET, http_host="127.0.0.1")
        stage.program.start()
        await stage.connected()
        table = SentFile(name="sales.csv", content=b"city,sales\nOslo,30\nRome,50\n")
        await stage.say("agent:data-analysis Chart the sales, please.", files=(table,))
        await stage.until(lambda: stage.shows("Rome sold most: 50."), "it answers")
        await stage.settled(1)
        status, readiness = await answer(stage, "/readyz")
        assert status == 200
        assert json.loads(readiness)["parts"] == dict.fromkeys(("database", platform, "worker"), "ready")
        await asyncio.sleep(LAG_SECONDS)  # so that the loop's delay has been measured
        _, text = await answer(stage, "/metrics")
        check_figures(text, platform)
        # no ids and no tokens: the number of series must not grow with use
        values = set(re.findall(r'\w+="([^"]*)"', text))
        known = {stage.channel_id, *ids(stage), *stage.threads(), "sales.csv"}
        assert not values & known
        assert not [one for one in values if re.search(r"\d{6}|[A-Z0-9]{9}|xox", one)]
        check_log(stage)


def check_figures(text: str, platform: str) -> None:
    assert figure(text, "threadhand_run_seconds_count", {"state": "completed"}) == 1
    assert figure(text, "threadhand_turn_seconds_count", {"result": "ok"}) == 3
    model = {"model": MODEL, "result": "ok"}
    assert figure(text, "threadhand_model_seconds_count", model) >= 3
    assert figure(text, "threadhand_model_first_token_seconds_count") >= 3
    tool = {"tool": "execute_command", "outcome": "completed"}
    assert figure(text, "threadhand_tool_seconds_count", tool) == 1
    assert figure(text, "threadhand_sandbox_seconds_count", {"result": "ok"}) == 1
    for action, least in (("post", 1), ("edit", 1), ("upload", 1)):
        sent = {"platform": platform, "action": action, "result": "ok"}
        assert figure(text, "threadhand_delivery_seconds_count", sent) >= least, action
    assert figure(text, "threadhand_platform_answers_total", {"platform": platform}) > 5
    assert figure(text, "threadhand_tokens_total", {"kind": "output"}) > 0
    assert figure(text, "threadhand_loop_lag_seconds_count") > 0
    assert figure(text, "threadhand_database_up") == 1
    assert figure(text, "threadhand_runs") == 0
    assert figure(text, "threadhand_processes_alive") == 1


def check_log(stage: Stage) -> None:
    """Every line is JSON; those of the run say whose they are; nothing of the conversation is in them."""
    run_id, thread_id = ids(stage)
    lines = stage.program.log().splitlines()
    of_run = [one for one in [cast(dict[str, str], json.loads(line)) for line in lines] if run_id in one["message"]]
    assert of_run
    for one in of_run:
        assert (one.get("run_id"), one.get("thread_id")) == (run_id, thread_id), one
        assert one["worker"]
    log = stage.program.log()
    for secret in (*SAID, API_TOKEN, LINK_SECRET, "xoxb-", "xapp-", "Bearer "):
        assert secret not in log, secret
