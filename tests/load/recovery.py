"""How long a run stands still whose worker is killed."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from statistics import median

from tests.bench.figure import note
from tests.chaos.cluster import WORKER, Cluster, open_cluster
from tests.chaos.outages import servers

TAKE_UP_SECONDS_MAX = 60.0


async def recovery(*, trials: int) -> Mapping[str, float]:
    """From the SIGKILL of a worker to the lease of another on the run that it had."""
    async with AsyncExitStack() as stack:
        _, cache, url = await stack.enter_async_context(servers())
        cluster = await stack.enter_async_context(open_cluster("slack", url, cache.answer, workers=3))
        await cluster.start()
        times = [await _trial(cluster, number) for number in range(trials)]
    note("recovery: " + " ".join(f"{one:.1f}" for one in times))
    return {"recovery_p50_s": median(times), "recovery_max_s": max(times)}


async def _trial(cluster: Cluster, number: int) -> float:
    said = await cluster.say("Nap", f"n{number}x")
    of_run = f"r.request_ref = '{said.message_id}'"
    await cluster.until_rows(
        f"SELECT 1 FROM tool_call c JOIN run r USING (run_id) WHERE {of_run}",  # noqa: S608 - an id of our own
        "its command runs",
    )
    held = f"SELECT l.run_id, l.worker_id FROM lease l JOIN run r USING (run_id) WHERE {of_run}"  # noqa: S608
    ((run_id, worker_id),) = await cluster.rows(held)
    doomed = next(one for one in cluster.workers if f"-{one.pid}-" in str(worker_id))
    # not always at the same distance from a heartbeat
    await asyncio.sleep(number * 0.37 % 1.0)
    doomed.kill()
    began = time.monotonic()
    while not await cluster.rows(
        f"SELECT 1 FROM lease WHERE run_id = '{run_id}' AND worker_id <> '{worker_id}'"  # noqa: S608
    ):
        assert time.monotonic() - began < TAKE_UP_SECONDS_MAX, cluster.report()
        await asyncio.sleep(0.01)
    took = time.monotonic() - began
    doomed.start(arguments=WORKER)
    # one that starts declares dead whoever it finds dead on this machine, which is quicker than silence
    await cluster.until_rows(
        f"SELECT 1 FROM worker WHERE worker_id LIKE '%-{doomed.pid}-%'",  # noqa: S608
        "it is back",
    )
    return took
