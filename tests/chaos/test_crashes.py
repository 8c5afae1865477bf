"""Tests that a program that is killed at any failpoint and restarted completes the test scenario."""

import asyncio
import re
from collections.abc import Sequence

import pytest

from core.tasks import cancel, spawn
from tests.chaos import stories
from tests.chaos.harness import Stage, staged
from tests.chaos.program import armed_at
from tests.chaos.stories import Story
from tests.paths import REPOSITORY
from tests.support.sandboxes import local_jails

STORIES = {name.lower(): story for name, story in vars(stories).items() if isinstance(story, Story)}
FIRST = ("",)
PASSED: dict[str, dict[str, tuple[str, ...]]] = {
    "report": {
        "storage.open": FIRST,
        "storage.migrate": FIRST,
        "storage.sweep_events": FIRST,
        "storage.expire_approvals": FIRST,
        "storage.sweep_audit": FIRST,
        "storage.sweep_keys": FIRST,
        "storage.accept": ("on_event", "on_click"),
        "storage.claim_run": FIRST,
        "storage.record_agent": FIRST,
        "storage.heartbeat": (":3",),
        "storage.claim_rendering": FIRST,
        "storage.plan": ("play", "deliver_outbox"),
        "storage.record": ("show_status", "show_status:2", "deliver_ask:3", "deliver_answer:4"),
        "storage.close_rendering": FIRST,
        "storage.write": ("begin_turn", "begin_turn:2", "begin_turn:3"),
        "storage.finish": ("", ":2"),
        "slack.post": ("show_status", "deliver_ask"),
        "slack.edit": ("post_end", "deliver_ask", "post_end:3"),
        "slack.upload": FIRST,
        "slack.react": FIRST,
        "slack.download": FIRST,
        "slack.typing": FIRST,
        "slack.read_talk": FIRST,
        "sandbox.open": FIRST,
        "sandbox.execute": ("", ":2"),
        "sandbox.write": FIRST,
        "sandbox.delete": FIRST,
        "sandbox.terminate": FIRST,
        "llm.openai.request": ("", ":3"),
    },
    "report_in_discord": {
        "storage.forward": FIRST,
        "storage.accept": FIRST,
        "storage.finish": FIRST,
        "discord.post": ("show_status", "deliver_ask"),
        "discord.edit": FIRST,
        "discord.upload": FIRST,
        "discord.react": FIRST,
        "discord.download": FIRST,
        "discord.open_thread": FIRST,
        "discord.acknowledge": FIRST,
        "discord.read_talk": FIRST,
    },
    "stream": {"slack.start_stream": FIRST, "slack.append_stream": ("", ":2"), "slack.finish_stream": FIRST},
    "stop": {"sandbox.interrupt": FIRST, "storage.request_stop": FIRST},
    "status": {"storage.claim_key": ("is_answered", "answer:2"), "slack.notice": FIRST},
    "forget": {"storage.forget": FIRST, "sandbox.destroy": FIRST},
    "end": {"storage.release_run": FIRST},
    "http": {"storage.create_thread": FIRST, "web.receive": FIRST, "web.spool": FIRST},
}
"""The passes of each failpoint at which a test kills the program, by test scenario: `step`, `step:number` or `:number`.

A step is a function on the call stack (core/failpoints.py). The number counts what the scenario names: turns, commands,
files, runs, or the attempt, the success and the end of one delivery. It is 1 if it is missing.
"""
TWICE = {
    "storage.mark_worker_dead": "storage.write.before@begin_turn:kill:2",
    "slack.find": "slack.post.after@deliver_ask:kill",
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
    "storage.retry": "one transaction; what was not retried the person presses again",
    "storage.reopen_rendering": "one transaction, made by Retry; where it is lost, the person presses it again",
    "storage.save_schedule": "one transaction; tests/histories/schedules.py kills and freezes processes there",
    "storage.begin_firing": "as storage.save_schedule",
    "storage.close_firing": "as storage.save_schedule",
    "storage.reserve_budget": "the next reservation of the run replaces it; that of a turn is in storage.write",
    "storage.change_budget_limit": "one row with its entry; a repeated command sets the same limit",
    "storage.note_earlier_authors": "one row; the next run that reads the thread from its beginning writes it again",
    "storage.set_follow_mode": "one row with its entry; the person says it again",
    "storage.ask_pairing": "one row; a code that nobody saw runs out, and a later message gets another",
    "storage.pair": "one row with its entry; a repeated word finds it done, as at storage.choose_agent",
    "storage.unpair": "as storage.pair",
    "storage.save_installation": "one row with its entry; whoever installs begins again",
    "storage.reseal_token": "one row; what is lost is a new token, and the old one holds for a while",
    "storage.join_organisation": "one row with its entry; the next event of the workspace does it again",
    "storage.leave_workspace": "Slack tells it again where it was not taken",
    "slack.catch_up": "only reads: the marks move afterwards; test_catchup.py ends an app there and starts it again",
    "slack.tell": "a private notice that a long wait goes on: the next process tells it again",
    "storage.renew": "one transaction, as storage.choose_agent",
    "storage.choose_agent": "one transaction; the person says it again",
    "storage.suspend": "tests/integration/core/test_consent.py ends a run before and after it",
    "storage.change_plans": "one transaction; the call gets its result like the one at sandbox.execute",
    "storage.replace_sandbox": "one row; test_modal_lifecycle.py breaks off at the calls before and after it",
    "storage.remove_sandbox": "as storage.replace_sandbox",
    "storage.book_usage": "one row of what was spent",
    "storage.knowledge_begin": "tests/contracts/test_store_knowledge.py breaks off there; the file is added again",
    "storage.knowledge_chunks": "as storage.knowledge_begin",
    "storage.knowledge_finish": "as storage.knowledge_begin",
    "storage.knowledge_vectors": "as storage.knowledge_begin; vectors that are missing are made at the next use",
    "storage.knowledge_remove": "one transaction; the person says it again",
    "storage.knowledge_rename": "one transaction; the file is added again with the same result",
    "knowledge.parse": "stores nothing; the file is added again",
    "llm.openai.embed": "only asks, as llm.openai.request",
    "llm.litellm.embed": "as llm.openai.embed",
    "llm.litellm.request": "as llm.openai.request",
    "mcp.connect": "the next process connects again",
    "mcp.list": "as mcp.connect",
    "mcp.call": "a call of the same shape as sandbox.execute",
    "modal.create": "tests/integration/sandbox/test_modal_lifecycle.py breaks off there",
    "modal.exec": "as modal.create",
    "modal.snapshot": "as modal.create",
    "modal.delete_image": "as modal.create",
    "modal.terminate": "as modal.create",
    "discord.reply": "as slack.notice",
    "storage.save_agent": "one transaction, as storage.choose_agent; the person says it again",
    "discord.tag": "shows what the reaction shows; the next reaction sets it again",
    "slack.open_form": "only opens a form: the person chooses the shortcut again",
    "slack.begin": "Slack tells the person that it failed; what was posted is one line without a run",
    "slack.greet": "a greeting that is lost is not told again; mentions work without it",
    "slack.publish_home": "the next opening of the Home publishes it again",
    "storage.record_feedback": "one row; Slack shows a failed click, and the last one counts",
    "slack.list_channels": "as slack.catch_up, in test_catchup.py",
    "slack.oauth": "only asks; whoever installs begins again",
    "sandbox.pack": "tests/integration/sandbox/test_archive.py has the folder as a crash leaves it at each step",
    "sandbox.unpack": "as sandbox.pack",
    "docker.start": "needs an engine; test_docker.py has the container that a killed process leaves",
    "docker.remove": "as docker.start",
    "sandbox.egress": "a program inside connects, not the run: the crash ends the jail, and with it that program",
    "outside.fetch": "only asks: a tool call that a crash cut off gets its result like the one at sandbox.execute",
    "outside.request": "test_site_deploys.py has the one that changes something; the others are as outside.fetch",
    "llm.litellm.draw": "as outside.fetch",
    "redis.put": "scripts/chaos kills and freezes processes there",
    "redis.publish": "as redis.put",
    "redis.send_stop": "the stop is stored before; it only comes sooner",
    "redis.take_turn": "only counts: a place that nobody uses is over in a moment",
    "redis.begin_handover": "what was not handed over after it is, a minute later: as modal.spawn.before",
    "redis.end_handover": "a key that is left is over in a minute",
    "redis.refuse_calls": "what was not told there the platform says again",
}
OVERTAKEN = ("sandbox.interrupt.after",)
"""Failpoints that a run does not reach if it ends by itself meanwhile."""
SOURCES = ("bots", "core", "sandbox", "storage")

