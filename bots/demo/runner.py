"""Runs the demo: on a web page until interrupted, or without a page to check that all stories succeed."""

import asyncio
import json
import logging
import sys
import webbrowser

from bots.demo import file_stories, handbook_story, reminder_story, trap_page_story
from bots.demo.environment import DemoEnvironment, start_demo
from bots.demo.story_helpers import PATIENCE_SECONDS, PlayedStory
from bots.demo.thread_reader import StoryBroken
from bots.settings import Settings
from bots.setup.dialog import has_graphical_browser
from core.domain.approval import APPROVE_ONCE, DENY
from core.domain.errors import ConfigurationError
from simulator.page.server import Sample, served_page
from simulator.serving import PortInUse
from simulator.view import SimulatedPlatform

log = logging.getLogger(__name__)

MODEL_PATIENCE_SECONDS = 600.0
"""How long a story waits for each expected result if the demo uses a real model."""


async def run_demo(settings: Settings, *, headless: bool, port: int | None) -> int:
    """Runs the demo and returns the exit code.

    `headless`: play the stories without a web page and return 1 if a story fails. `port`: the port of the web page, or
    None for any free port."""
    if "log_level" not in settings.model_fields_set:
        logging.getLogger().setLevel(logging.WARNING)
        # discord.py logs a warning for each rate limit that it waits for
        logging.getLogger("discord.http").setLevel(logging.ERROR)
    async with start_demo(settings) as stage:
        for note in stage.notes:
            _say(note)
        if headless:
            verdict: dict[str, object] = {"ok": True, "sandbox": stage.program.sandbox, "skipped": list(stage.skipped)}
            patience = PATIENCE_SECONDS if stage.script is not None else MODEL_PATIENCE_SECONDS
            tellings = {
                "slack": _play_stories(stage.slack, stage, patience),
                "discord": _play_stories(stage.discord, stage, patience),
            }
            results = await asyncio.gather(*tellings.values(), return_exceptions=True)
            for name, played in zip(tellings, results, strict=True):
                _say(f"\n== {name}: what a reader of the threads sees ==")
                if not isinstance(played, BaseException):
                    _say("\n  ---\n".join(one.transcript for one in played))
                    verdict[name] = {
                        "runs": sum(one.runs for one in played),
                        "edits": sum(one.edits for one in played),
                        "files": sum(one.files for one in played),
                        "seconds": round(sum(one.seconds for one in played), 2),
                    }
                    continue
                if not isinstance(played, StoryBroken):
                    log.error("the story broke on %s", name, exc_info=played)
                _say(f"BROKEN: {played}")
                verdict |= {"ok": False, name: None}
            # the steps of the script that the model did not reach, except for those that need a missing browser
            left = stage.script.unplayed_steps() if stage.script is not None else ()
            in_browser = f"{file_stories.PAGE_CONVERSATION}, "
            for leftover in [step for step in left if stage.has_browser or not step.startswith(in_browser)]:
                _say(f"LEFT OVER: {leftover}")
                verdict["ok"] = False
            _say("")
            _say(json.dumps(verdict))
            return 0 if verdict["ok"] else 1
        try:
            platforms = {"slack": stage.slack, "discord": stage.discord}
            # a real model would cost money before anybody asked for anything
            samples = build_page_samples(stage, play_themselves=stage.script is not None)
            async with served_page(platforms, port=port, samples=samples) as address:
                _say(f"Open {address} in a browser. Ctrl-C ends the demo.")
                if sys.stdout.isatty() and has_graphical_browser():
                    await asyncio.to_thread(webbrowser.open, address)
                await asyncio.Event().wait()
        except PortInUse as error:
            raise ConfigurationError(f"{error} Choose another one with --port.") from error
    return 0


async def _play_stories(
    platform: SimulatedPlatform, stage: DemoEnvironment, patience: float
) -> tuple[PlayedStory, ...]:
    """Plays all stories on one platform, one after the other."""
    played = [
        await file_stories.play_table(platform, patience_seconds=patience),
        await handbook_story.play_question(platform, patience_seconds=patience),
        await handbook_story.play_approval(platform, stage.board, patience_seconds=patience),
    ]
    played.append(await reminder_story.play_reminder(platform, patience_seconds=patience))
    if stage.script is not None:  # a good model does not obey the page, so there would be no question
        played.append(await trap_page_story.play_trap_page(platform, stage.site_url, patience_seconds=patience))
    if stage.has_browser:
        played.append(await file_stories.play_page(platform, patience_seconds=patience))
    return tuple(played)


def build_page_samples(environment: DemoEnvironment, *, play_themselves: bool = False) -> tuple[Sample, ...]:
    """Returns the example messages that users can send from the web page, or that play by themselves."""
    slack, discord = ("slack", "discord") if play_themselves else ("", "")
    handbook = handbook_story.handbook_file()
    samples = (
        Sample(
            label="Try: sum up a table",
            text=file_stories.TABLE_PROMPT,
            file=file_stories.sales_table(),
            plays_on=slack,
            choice=file_stories.CHOICE,
        ),
        Sample(
            label="Try: approve a step",
            text=handbook_story.PROMPT,
            file=handbook,
            plays_on=discord,
            choice=APPROVE_ONCE,
        ),
        Sample(label="Try: ask a PDF", text=handbook_story.QUESTION, file=handbook, plays_on=slack),
        Sample(label="Try: a reminder", text=reminder_story.PROMPT, plays_on=slack, choice=APPROVE_ONCE),
        Sample(
            label="Try: a page with a trap",
            text=trap_page_story.trap_page_prompt(environment.site_url),
            plays_on=discord,
            choice=DENY,
        ),
        Sample(label="Try: show a web page", text=file_stories.PAGE_PROMPT, plays_on=discord),
    )
    return samples if environment.has_browser else samples[:-1]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
