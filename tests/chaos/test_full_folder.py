"""Tests a full disk with the data folder: requests without files work, others get an error, until space is free."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bots.demo.thread_reader import messages_of, text_of
from sandbox.diagnostics import FULL_DISK_MESSAGE
from simulator.view import SentFile
from tests.chaos.crew import SCENARIO, Crew, Told, crew
from tests.chaos.disks import MEBIBYTE, Disk, small_disk
from tests.chaos.harness import PERSON
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers
from tests.integration.sandbox.providers import local_jails

DISK_BYTES = {"unsafe-process": 32 * MEBIBYTE, "local": 640 * MEBIBYTE}
"""The size of the disk by sandbox provider. A jail requires 512 MiB of free space."""
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
async def _on_a_small_disk(sandbox: str) -> AsyncGenerator[tuple[Disk, Crew], None]:
    with small_disk(DISK_BYTES[sandbox]) as disk:
        async with (
            servers() as (_, cache, url),
            crew(
                "slack",
                url,
                cache.answer,
                scenario=SCENARIO + TRIES,
                sandbox=sandbox,
                data_dir=str(disk.place / "data"),
            ) as told,
        ):
            for program in told.programs():
                program.wrapped_in = disk.entered
            await told.start()
            yield disk, told


@pytest.mark.slow
@pytest.mark.parametrize(
    "sandbox", ["unsafe-process", pytest.param("local", marks=pytest.mark.long)]
)
async def test_a_full_data_folder_is_told_and_passes(sandbox: str) -> None:
    if sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with _on_a_small_disk(sandbox) as (disk, told):
        first = await told.say("Work", "a1")
        await told.until(lambda: told.has_ended("a1"), "it answers while there is room")
        disk.fill()
        await told.say("Hello", "a2")
        await told.say("Try", "a3", thread_id=first.thread_id)
        await _say_with_a_file(told, "a4")
        await told.until(
            lambda: all(told.has_ended(one) for one in ("a2", "a3", "a4")), "all are answered"
        )
        assert "full; delete something first." in _shown(told, first.thread_id)
        assert FULL_DISK_MESSAGE in _shown(told, told.told[-1].thread_id)
        heard = str([one["messages"] for one in told.stage.script.requests])
        assert f"table.csv could not be stored: {FULL_DISK_MESSAGE}" in heard

        disk.clear()
        await told.say("Work", "a5", thread_id=first.thread_id)
        await told.say("Work", "a6")
        await settle_and_check(told)


async def _say_with_a_file(told: Crew, token: str) -> None:
    stage = told.stage
    said = await stage.platform.say(
        PERSON,
        stage.channel_id,
        f"@{stage.view().bot_name} Try, token {token}",
        files=(TABLE,),
    )
    told.told.append(Told(token=token, thread_id=said, message_id=said))


def _shown(told: Crew, thread_id: str) -> str:
    thread = messages_of(told.stage.view(), thread_id)
    return "\n".join(text_of(one) for one in thread if one.is_bot)
