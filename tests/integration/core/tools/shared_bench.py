"""A bench whose sandbox serves the tests of a module one after another, which then run in the module's event loop."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from core.ports import Sandbox
from tests.integration.core.tools.conftest import Bench, bench_in
from tests.support.all_sandboxes import clear, sandbox_of

IN_MODULE_LOOP = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["local", "unsafe-process"])
async def shared_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with sandbox_of(request.param) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def bench(shared_sandbox: Sandbox) -> AsyncIterator[Bench]:
    yield bench_in(shared_sandbox)
    await clear(shared_sandbox)
