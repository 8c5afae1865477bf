"""The run queue that starts a Modal function for each run."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, cast

import modal
import modal.exception

from core.domain.errors import ConfigurationError
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from sandbox.modal.account import SDK_ERRORS, ModalAccount, describe_sdk_error

FUNCTION_NAME = "execute_run"
SPAWN_SECONDS_MAX = 30.0
LOOK_UP_SECONDS_MAX = 20.0
CLOSE_SECONDS = 5.0
SPAWNS_AT_ONCE_MAX = 20
SPAWNS_WAITING_MAX = 1_000
_SPAWN = Failpoint("modal.spawn")
_NOT_DEPLOYED = (
    "The Modal app {app} has no function execute_run: `modal deploy sandbox/modal_app.py`, or correct "
    "THREADHAND_MODAL_WORKER_APP."
)
_REFUSED = (
    "Modal refuses the token, or there is none: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or "
    "remove THREADHAND_MODAL_WORKER_APP."
)

log = logging.getLogger(__name__)


class Handovers(Protocol):
    async def begin(self, run_id: str) -> bool: ...


class ModalRunQueue:
    """A `core.ports.RunQueue` that executes each run in a Modal function.

    `put` does not wait for Modal. `claim` never returns, because this process executes no runs. If Modal does not
    accept a run, the run stays queued in the database and the job `requeue_orphaned_runs` puts it into the queue again.
    """

    def __init__(self, account: ModalAccount, handovers: Handovers) -> None:
        self._account = account
        self._handovers = handovers
        self._slots = asyncio.Semaphore(SPAWNS_AT_ONCE_MAX)
        self._spawning: dict[str, asyncio.Task[None]] = {}
        self._function: modal.Function[..., object, object] | None = None
        self._is_failing = False

    async def put(self, run_id: str) -> None:
        if run_id in self._spawning or len(self._spawning) >= SPAWNS_WAITING_MAX:
            return
        task = spawn(self._hand_over(run_id), name=f"hand run {run_id} over to Modal")
        self._spawning[run_id] = task
        task.add_done_callback(lambda _task: self._spawning.pop(run_id, None))

    async def get(self) -> str:
        return await asyncio.get_running_loop().create_future()

    async def check(self) -> None:
        """Looks up the Modal function. Logs temporary errors.

        Raises ConfigurationError if the function does not exist or Modal rejects the token."""
        try:
            self._function = await look_up_worker_function(self._account)
        except SDK_ERRORS as error:
            self._log_failure(error)

    async def close(self) -> None:
        """Waits up to CLOSE_SECONDS for pending calls to Modal, then cancels them and closes the account."""
        if self._spawning:
            await asyncio.wait(self._spawning.values(), timeout=CLOSE_SECONDS)
        await cancel(*self._spawning.values())
        await self._account.close()

    async def _hand_over(self, run_id: str) -> None:
        async with self._slots:
            if not await self._handovers.begin(run_id):
                return
            try:
                async with asyncio.timeout(SPAWN_SECONDS_MAX):
                    if self._function is None:
                        self._function = await _get_function(self._account)
                    with _SPAWN:
                        await self._function.spawn.aio(run_id)
            except SDK_ERRORS as error:
                self._log_failure(error)
            else:
                if self._is_failing:
                    self._is_failing = False
                    log.info("Modal accepts runs again")

    def _log_failure(self, error: Exception) -> None:
        self._function = None  # the app may have been deployed again
        if not self._is_failing:
            self._is_failing = True
            log.warning("runs wait: %s (%s)", describe_sdk_error(error)[1], str(error)[:300])


async def look_up_worker_function(account: ModalAccount) -> modal.Function[..., object, object]:
    """Looks up the Modal function that executes runs.

    Raises ConfigurationError if the function does not exist or Modal rejects the token, and an SDK error if Modal does
    not respond."""
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS_MAX):
            function = await _get_function(account)
            await function.hydrate.aio()
    except modal.exception.NotFoundError as error:
        raise ConfigurationError(_NOT_DEPLOYED.format(app=account.app_name)) from error
    except (modal.exception.AuthError, modal.exception.PermissionDeniedError) as error:
        raise ConfigurationError(_REFUSED) from error
    return function


async def _get_function(account: ModalAccount) -> modal.Function[..., object, object]:
    client = await account.client()
    function = modal.Function.from_name(account.app_name, FUNCTION_NAME, client=client)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - the SDK leaves a type out
    return cast(modal.Function[..., object, object], function)


@asynccontextmanager
async def open_modal_run_queue(account: ModalAccount, handovers: Handovers) -> AsyncGenerator[ModalRunQueue, None]:
    """Context manager: yields a queue that is open inside the block, and closes the account at the end.

    Raises ConfigurationError if the account does not exist or does not have the function."""
    queue = ModalRunQueue(account, handovers)
    try:
        await queue.check()
        yield queue
    finally:
        await queue.close()
