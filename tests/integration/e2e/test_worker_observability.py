"""Workers of their own tell their health and figures, and make links that open at the bot."""

import asyncio
import json
import re

import aiohttp

from bots.bootstrap.program import NO_LINKS, UNSHARED
from tests.chaos.cluster import open_cluster
from tests.chaos.program import Program
from tests.chaos.stories import TALK
from tests.integration.e2e.test_observability import figure


async def told_by(worker: Program, path: str) -> str:
    (port,) = re.findall(r"listens on 127.0.0.1 port (\d+)", worker.log())
    url = f"http://127.0.0.1:{port}{path}"
    async with asyncio.timeout(30), aiohttp.ClientSession() as http:
        while True:
            async with http.get(url) as response:
                if response.status == 200:
                    return await response.text()
            await asyncio.sleep(0.05)  # its first heartbeat may still be to come


async def test_workers_are_watched_each_at_its_own_port(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url, scenario=TALK, worker_http_port="0") as cluster:
        await cluster.start()
        await cluster.stage.say("Hello")
        await cluster.stage.until(lambda: cluster.stage.shows("Hi there."), "it answers")
        await cluster.stage.until(lambda: all("listens on" in one.log() for one in cluster.workers), "workers listen")
        ended = 0.0
        for worker in cluster.workers:
            parts = json.loads(await told_by(worker, "/readyz"))["parts"]
            assert parts == dict.fromkeys(("database", "redis", "worker"), "ready")
            text = await told_by(worker, "/metrics")
            ended += figure(text, "threadhand_run_seconds_count", {"state": "completed"})
            assert figure(text, "threadhand_processes_alive") == 3
            assert worker.log().count(NO_LINKS) == 1
            assert worker.log().count(UNSHARED) == 1
        assert ended == 1


async def test_without_a_port_a_worker_listens_nowhere(postgresql_url: str, redis_url: str) -> None:
    settings = {"public_url": "https://agent.example.org", "link_secret": "s" * 32}
    async with open_cluster("slack", postgresql_url, redis_url, scenario=TALK, **settings) as cluster:
        await cluster.start()
        await cluster.stage.say("Hello")
        await cluster.stage.until(lambda: cluster.stage.shows("Hi there."), "it answers")
        for worker in cluster.workers:
            assert "listens on" not in worker.log()
            assert NO_LINKS not in worker.log()
            assert UNSHARED not in worker.log()
