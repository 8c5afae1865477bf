"""Slack over signed HTTP requests instead of a socket: the same story, and nobody else gets in."""

import socket

from tests.chaos import report_story
from tests.chaos.harness import staged


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
