"""Tests that a program that is killed at any failpoint and restarted completes the test scenario."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from core.tasks import cancel, spawn
from simulator.modal.server import ModalSimulator
from tests.chaos import knowledge_stories, stories, tool_stories
from tests.chaos.harness import Stage, staged
from tests.chaos.program import REPOSITORY
from tests.chaos.stories import Story
from tests.integration.sandbox.modal_stage import environment_of
from tests.integration.sandbox.providers import local_jails
from tests.servers import redis

STORIES: dict[str, Story] = {
    name.lower(): story
    for name, story in {**vars(stories), **vars(tool_stories), **vars(knowledge_stories)}.items()
    if isinstance(story, Story)
}
PASSED: dict[str, dict[str, tuple[int, ...]]] = {
    "report": {
        "storage.open": (1,),
        "storage.migrate": (1,),
        "storage.sweep_events": (1,),
        "storage.expire_approvals": (1,),
        "storage.sweep_audit": (1,),
        "storage.sweep_keys": (1,),
        "storage.accept": (1, 2),
        "storage.claim_run": (1,),
        "storage.record_agent": (1,),
        "storage.heartbeat": (3,),
        "storage.claim_rendering": (1,),
        "storage.plan": (1, 4),
        "storage.record": (1, 2, 5),
        "storage.close_rendering": (1,),
        "storage.write": (1, 3, 6),
        "storage.finish": (1, 2),
        "slack.post": (1, 2, 4),
        "slack.edit": (1, 3),
        "slack.upload": (1, 2),
        "slack.react": (1,),
        "slack.download": (1,),
        "slack.typing": (1,),
        "slack.read_talk": (1,),
        "sandbox.open": (1,),
        "sandbox.execute": (1, 2),
        "sandbox.write": (1,),
        "sandbox.delete": (1,),
        "sandbox.terminate": (1,),
        "llm.openai.request": (1, 3),
    },
    "report_in_discord": {
        "storage.forward": (1, 2),
        "storage.accept": (1,),
        "storage.finish": (1,),
        "discord.post": (1, 2),
        "discord.edit": (1,),
        "discord.upload": (1,),
        "discord.react": (1,),
        "discord.download": (1,),
        "discord.open_thread": (1,),
        "discord.acknowledge": (1,),
        "discord.read_talk": (1,),
    },
    "stop": {"sandbox.interrupt": (1,), "storage.request_stop": (1,)},
    "retry": {"storage.retry": (1,)},
    "status": {"storage.claim_key": (1, 2), "slack.notice": (1,)},
    "new": {"storage.renew": (1,)},
    "use": {"storage.choose_agent": (1,)},
    "forget": {"storage.forget": (1,)},
    "forget_in_a_jail": {"sandbox.destroy": (1,)},
    "forget_at_modal": {
        "modal.create": (1,),
        "modal.exec": (1,),
        "modal.snapshot": (1,),
        "modal.delete_image": (1,),
        "modal.terminate": (1,),
        "storage.replace_sandbox": (1,),
        "storage.remove_sandbox": (1,),
    },
    "status_in_discord": {"discord.reply": (1,)},
    "slash": {"discord.acknowledge": (1,)},
    "end": {"storage.release_run": (1,)},
    "http": {"storage.create_thread": (1,), "web.receive": (1,), "web.spool": (1,)},
    "tool_server": {
        "mcp.connect": (1,),
        "mcp.list": (1,),
        "mcp.call": (1,),
        "storage.suspend": (1,),
    },
    "plan": {"storage.change_plans": (1,)},
    "litellm": {"llm.litellm.request": (1,)},
    "know": {
        "knowledge.parse": (1,),
        "storage.knowledge_begin": (1,),
        "storage.knowledge_chunks": (1, 2),
        "storage.knowledge_finish": (1,),
        "storage.knowledge_vectors": (1,),
        "storage.book_usage": (1,),
        "llm.openai.embed": (1, 2),
    },
    "know_through_litellm": {"llm.litellm.embed": (1,)},
    "unlearn": {"storage.knowledge_remove": (1,)},
    "status_over_redis": {"redis.put": (1,), "redis.publish": (2,)},
    "stop_over_redis": {"redis.send_stop": (1,)},
}
"""The passes of each failpoint at which a test kills the program, by test scenario."""
TWICE = {
    "storage.mark_worker_dead": "storage.write.before:kill:2",
    "slack.find": "slack.post.after:kill:2",
}
"""Failpoints that a program passes only after it was killed."""
NOT_PASSED = {
    "web.claim_takeover": "one row: there or not; the person presses the button again",
    "storage.update_takeover": "one row; the next process to look after the take-over does it again",
    "web.hand_back": "the dedupe key is the link's, and a claim that is not done is looked after at the next start",
    "sandbox.browse": "a call of the same shape as sandbox.execute; the stories' sandboxes have no browser",
    "sandbox.type": "a call of the same shape as sandbox.terminate; no story has a program that waits for a line",
    "sandbox.connect": "changes nothing: who wanted the connection asks again",
    "modal.link": "only asks: an address that nobody was told leads nowhere",
    "modal.spawn": "tests/integration/e2e/test_modal_runs.py kills the bot there, which has no worker of its own",
    "storage.record_audit": "an entry alone, of what the next event of the platform tells again",
    "storage.ask_pairing": "one row; a code that nobody saw runs out, and a later message gets another",
    "storage.pair": "one row with its entry; a repeated word finds it done, as at storage.choose_agent",
    "storage.unpair": "as storage.pair",
    "storage.save_installation": "one row with its entry; whoever installs begins again",
    "storage.reseal_token": "one row; what is lost is a new token, and the old one holds for a while",
    "storage.join_organisation": "one row with its entry; the next event of the workspace does it again",
    "storage.leave_workspace": "Slack tells it again where it was not taken",
    "slack.catch_up": "only reads: the marks move afterwards; test_catchup.py ends an app there and starts it again",
    "slack.list_channels": "as slack.catch_up, in test_unheard.py",
    "slack.oauth": "only asks; whoever installs begins again",
    "sandbox.pack": "tests/integration/sandbox/test_archive.py has the folder as a crash leaves it at each step",
    "sandbox.unpack": "as sandbox.pack",
    "docker.start": "needs an engine; test_docker.py has the container that a killed process leaves",
    "docker.remove": "as docker.start",
    "sandbox.egress": "a program inside connects, not the run: the crash ends the jail, and with it that program",
    "outside.fetch": "only asks: a tool call that a crash cut off is mended as that at sandbox.execute",
    "outside.request": "test_deployments.py has the one that changes something there; the others are as outside.fetch",
    "llm.litellm.draw": "as outside.fetch",
    "redis.take_turn": "only counts: a place that nobody uses is over in a moment",
    "redis.begin_handover": "what was not handed over after it is, a minute later: as modal.spawn.before",
    "redis.end_handover": "a key that is left is over in a minute",
    "redis.refuse_calls": "what was not told there the platform says again",
}
OVERTAKEN = ("sandbox.interrupt.after",)
"""Failpoints that a run does not reach if it ends by itself meanwhile."""
SOURCES = ("bots", "core", "sandbox", "storage")

DEFAULT = {
    ("report", "storage.accept"),
    ("report", "storage.write"),
    ("report", "slack.post"),
    ("report", "sandbox.execute"),
    ("report_in_discord", "discord.post"),
}
"""One crash for each tier of the program: reception, worker, delivery on each platform, sandbox."""


def tier(story: str, place: str, *, is_first: bool) -> tuple[pytest.MarkDecorator, ...]:
    """Returns the markers of a test. The first crash at a failpoint is slow, others are long; a few run by default."""
    if not is_first:
        return (pytest.mark.long,)
    return () if (story, place) in DEFAULT else (pytest.mark.slow,)


CASES = [
    pytest.param(
        story,
        f"{place}.{when}:kill:{hit}",
        id=f"{story}-{place}.{when}-{hit}",
        marks=tier(story, place, is_first=(when, hit) == ("after", hits[0])),
    )
    for story, places in PASSED.items()
    for place, hits in places.items()
    for hit in hits
    for when in ("before", "after")
]


def test_every_place_of_the_program_is_tried() -> None:
    sources = [path.read_text() for root in SOURCES for path in (REPOSITORY / root).rglob("*.py")]
    places = {name for text in sources for name in re.findall(r'\bFailpoint\("([a-z_.]+)"\)', text)}
    tried = {place for places in PASSED.values() for place in places} | {*TWICE}

    assert places == tried | {*NOT_PASSED}
    assert not tried & {*NOT_PASSED}


@pytest.mark.parametrize(("story", "failpoint"), CASES)
async def test_a_crash(story: str, failpoint: str) -> None:
    await play(STORIES[story], [failpoint])


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", TWICE)
async def test_a_crash_after_a_crash(place: str, when: str) -> None:
    await play(stories.REPORT, [TWICE[place], f"{place}.{when}:kill"])


async def play(story: Story, deaths: Sequence[str]) -> None:
    if story.sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with AsyncExitStack() as stack:
        wires = {"redis_url": stack.enter_context(redis())} if story.over_redis else {}
        stage = await stack.enter_async_context(
            staged(story.platform, story.scenario, sandbox=story.sandbox, **story.settings, **wires)
        )
        modal = None
        if story.sandbox == "modal":
            modal = await stack.enter_async_context(ModalSimulator())
            stage.program.environment |= environment_of(modal)
        story.prepare(stage)
        stage.program.start(failpoints=deaths[0])
        crash = spawn(_crashes(stage, deaths[1:]), name="crash")
        try:
            await story.tell(stage)
            try:
                await asyncio.wait_for(asyncio.shield(crash), 5)
            except TimeoutError:
                if not deaths[0].startswith(OVERTAKEN):
                    raise AssertionError(f"it never passes {deaths}\n{stage.report()}") from None
            await stage.settled(story.runs)
        finally:
            await cancel(crash)
        try:
            assert stage.script.problems == []
            story.check(stage)
            assert modal is None or not modal.world.living()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{stage.report()}") from error


async def _crashes(stage: Stage, later: Sequence[str]) -> None:
    """Waits until the program dies and restarts it, and repeats that for each failpoint in `later`."""
    for failpoint in (*later, ""):
        assert await stage.program.ended(60) == -9
        if stage.thread_id:
            stage.shown_before |= {one.message_id for one in stage.ours()}
        stage.program.start(failpoints=failpoint)
