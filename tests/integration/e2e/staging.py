"""The program on a stage with a simulated platform, connected and ready."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from simulator.discord import DiscordSimulator
from tests.chaos.harness import PlatformName, Stage, staged
from tests.support.narrow import require_type

BOTH = pytest.mark.parametrize("platform", ["slack", "discord"])


@asynccontextmanager
async def run_staged(platform: PlatformName, scenario: str, **options: Any) -> AsyncGenerator[Stage, None]:
    """Stages the program with `staged`, starts it, and waits until it is connected."""
    async with staged(platform, scenario, **options) as stage:
        stage.program.start()
        await stage.connected()
        yield stage


def discord_of(stage: Stage) -> DiscordSimulator:
    return require_type(stage.platform, DiscordSimulator)
