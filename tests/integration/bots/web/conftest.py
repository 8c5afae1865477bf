"""The stage of the API's tests."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.web_stage import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage, None]:
    async with staged(tmp_path) as ready:
        yield ready
