"""One jail with one browser for all tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.core.tools.browser.browser_stage import BrowserStage, new_desk
from tests.support.sandboxes import local_jails


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[BrowserStage]:
    async with local_jails() as jails:
        yield await new_desk(jails, "thread")
