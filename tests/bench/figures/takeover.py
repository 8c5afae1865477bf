"""How soon a click in a take-over shows on the person's screen while the wheel turns 60 times a second."""

import tempfile
from pathlib import Path

from tests.bench.figure import Figure, Unmeasurable
from tests.bench.figures.jail import jails
from tests.support.takeover_stage import LONG_PAGE, click_to_pixel_ms, helper, waiting

CLICKS = 40


async def click_p95_ms() -> float:
    async with jails() as provider:
        if provider.browser_unavailable_reason:
            raise Unmeasurable(provider.browser_unavailable_reason)
        with tempfile.TemporaryDirectory() as folder:
            async with waiting(Path(folder), provider, LONG_PAGE) as scene, helper(scene.link) as person:
                await person.begin()
                taken = sorted(await click_to_pixel_ms(person, clicks=CLICKS))
    return taken[int(CLICKS * 0.95) - 1]


takeover_click_p95_ms = Figure(name="takeover_click_p95_ms", unit="ms", bound=250, measure=click_p95_ms)
