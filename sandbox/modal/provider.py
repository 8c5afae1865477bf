"""The Modal provider: one named sandbox per thread, saved after each run, stopped when idle, restored when needed."""

import asyncio
import logging
import time
from collections.abc import Callable

import modal
import modal.exception
from yarl import URL

from core.domain.errors import SandboxReplaced, SandboxUnavailable, StorageUnavailable
from core.domain.sandbox_records import SandboxRecord, SandboxRecords
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from sandbox.client.sandbox_client import SandboxClient
from sandbox.local.probe import ProbeResult
from sandbox.modal.account import (
    FOR_OPERATOR,
    GONE,
    SDK_ERRORS,
    ModalAccount,
    describe_sdk_error,
    unavailable_from_sdk_error,
)
from sandbox.modal.background_jobs import ModalBackgroundJobs, find_orphaned_sandboxes
from sandbox.modal.config import BORN_TAG, ModalConfig, sandbox_name
from sandbox.modal.image import InstalledTools, find_installed_tools
from sandbox.modal.running_sandbox import ModalRunningSandbox, connect_program
from sandbox.modal.snapshots import ModalSnapshots
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes, check_thread_id

log = logging.getLogger(__name__)

LINK = Failpoint("modal.link")
LINK_SECONDS = 20.0
QUERY = "_modal_connect_token"


async def modal_link(machine: RunningSandbox, port: int) -> str | None:
    """Returns an address of the port with a token that admits whoever has it, or None (logged) if Modal gives none.

    The first answer sets the token as a cookie, so that a page's own requests are admitted too
    (https://modal.com/docs/guide/sandbox-networking).
    """
    if not isinstance(machine, ModalRunningSandbox):
        return None
    try:
        async with asyncio.timeout(LINK_SECONDS):
            with LINK:
                given = await machine.sandbox.create_connect_token.aio(port=port)
    except SDK_ERRORS as error:
        log.warning(
            "Modal gives no address to port %d of a sandbox: %s (%s)",
            port,
            describe_sdk_error(error)[1],
            error,
        )
        return None
    return str(URL(given.url).with_query({QUERY: given.token}))


IMAGE_IS_MADE = (
    "The image that sandboxes start from is being built; the first time, this takes some minutes."
)
FORGOTTEN = "This conversation was deleted and no longer has a sandbox."
LOST_ALL = (
    "The sandbox ended before its files were saved. A fresh, empty one has started: create again what is "
    "still needed."
)
LOST_SOME = (
    "The sandbox ended unexpectedly. A fresh one has started with the files as they were last saved; later "
    "changes and running processes were lost."
)
EXPIRED = (
    "The saved files of this conversation have expired. A fresh, empty sandbox has started: create again what "
    "is still needed."
)


CREATE = Failpoint("modal.create")
TERMINATE = Failpoint("modal.terminate")
PROBE_SECONDS = 20.0
END_SECONDS = 30.0


