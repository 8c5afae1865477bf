"""Runs that functions at Modal execute: how this process hands them over, and how a function takes its own."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, cast

import modal
import modal.exception

from bots.observability.logs import add_log_secrets
from core.domain.errors import ConfigurationError
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from sandbox.modal.account import SDK_ERRORS, ModalAccount, describe_sdk_error
from storage.memory.run_queue import MemoryRunQueue

FUNCTION = "execute_run"
SPAWN_SECONDS_MAX = 30.0
TRY_SECONDS_MAX = 20.0
CLOSE_SECONDS = 5.0
SPAWNS_AT_ONCE_MAX = 20
WAITING_MAX = 1_000
_SPAWN = Failpoint("modal.spawn")
_NOT_DEPLOYED = (
    "The Modal app {app} has no function execute_run: `modal deploy sandbox/modal_app.py`, or correct "
    "THREADHAND_MODAL_WORKER_APP."
)
_REFUSED = (
    "Modal refuses the token, or there is none: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or take "
    "THREADHAND_MODAL_WORKER_APP away."
)

log = logging.getLogger(__name__)


class Handovers(Protocol):
    async def begin(self, run_id: str) -> bool: ...


class ModalRunQueue:
    """`core.ports.RunQueue` with its other end at Modal: each run is a call of the function, no claim gets one here.

    `put` does not wait for Modal: what it does not take stays queued in the database, and whoever looks there puts it
    again.
    """

    def __init__(self, account: ModalAccount, handovers: Handovers) -> None:
        self._account = account
        self._handovers = handovers
        self._slots = asyncio.Semaphore(SPAWNS_AT_ONCE_MAX)
        self._spawning: dict[str, asyncio.Task[None]] = {}
        self._function: modal.Function[..., object, object] | None = None
        self._is_failing = False

    async def put(self, run_id: str) -> None:
        if run_id in self._spawning or len(self._spawning) >= WAITING_MAX:
            return
        task = spawn(self._hand_over(run_id), name=f"hand run {run_id} over to Modal")
        self._spawning[run_id] = task
        task.add_done_callback(lambda _task: self._spawning.pop(run_id, None))

    async def claim(self) -> str:
        return await asyncio.get_running_loop().create_future()

    async def check(self) -> None:
        """Raises ConfigurationError for what does not pass by itself; a Modal that does not answer may, later."""
        try:
            self._function = await look_up_worker_function(self._account)
        except SDK_ERRORS as error:
            self._failed(error)

    async def close(self) -> None:
        """What is on its way gets a moment."""
        if self._spawning:
            await asyncio.wait(self._spawning.values(), timeout=CLOSE_SECONDS)
        for task in tuple(self._spawning.values()):
            await cancel(task)
        await self._account.close()

    async def _hand_over(self, run_id: str) -> None:
        async with self._slots:
            if not await self._handovers.begin(run_id):
                return
            try:
                async with asyncio.timeout(SPAWN_SECONDS_MAX):
                    function = await self._found()
                    with _SPAWN:
                        await function.spawn.aio(run_id)
            except SDK_ERRORS as error:
                self._failed(error)
            else:
                self._worked()

    async def _found(self) -> modal.Function[..., object, object]:
        """Looked up by the first call, and again after a failure: a deployment may have made it anew."""
        if self._function is None:
            self._function = await _named(self._account)
        return self._function

    def _failed(self, error: Exception) -> None:
        self._function = None
        if not self._is_failing:
            self._is_failing = True
            log.warning("runs wait: %s (%s)", describe_sdk_error(error)[1], str(error)[:300])

    def _worked(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("Modal takes runs again")


async def look_up_worker_function(account: ModalAccount) -> modal.Function[..., object, object]:
    """The function, looked up at Modal. Raises ConfigurationError for what does not pass by itself, and the SDK's
    errors for a Modal that does not answer."""
    try:
        async with asyncio.timeout(TRY_SECONDS_MAX):
            function = await _named(account)
            await function.hydrate.aio()
    except modal.exception.NotFoundError as error:
        raise ConfigurationError(_NOT_DEPLOYED.format(app=account.app_name)) from error
    except (modal.exception.AuthError, modal.exception.PermissionDeniedError) as error:
        raise ConfigurationError(_REFUSED) from error
    return function


async def _named(account: ModalAccount) -> modal.Function[..., object, object]:
    client = await account.client()
    function = modal.Function.from_name(account.app_name, FUNCTION, client=client)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - the SDK leaves a type out
    return cast(modal.Function[..., object, object], function)


class SingleRunQueue:
    """`core.ports.RunQueue` of a function: what its worker finds besides has functions of its own."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._waiting = MemoryRunQueue()

    async def put(self, run_id: str) -> None:
        if run_id == self._run_id:
            await self._waiting.put(run_id)

    async def claim(self) -> str:
        return await self._waiting.claim()


@asynccontextmanager
async def open_modal_run_queue(
    app: str, handovers: Handovers
) -> AsyncGenerator[ModalRunQueue, None]:
    """Raises ConfigurationError where the account has no such function, or there is no account."""
    account = ModalAccount(app)
    add_log_secrets(account.secrets)
    queue = ModalRunQueue(account, handovers)
    try:
        await queue.check()
        yield queue
    finally:
        await queue.close()