CASES = [
    pytest.param(story, armed_at(f"{place}.{when}", at, "kill"), id=f"{story}-{place}.{when}-{at or 1}")
    for story, places in PASSED.items()
    for place, passes in places.items()
    for at in passes
    for when in ("before", "after")
]


def test_every_place_of_the_program_is_tried() -> None:
    sources = [path.read_text() for root in SOURCES for path in (REPOSITORY / root).rglob("*.py")]
    places = {name for text in sources for name in re.findall(r'\bFailpoint\("([a-z_.]+)"\)', text)}
    tried = {place for places in PASSED.values() for place in places} | {*TWICE}
    assert places == tried | {*NOT_PASSED}
    assert not tried & {*NOT_PASSED}
    passes = {at for places in PASSED.values() for each in places.values() for at in each}
    steps = {at.partition(":")[0] for at in passes} - {""}
    assert steps <= {name for text in sources for name in re.findall(r"\bdef _*(\w+)\(", text)}


@pytest.mark.parametrize(("story", "failpoint"), CASES)
async def test_a_crash(story: str, failpoint: str) -> None:
    await play(STORIES[story], [failpoint])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", TWICE)
async def test_a_crash_after_a_crash(place: str, when: str) -> None:
    await play(stories.REPORT, [TWICE[place], f"{place}.{when}:kill"])


async def play(story: Story, deaths: Sequence[str]) -> None:
    if story.sandbox == "local":
        async with local_jails():
            pass  # skips the test if the sandbox is not available
    async with staged(
        story.platform,
        story.scenario,
        sandbox=story.sandbox,
        is_first_start=deaths[0].startswith("storage.migrate"),
        **story.settings,
    ) as stage:
        stage.program.start(failpoints=deaths[0])
        crash = spawn(_crashes(stage, deaths[1:]), name="crash")
        try:
            await story.tell(stage)
            try:
                await asyncio.wait_for(asyncio.shield(crash), 30)
            except TimeoutError:
                if not deaths[0].startswith(OVERTAKEN):
                    raise AssertionError(f"it never passes {deaths}\n{stage.report()}") from None
            await stage.settled(story.runs)
        finally:
            await cancel(crash)
        try:
            assert stage.script.problems == []
            story.check(stage)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{stage.report()}") from error


async def _crashes(stage: Stage, later: Sequence[str]) -> None:
    """Waits until the program dies and restarts it, and repeats that for each failpoint in `later`."""
    for failpoint in (*later, ""):
        assert await stage.program.ended(60) == -9
        if stage.thread_id:
            stage.shown_before |= {one.message_id for one in stage.ours()}
        stage.program.start(failpoints=failpoint)
