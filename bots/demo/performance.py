"""Running the demonstration: with the page until it is ended, or headless to a verdict."""

import asyncio
import json
import logging
import sys
import webbrowser

from bots.demo.stage import Stage, staged
from bots.demo.story import Played, StoryBroken, play_discord, play_slack
from bots.settings import Settings
from bots.simulator.page.server import served_page

log = logging.getLogger(__name__)


async def run(settings: Settings, *, headless: bool, port: int | None) -> int:
    """The exit code: 1 where anything that the story needs is missing."""
    async with staged(settings) as stage:
        for note in stage.notes:
            _say(note)
        if headless:
            return await _headless(stage)
        async with served_page(
            {"slack": stage.slack, "discord": stage.discord}, port=port
        ) as address:
            _say(f"Open {address} in a browser. Ctrl-C ends the demo.")
            if sys.stdout.isatty():
                # a machine without a browser just shows the address
                await asyncio.to_thread(webbrowser.open, address)
            await asyncio.Event().wait()
    return 0


async def _headless(stage: Stage) -> int:
    results = await asyncio.gather(
        play_slack(stage.slack), play_discord(stage.discord), return_exceptions=True
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


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
