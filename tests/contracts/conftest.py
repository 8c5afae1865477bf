"""Stores over each database and a sandbox of each provider, for the contract suites."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from core.ports import Sandbox
from sandbox.limits import SandboxLimits
from storage.sql.database import Database
from tests.contracts.stores import Stores, stores_over
from tests.support.all_sandboxes import PROVIDERS, clear, sandbox_of

SANDBOX_LIMITS = SandboxLimits(file_bytes=300 << 20)


@pytest.fixture
def stores(database: Database) -> Stores:
    return stores_over(database)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PROVIDERS)
async def shared_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with sandbox_of(request.param, SANDBOX_LIMITS) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(shared_sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """A sandbox that the tests of a module use one after another. Such tests run in the event loop of the module."""
    yield shared_sandbox
    await clear(shared_sandbox)
