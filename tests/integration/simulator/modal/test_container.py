"""A container of the simulated Modal, looked at without the service around it."""

import asyncio
from pathlib import Path

import pytest

from simulator.modal.container import CommandRefused, Container

SECONDS = 30


async def test_a_command_that_is_given_up_while_it_starts_leaves_the_container_whole(tmp_path: Path) -> None:
    container = Container(tmp_path / "root", None, has_network=False)
    container.start()
    try:
        for number, argv in enumerate((["true"], ["no-such-program"])):
            given_up = asyncio.ensure_future(container.run(f"given-up-{number}", argv, env={}, folder="/"))
            await asyncio.sleep(0)  # it is asked for, and nothing has been heard of it
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
        async with asyncio.timeout(SECONDS):
            command = await container.run("wanted", ["true"], env={}, folder="/")
            await command.ended.wait()
            assert command.code == 0
            with pytest.raises(CommandRefused):
                await container.run("missing", ["no-such-program"], env={}, folder="/")
    finally:
        await container.end()
