"""Slack over signed HTTP requests instead of a socket: the same story, and nobody else gets in."""

from tests.chaos import report_story
from tests.chaos.harness import staged
from tests.ports import free_port


async def test_the_main_job_is_done_over_http() -> None:
    async with staged("slack", report_story.SCENARIO, events_port=free_port()) as stage:
        stage.program.start()
        await report_story.tell(stage)
        await stage.settled(2)
        report_story.check(stage)
