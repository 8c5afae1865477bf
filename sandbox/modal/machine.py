"""One running Modal sandbox: the program inside and the connection to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import modal

from core.failpoints import Failpoint
from sandbox.client.connection import Connection
from sandbox.modal.image import WORKSPACE
from sandbox.modal.plan import ModalPlan
from sandbox.modal.probe import BROWSER_PLACES
from sandbox.modal.program import packed_program
from sandbox.modal.stream import Input, InputWriter, OutputReader

EXEC = Failpoint("modal.exec")


class ModalMachine:
    """Satisfies `sandbox.machines.Machine`. `put_away` is told whether the connection was lost before the stop."""

    def __init__(
        self,
        sandbox: modal.Sandbox,
        connection: Connection,
        *,
        thread_id: str,
        born_at: float,
        put_away: Callable[["ModalMachine", bool], Awaitable[None]],
    ) -> None:
        self.sandbox = sandbox
        self.thread_id = thread_id
        self.born_at = born_at
        self.is_ready = False
        self._connection = connection
        self._put_away = put_away
        self._is_stopped = False

    @property
    def connection(self) -> Connection:
        return self._connection

    async def ready(self) -> None:
        self.is_ready = True

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        was_lost = self._connection.is_lost
        await self._connection.close()
        try:
            await self._put_away(self, was_lost)
        finally:
            await self.sandbox.detach.aio()  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out


async def connected(sandbox: modal.Sandbox, plan: ModalPlan, *, label: str) -> Connection:
    """Starts the program inside. Raises the SDK's errors."""
    packed = await asyncio.to_thread(packed_program)
    command = packed.command(
        {
            "limits": plan.limits_inside(),
            "command_seconds_max": plan.limits.command_seconds,
            "silence_seconds_max": plan.silence_seconds,
            "browser_places": BROWSER_PLACES,
        }
    )
    with EXEC:
        process = await sandbox.exec.aio(*command, workdir=WORKSPACE, text=False, bufsize=-1)
    reader = OutputReader(cast("AsyncIterator[bytes]", aiter(process.stdout)))
    writer = InputWriter(cast("Input", process.stdin), process.wait.aio, label=label)
    writer.write(packed.content)
    return Connection(reader, writer, label=label)
