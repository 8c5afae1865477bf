"""Tests a full disk with the data folder: requests without files work, others get an error, until space is free."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sandbox.os_errors import FULL_DISK_MESSAGE
from simulator.view import SentFile
from tests.chaos.cluster import SCENARIO, Cluster, SentMessage, open_cluster
from tests.chaos.disks import MEBIBYTE, Disk, small_disk
from tests.chaos.harness import PERSON
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers
from tests.support.sandboxes import local_jails

DISK_BYTES = {"unsafe-process": 32 * MEBIBYTE, "local": 640 * MEBIBYTE}
"""The size of the disk by sandbox provider. A jail requires 512 MiB of free space."""
RESULTS = ("full; delete something first.", "The sandbox was stopped because this machine's disk is nearly full.")
"""What the model reads in the thread whose sandbox was running: the second if the watchdog came before the command."""
TRIES = """
  - name: try
    when: {user: {contains: "Try"}}
    capture: {token: 'token (\\w+)'}
    steps:
      - calls:
          - name: full_file_rewrite
            arguments: {file_path: "{{token}}.txt", file_contents: "made"}
      - text: "Done {{token}}."
"""
TABLE = SentFile(name="table.csv", content=b"a,b\n1,2\n", mime_type="text/csv")


@asynccontextmanager
async def _on_a_small_disk(sandbox: str) -> AsyncGenerator[tuple[Disk, Cluster], None]:
    with small_disk(DISK_BYTES[sandbox]) as disk:
        async with (
            servers() as (_, cache, url),
            open_cluster(
                "slack",
                url,
                cache.answer,
                scenario=SCENARIO + TRIES,
                sandbox=sandbox,
                data_dir=str(disk.place / "data"),
            ) as cluster,
        ):
            for program in cluster.programs():
                program.wrapped_in = disk.entered
            await cluster.start()
            yield disk, cluster


@pytest.mark.parametrize("sandbox", ["unsafe-process", "local"])
async def test_a_full_data_folder_is_told_and_passes(sandbox: str) -> None:
    if sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with _on_a_small_disk(sandbox) as (disk, cluster):
        first = await cluster.say("Work", "a1")
        await cluster.until(lambda: cluster.has_ended("a1"), "it answers while there is room")
        disk.fill()
        await cluster.say("Hello", "a2")
        await cluster.say("Try", "a3", thread_id=first.thread_id)
        await _say_with_a_file(cluster, "a4")
        await cluster.until(lambda: all(cluster.has_ended(one) for one in ("a2", "a3", "a4")), "all are answered")
        cluster.stage.thread_id = cluster.sent[-1].thread_id
        assert FULL_DISK_MESSAGE in await cluster.stage.details()
        heard = str([one["messages"] for one in cluster.stage.script.requests])
        assert any(text in heard for text in RESULTS)
        assert f"table.csv could not be stored: {FULL_DISK_MESSAGE}" in heard
        disk.clear()
        # in a jail the next run is told first that its sandbox was stopped
        same_thread = first.thread_id if sandbox == "unsafe-process" else ""
        await cluster.say("Work", "a5", thread_id=same_thread)
        await cluster.say("Work", "a6")
        await settle_and_check(cluster)


async def _say_with_a_file(cluster: Cluster, token: str) -> None:
    stage = cluster.stage
    said = await stage.platform.say(
        PERSON, stage.channel_id, f"@{stage.view().bot_name} Try, token {token}", files=(TABLE,)
    )
    cluster.sent.append(SentMessage(token=token, thread_id=said, message_id=said))