class ModalSandboxProvider:
    """Satisfies `core.ports.SandboxProvider`. `now` returns Unix time in seconds.

    `found` is what the first sandbox was found to contain; empty before.
    """

    def __init__(
        self,
        plan: ModalConfig,
        records: SandboxRecords,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._now = now
        self._account = ModalAccount(plan.app)
        self._snapshots = ModalSnapshots(self._account, records, plan, now)
        has_network = not plan.network().is_blocked  # a sandbox without a network cannot be reached
        self._machines = RunningSandboxes(self._start, link=modal_link if has_network else None)
        self._notices: dict[str, str] = {}
        self._being_destroyed: set[str] = set()
        self._save_tasks: set[asyncio.Task[None]] = set()
        self._tool_search: asyncio.Task[None] | None = None
        self._image_task: asyncio.Task[None] | None = None
        self.found = InstalledTools()
        self.background_jobs = ModalBackgroundJobs(
            self._machines, self._snapshots, plan, now, self._stop_abandoned
        )

    @property
    def name(self) -> str:
        return "modal"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in logs."""
        return self._account.secrets

    async def probe(self) -> ProbeResult:
        """Checks that the account answers. Creates the app if needed, and nothing else."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._account.app()
        except SDK_ERRORS as error:
            return ProbeResult(
                ok=False, reason=f"{describe_sdk_error(error)[1]}.", remedy=str(error)[:300]
            )
        return ProbeResult(ok=True)

    def start_background_work(self) -> None:
        """Starts building the image, and stopping sandboxes that other processes have left."""
        self.background_jobs.start()
        self._image_task = self._image_task or spawn(
            self._build_image(), name="build the image of sandboxes"
        )

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """Raises SandboxReplaced once if files were lost; the next call succeeds."""
        client = await self._machines.open(thread_id, fence=fence)
        self.background_jobs.record_use(thread_id)
        self.background_jobs.start()
        self._search_tools_once(thread_id)
        notice = self._notices.pop(thread_id, None) if fence else None
        if notice is not None:
            raise SandboxReplaced(notice, detail=f"thread {thread_id}")
        return client

    def rest(self, thread_id: str) -> None:
        """Saves the files in the background after a run has ended."""
        if thread_id in self._machines.running_by_thread():
            saving = spawn(self._save(thread_id), name=f"save the sandbox of {thread_id}")
            self._save_tasks.add(saving)
            saving.add_done_callback(self._save_tasks.discard)

    async def destroy(self, thread_id: str) -> None:
        check_thread_id(thread_id)
        self._being_destroyed.add(thread_id)
        try:
            await self._machines.stop(thread_id)
            async with asyncio.timeout(END_SECONDS):
                sandbox = await self._find_sandbox(thread_id)
                if sandbox is not None:
                    await self._terminate(sandbox)
                await self._snapshots.delete_thread(thread_id)
        except SDK_ERRORS as error:
            raise self._unavailable(error, "delete a sandbox") from error
        finally:
            self._being_destroyed.discard(thread_id)
            self._notices.pop(thread_id, None)

    async def close(self) -> None:
        await self.background_jobs.close()
        for task in (self._tool_search, self._image_task):
            if task is not None:
                await cancel(task)
        for saving in tuple(self._save_tasks):
            await cancel(saving)  # stopping the sandbox saves it too
        await self._machines.close()
        await self._account.close()

    async def _build_image(self) -> None:
        try:
            await self._account.image()
        except SDK_ERRORS as error:
            log.warning(
                "the image of sandboxes was not built: %s (%s)", describe_sdk_error(error)[1], error
            )

    def _search_tools_once(self, thread_id: str) -> None:
        """Searches only the first sandbox: all have the same image."""
        machine = self._machines.running_by_thread().get(thread_id)
        if self._tool_search is None and isinstance(machine, ModalRunningSandbox):
            self._tool_search = spawn(
                self._search_tools(machine.sandbox), name="search the tools of a sandbox"
            )

    async def _search_tools(self, sandbox: modal.Sandbox) -> None:
        try:
            self.found = await find_installed_tools(sandbox)
        except SDK_ERRORS as error:
            log.info("the tools of sandboxes could not be determined: %s", error)

    async def _save(self, thread_id: str) -> None:
        machine = self._machines.running_by_thread().get(thread_id)
        if not isinstance(machine, ModalRunningSandbox):
            return
        try:
            await self._snapshots.save(thread_id, machine.sandbox, "started")
        except (*SDK_ERRORS, StorageUnavailable) as error:
            log.warning("the sandbox of thread %s was not saved: %s", thread_id, error)

    async def _start(self, thread_id: str) -> ModalRunningSandbox:
        try:
            async with asyncio.timeout(self._plan.start_seconds):
                return await self._join_or_create(thread_id)
        except TimeoutError as error:
            if self._account.is_building:
                raise SandboxUnavailable(IMAGE_IS_MADE, detail="Modal builds the image") from error
            raise self._unavailable(error, "start a sandbox") from error
        except SDK_ERRORS as error:
            raise self._unavailable(error, "start a sandbox") from error

    async def _join_or_create(self, thread_id: str) -> ModalRunningSandbox:
        record = await self._snapshots.find_record(thread_id)
        if record is not None and record.state == "started":
            try:
                found = await self._find_sandbox(thread_id)
                if found is not None:
                    return await self._join(thread_id, found, record)
            except GONE as error:
                log.info("the sandbox of thread %s ended just now: %s", thread_id, error)
            record, before = await self._snapshots.find_record(thread_id), record
            if record == before:  # no other process has stopped it meanwhile
                self._notices[thread_id] = LOST_SOME if before.snapshot_ref else LOST_ALL
        try:
            return await self._create_restored(thread_id, record)
        except modal.exception.AlreadyExistsError:
            found = await self._find_sandbox(thread_id)  # another worker was faster
            if found is None:
                raise
            self._notices.pop(thread_id, None)
            return await self._join(thread_id, found, record)

    async def _join(
        self, thread_id: str, sandbox: modal.Sandbox, record: SandboxRecord | None
    ) -> ModalRunningSandbox:
        tags = await sandbox.get_tags.aio()
        created_at = float(tags.get(BORN_TAG) or self._now())
        snapshot_ref = record.snapshot_ref if record else None
        return await self._connect(thread_id, sandbox, created_at, snapshot_ref)

    async def _create_restored(
        self, thread_id: str, record: SandboxRecord | None
    ) -> ModalRunningSandbox:
        snapshot_ref = record.snapshot_ref if record else None
        sandbox = None
        if snapshot_ref:
            client = await self._account.client()
            saved = modal.Image.from_id(snapshot_ref, client=client)
            try:
                sandbox = await self._create(thread_id, saved)
            except modal.exception.NotFoundError as error:
                newest = await self._snapshots.find_record(thread_id)
                if newest is not None and newest.snapshot_ref != snapshot_ref:
                    return await self._create_restored(thread_id, newest)
                log.warning("the snapshot of thread %s is gone: %s", thread_id, error)
                self._notices[thread_id] = EXPIRED
                snapshot_ref = None
        if sandbox is None:
            sandbox = await self._create(thread_id, await self._account.image())
        return await self._connect(thread_id, sandbox, self._now(), snapshot_ref)

    async def _create(self, thread_id: str, image: modal.Image) -> modal.Sandbox:
        plan, network = self._plan, self._plan.network()
        app, client = await self._account.app(), await self._account.client()
        with CREATE:
            return await modal.Sandbox.create.aio(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
                app=app,
                image=image,
                name=sandbox_name(thread_id),
                tags=plan.tags(thread_id, created_at=self._now()),
                timeout=int(plan.lifecycle_policy.lifetime_seconds),
                idle_timeout=plan.idle_timeout_seconds,
                cpu=plan.cpu,
                memory=plan.memory_mebibytes,
                block_network=network.is_blocked,
                outbound_cidr_allowlist=network.networks,
                outbound_domain_allowlist=network.names,
                client=client,
            )

    async def _connect(
        self, thread_id: str, sandbox: modal.Sandbox, created_at: float, snapshot_ref: str | None
    ) -> ModalRunningSandbox:
        is_kept = await self._snapshots.record_started(
            thread_id, sandbox.object_id, snapshot_ref=snapshot_ref
        )
        if not is_kept:
            await self._terminate(sandbox)
            raise SandboxUnavailable(FORGOTTEN, detail=f"no record for thread {thread_id}")
        connection = await connect_program(sandbox, self._plan, label=thread_id)
        return ModalRunningSandbox(
            sandbox,
            connection,
            thread_id=thread_id,
            created_at=created_at,
            on_stop=self._save_and_terminate,
        )

    async def _find_sandbox(self, thread_id: str) -> modal.Sandbox | None:
        try:
            return await modal.Sandbox.from_name.aio(
                self._account.app_name,
                sandbox_name(thread_id),
                client=await self._account.client(),
            )
        except modal.exception.NotFoundError:
            return None

    async def _save_and_terminate(self, machine: ModalRunningSandbox, was_lost: bool) -> None:
        """Saves and terminates the sandbox, unless only the connection was lost: another worker may use it, so the next
        opener decides. A sandbox that cannot be saved is left to the background jobs or to Modal's own timeout."""
        thread_id = machine.thread_id
        if was_lost and machine.is_ready:
            return
        try:
            is_useless = thread_id in self._being_destroyed or not machine.is_ready
            if is_useless or await self._snapshots.save(thread_id, machine.sandbox, "stopped"):
                await self._terminate(machine.sandbox)
        except (*SDK_ERRORS, StorageUnavailable) as error:
            log.warning("the sandbox of thread %s was not stopped: %s", thread_id, error)

    async def terminate_orphans(self) -> int:
        """Terminates sandboxes of this home without a record, if they are old enough to have one. Returns how many.
        Builds the image if it is missing. Raises the SDK's errors, StorageUnavailable."""
        await self._account.image()
        left = await find_orphaned_sandboxes(
            self._account, self._snapshots, self._plan.home, self._now()
        )
        for sandbox in left:
            await self._terminate(sandbox)
        return len(left)

    async def _stop_abandoned(self, record: SandboxRecord) -> bool:
        """Saves and terminates a sandbox whose worker is gone; False if it no longer exists.

        Raises the SDK's errors.
        """
        sandbox = await self._find_sandbox(record.thread_id)
        if sandbox is None:
            return False
        if await self._snapshots.save(record.thread_id, sandbox, "stopped"):
            await self._terminate(sandbox)
        return True

    async def _terminate(self, sandbox: modal.Sandbox) -> None:
        try:
            with TERMINATE:
                await sandbox.terminate.aio()
        except GONE as error:
            log.debug("the sandbox %s had ended: %s", sandbox.object_id, error)

    def _unavailable(self, error: Exception, doing: str) -> SandboxUnavailable:
        failure = unavailable_from_sdk_error(error, doing=doing)
        if isinstance(error, FOR_OPERATOR):
            log.error("%s", failure.detail)
        return failure
