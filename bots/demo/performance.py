"""Running the demonstration: with the page until it is ended, or headless to a verdict."""

import asyncio
import json
import logging
import sys
import webbrowser

from bots.demo.stage import Stage, staged
from bots.demo.story import PATIENCE_SECONDS, PROMPT, Played, play_discord, play_slack, sales
from bots.demo.watch import StoryBroken
from bots.settings import Settings
from bots.simulator.page.server import Sample, served_page

log = logging.getLogger(__name__)

MODEL_PATIENCE_SECONDS = 600.0
"""A real model takes its time."""


async def run(settings: Settings, *, headless: bool, port: int | None) -> int:
    """The exit code: 1 where anything that the story needs is missing."""
    if "log_level" not in settings.model_fields_set:
        logging.getLogger().setLevel(logging.WARNING)
        # it warns of each rate limit that it obeys
        logging.getLogger("discord.http").setLevel(logging.ERROR)
    async with staged(settings) as stage:
        for note in stage.notes:
            _say(note)
        if headless:
            return await _headless(stage)
        platforms = {"slack": stage.slack, "discord": stage.discord}
        async with served_page(platforms, port=port, sample=SAMPLE) as address:
            _say(f"Open {address} in a browser. Ctrl-C ends the demo.")
            if sys.stdout.isatty() and _has_browser():
                await asyncio.to_thread(webbrowser.open, address)
            await asyncio.Event().wait()
    return 0


async def _headless(stage: Stage) -> int:
    patience = PATIENCE_SECONDS if stage.script is not None else MODEL_PATIENCE_SECONDS
    results = await asyncio.gather(
        play_slack(stage.slack, patience_seconds=patience),
        play_discord(stage.discord, patience_seconds=patience),
        return_exceptions=True,
    )
    verdict: dict[str, object] = {
        "ok": True,
        "sandbox": stage.program.sandbox,
        "skipped": list(stage.skipped),
    }
    for name, played in zip(("slack", "discord"), results, strict=True):
        _say(f"\n== {name}: what a reader of the thread sees ==")
        if isinstance(played, Played):
            _say(played.transcript)
            verdict[name] = {
                "runs": played.runs,
                "edits": played.edits,
                "files": played.files,
                "seconds": played.seconds,
            }
            continue
        if not isinstance(played, StoryBroken):
            log.error("the story broke on %s", name, exc_info=played)
        _say(f"BROKEN: {played}")
        verdict |= {"ok": False, name: None}
    leftovers = stage.script.leftovers() if stage.script is not None else ()
    for leftover in leftovers:
        _say(f"LEFT OVER: {leftover}")
        verdict["ok"] = False
    _say("")
    _say(json.dumps(verdict))
    return 0 if verdict["ok"] else 1


def _has_browser() -> bool:
    """One with a window: a browser of the terminal would take the terminal over."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


SAMPLE = Sample(
    label="Try: sum up a table",
    text=PROMPT,
    file_name="sales.csv",
    content=sales().content.decode(),
)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
