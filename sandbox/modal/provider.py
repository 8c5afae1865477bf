"""The Modal provider: one named sandbox per thread, saved after each run, stopped when idle, restored when needed."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

import modal
import modal.exception
from yarl import URL

from core.domain.errors import SandboxReplaced, SandboxUnavailable, StorageUnavailable
from core.domain.network import NetworkLimits
from core.domain.sandbox_records import SandboxRecord, SandboxRecords
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from sandbox.client.connection import Connection
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
from sandbox.modal.config import BORN_TAG, LOSS_TAG, ModalConfig, sandbox_name
from sandbox.modal.lifecycle import ModalLifecycle, find_orphaned_sandboxes
from sandbox.modal.running_sandbox import ModalRunningSandbox, connect_program
from sandbox.modal.snapshots import ModalSnapshots, retry_not_found
from sandbox.running_sandboxes import NOT_STARTED, RunningSandbox, RunningSandboxes, check_thread_id

log = logging.getLogger(__name__)

LINK = Failpoint("modal.link")
LINK_SECONDS = 20.0
QUERY = "_modal_connect_token"


async def find_modal_url(machine: RunningSandbox, port: int) -> str | None:
    """Returns an address of the port with a token that admits anyone who has it, or None (logged) if Modal gives none.

    The first answer sets the token as a cookie, so that a page's own requests are admitted too
    (https://modal.com/docs/guide/sandbox-networking)."""
    if not isinstance(machine, ModalRunningSandbox):
        return None
    try:
        async with asyncio.timeout(LINK_SECONDS):
            with LINK:
                given = await machine.sandbox.create_connect_token.aio(port=port)
    except SDK_ERRORS as error:
        hint = describe_sdk_error(error)[1]
        log.warning("Modal gives no address to port %d of a sandbox: %s (%s)", port, hint, error)
        return None
    return str(URL(given.url).with_query({QUERY: given.token}))


IMAGE_IS_MADE = "The image that sandboxes start from is being built; the first time, this takes some minutes."
STILL_STARTING = "The sandbox is still starting, which takes unusually long. Try again in a minute: it goes on."
STILL_ENDING = "The files of the sandbox that ended are still being saved. Try again in a minute."
FORGOTTEN = "This conversation was deleted and no longer has a sandbox."
LOSSES = {
    "processes": "The sandbox ended unexpectedly. A new one has started with all files as they were; running "
    "processes were lost.",
    "all": "The sandbox ended before its files were saved. A fresh, empty one has started: create again what is "
    "still needed.",
    "some": "The sandbox ended unexpectedly. A fresh one has started with the files as they were last saved; later "
    "changes and running processes were lost.",
    "expired": "The saved files of this conversation have expired. A fresh, empty sandbox has started: create again "
    "what is still needed.",
}
"""What the thread's next run is told, by the tag of the new sandbox, which other processes can read."""
TOLD = "told"

CREATE = Failpoint("modal.create")
TERMINATE = Failpoint("modal.terminate")
PROBE_SECONDS = 20.0
END_SECONDS = 90.0
CLOSE_SECONDS = 10.0
ATTEMPTS = 4
JOINS = 2


class ModalNetwork:
    """Satisfies `sandbox.client.sandbox_client.Network`: Modal neither limits connections nor says what was fetched."""

    has_fetched = True

    def store_limits(self, limits: NetworkLimits) -> None:
        """Does nothing."""

    def take_refused_hosts(self) -> tuple[str, ...]:
        return ()


class ModalSandboxProvider:
    """Satisfies `core.ports.SandboxProvider`. `now` returns Unix time in seconds."""

    def __init__(self, plan: ModalConfig, records: SandboxRecords, *, now: Callable[[], float] = time.time) -> None:
        self._plan = plan
        self._now = now
        self._account = ModalAccount(plan.app)
        self._snapshots = ModalSnapshots(self._account, records, plan, now)
        has_network = not plan.network().is_blocked  # a sandbox without a network cannot be reached
        network = ModalNetwork() if plan.egress else None
        self._machines = RunningSandboxes(
            self._start, link=find_modal_url if has_network else None, network=lambda _thread_id: network
        )
        self._losses: dict[str, str] = {}
        self._being_destroyed: set[str] = set()
        self._save_tasks: set[asyncio.Task[None]] = set()
        self._image_task: asyncio.Task[None] | None = None
        self._unfinished: dict[str, str] = {}
        self._is_closing = False
        self.background_jobs = ModalLifecycle(self._machines, self._snapshots, plan, now, self._stop_abandoned)

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
            return ProbeResult(ok=False, reason=f"{describe_sdk_error(error)[1]}.", remedy=str(error)[:300])
        return ProbeResult(ok=True)

    def start_background_work(self) -> None:
        """Starts the image build and the jobs that stop abandoned sandboxes. Does nothing in a Modal function, where
        most sandboxes already exist and a janitor stops them."""
        if self._plan.is_left_running:
            return
        self.background_jobs.start()
        self._image_task = self._image_task or spawn(self._build_image(), name="build the image of sandboxes")

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """Raises SandboxReplaced once if files were lost; the next call succeeds."""
        client = await self._machines.open(thread_id, fence=fence)
        self.background_jobs.record_use(thread_id)
        self.background_jobs.start()
        if fence and thread_id in self._losses:
            machine, tags = self._machines.find(thread_id), dict[str, str]()
            if isinstance(machine, ModalRunningSandbox):
                try:
                    tags = await machine.sandbox.get_tags.aio()
                    await machine.sandbox.set_tags.aio({**tags, LOSS_TAG: TOLD})
                except SDK_ERRORS as error:
                    log.info("the loss of thread %s may be told twice: %s", thread_id, error)
            loss = self._losses.pop(thread_id, None)
            if loss is not None and tags.get(LOSS_TAG) != TOLD:
                raise SandboxReplaced(LOSSES[loss], detail=f"thread {thread_id}")
        return client

    def release(self, thread_id: str) -> None:
        """Saves the files in the background after a run has ended."""
        if self._machines.find(thread_id) is not None:
            self._in_background(self._save(thread_id), f"save the sandbox of {thread_id}")

    async def destroy(self, thread_id: str) -> None:
        check_thread_id(thread_id)
        self._being_destroyed.add(thread_id)
        try:
            await self._machines.stop(thread_id)
            async with asyncio.timeout(END_SECONDS):
                found = await self._account.running_sandboxes(self._plan.tags(thread_id))
                if record := await self._snapshots.find_record(thread_id):
                    found += filter(None, [await self._find_running(record.provider_ref)])
                its_sandboxes = {one.object_id: one for one in found}
                for sandbox in its_sandboxes.values():
                    await self._terminate(sandbox)
                await self._snapshots.delete_thread(thread_id, set(its_sandboxes))
        except SDK_ERRORS as error:
            raise self._unavailable(error, "delete a sandbox") from error
        finally:
            self._being_destroyed.discard(thread_id)
            self._losses.pop(thread_id, None)

    async def close(self) -> None:
        self._is_closing = True
        await self.background_jobs.close()
        if self._image_task is not None:
            await cancel(self._image_task)
        if self._plan.is_left_running and self._save_tasks:
            await asyncio.wait(self._save_tasks, timeout=self._plan.snapshot_seconds)
        await cancel(*self._save_tasks)  # stopping the sandbox saves it too
        await self._machines.close()
        await self._account.close()

    async def wait_for_saves(self) -> None:
        while self._save_tasks:
            await asyncio.wait(self._save_tasks)

    def _in_background(self, work: Coroutine[object, object, None], name: str) -> None:
        task = spawn(work, name=name)
        self._save_tasks.add(task)
        task.add_done_callback(self._save_tasks.discard)

    async def _build_image(self) -> None:
        try:
            await self._account.image()
        except SDK_ERRORS as error:
            log.warning("the image of sandboxes was not built: %s (%s)", describe_sdk_error(error)[1], error)

    async def _save(self, thread_id: str) -> None:
        machine = self._machines.find(thread_id)
        if not isinstance(machine, ModalRunningSandbox):
            return
        try:
            await self._snapshots.save(thread_id, machine.sandbox, "started")
        except (*SDK_ERRORS, StorageUnavailable) as error:
            log.warning("the sandbox of thread %s was not saved: %s", thread_id, error)

    async def _start(self, thread_id: str) -> ModalRunningSandbox:
        """Returns a sandbox that has sent its hello. Creating it, starting the program inside and its hello share
        `start_seconds`. A sandbox that takes longer continues to start, and the next call joins it."""
        try:
            async with asyncio.timeout(self._plan.start_seconds):
                for attempt in range(1, ATTEMPTS + 1):
                    record = await self._snapshots.find_record(thread_id)
                    if record is not None and record.state == "started":
                        machine, sandbox = await self._join(thread_id, record)
                        if machine:
                            return machine
                        before, record = record, await self._recover(record, sandbox)
                        if record and record.state == "started" and record != before:
                            continue  # another worker has started the next one
                    image = await self._image_of(thread_id, record)
                    sandbox = image and await self._create(thread_id, image, record, attempt)
                    machine = sandbox and await self._connect(thread_id, sandbox, record)
                    if machine:
                        return machine
                raise SandboxUnavailable(NOT_STARTED, detail=f"{ATTEMPTS} sandboxes of {thread_id} ended")
        except TimeoutError as error:
            if self._account.is_building:
                raise SandboxUnavailable(IMAGE_IS_MADE, detail="Modal builds the image") from error
            if told := self._unfinished.get(thread_id):
                detail = f"thread {thread_id}, after {self._plan.start_seconds:.0f} s"
                raise SandboxUnavailable(told, detail=detail) from error
            raise self._unavailable(error, "start a sandbox") from error
        except SDK_ERRORS as error:
            raise self._unavailable(error, "start a sandbox") from error
        finally:
            self._unfinished.pop(thread_id, None)

    async def _join(
        self, thread_id: str, record: SandboxRecord
    ) -> tuple[ModalRunningSandbox | None, modal.Sandbox | None]:
        """Connects to the thread's sandbox. Tries again after a temporary failure, because others may use the
        sandbox."""
        sandbox = None
        for _ in range(JOINS):
            sandbox = await self._find_running(record.provider_ref)
            machine = sandbox and await self._connect(thread_id, sandbox, record)
            if machine or not sandbox:
                return machine, sandbox
        return None, sandbox

    async def _find_running(self, sandbox_id: str) -> modal.Sandbox | None:
        client = await self._account.client()
        found = await retry_not_found(lambda: modal.Sandbox.from_id.aio(sandbox_id, client=client))
        return found if found and found.returncode is None else None

    async def _recover(self, record: SandboxRecord, sandbox: modal.Sandbox | None) -> SandboxRecord | None:
        """Returns the record of a thread whose sandbox has ended without being saved by us, with the files that Modal
        saved then. Notes for the thread's next run what was lost."""
        thread_id = record.thread_id
        if (newest := await self._snapshots.find_record(thread_id)) != record:
            return newest
        self._unfinished[thread_id] = STILL_ENDING
        if sandbox is not None:
            await self._terminate(sandbox)
        is_kept = await self._snapshots.record_exit_snapshot(record, seconds=END_SECONDS, has_ended=sandbox is None)
        self._unfinished.pop(thread_id, None)
        newest = await self._snapshots.find_record(thread_id)
        if not is_kept and newest == record:
            self._losses[thread_id] = "some" if record.snapshot_ref else "all"
        idle_seconds = self._now() - record.last_used_at.timestamp()
        if is_kept and idle_seconds < self._plan.idle_timeout_seconds:
            # otherwise Modal may have ended it because it was idle, and no running work was lost
            self._losses.setdefault(thread_id, "processes")
        return newest

    async def _image_of(self, thread_id: str, record: SandboxRecord | None) -> modal.Image | None:
        """Returns the thread's saved image, or the base image if there is none. Returns None if the record is
        outdated."""
        if record is None or record.snapshot_ref is None:
            return await self._account.image()
        saved = await self._snapshots.find_saved_image(record.snapshot_ref)
        if saved is not None:
            return saved
        if await self._snapshots.find_record(thread_id) != record:
            return None
        log.warning("the snapshot of thread %s is gone: %s", thread_id, record.snapshot_ref)
        self._losses[thread_id] = "expired"
        return await self._account.image()

    async def _create(
        self, thread_id: str, image: modal.Image, record: SandboxRecord | None, attempt: int
    ) -> modal.Sandbox | None:
        """Returns the new sandbox, or the one that another worker or an earlier call has created. Looks the app up
        again if Modal no longer has it."""
        after = record.provider_ref if record else ""
        name = sandbox_name(thread_id, after=after, attempt=attempt)
        try:
            return await self._create_named(thread_id, image, name)
        except modal.exception.AlreadyExistsError:
            found, client = modal.Sandbox.from_name.aio, await self._account.client()
            return await retry_not_found(lambda: found(self._account.app_name, name, client=client))
        except GONE as error:
            log.info("Modal no longer knows the app or the image: %s", error)
            self._account.drop_cache()
            if record is None or image.object_id != record.snapshot_ref:
                image = await self._account.image()
            return await self._create_named(thread_id, image, name)

    async def _create_named(self, thread_id: str, image: modal.Image, name: str) -> modal.Sandbox:
        plan, network = self._plan, self._plan.network()
        app, client = await self._account.app(), await self._account.client()
        loss = self._losses.get(thread_id, "none")
        with CREATE:
            return await modal.Sandbox.create.aio(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
                app=app,
                image=image,
                name=name,
                tags={**plan.tags(thread_id), BORN_TAG: f"{self._now():.0f}", LOSS_TAG: loss},
                timeout=int(plan.lifecycle_policy.lifetime_seconds),
                idle_timeout=plan.idle_timeout_seconds,
                cpu=plan.cpu,
                memory=plan.memory_mebibytes,
                block_network=network.is_blocked,
                outbound_cidr_allowlist=network.networks,
                outbound_domain_allowlist=network.names,
                experimental_options={"enable_exit_snapshot": True},
                client=client,
            )

    async def _connect(
        self, thread_id: str, sandbox: modal.Sandbox, record: SandboxRecord | None
    ) -> ModalRunningSandbox | None:
        """Records the sandbox as started once its program has said hello. Returns None if the sandbox has ended, or the
        thread has a newer one. A new sandbox is then terminated."""
        is_joined = record is not None and record.provider_ref == sandbox.object_id
        connection = await self._greet(thread_id, sandbox, is_joined=is_joined)
        is_recorded = False
        try:
            tags = await sandbox.get_tags.aio() if is_joined and connection else {}
            if (loss := tags.get(LOSS_TAG, "")) in LOSSES:
                self._losses[thread_id] = loss
            is_recorded = connection and await self._record_started(thread_id, sandbox, record)
        finally:
            if connection and not is_recorded:
                await connection.close()
        if connection is None or not is_recorded:
            if not is_joined:
                await self._discard(thread_id, sandbox)
            return None
        return ModalRunningSandbox(
            sandbox,
            connection,
            thread_id=thread_id,
            created_at=float(tags.get(BORN_TAG) or self._now()),
            on_stop=self._save_and_terminate,
        )

    async def _greet(self, thread_id: str, sandbox: modal.Sandbox, *, is_joined: bool) -> Connection | None:
        """Connects to the sandbox. Returns None if it has ended. Cancelling the caller does not stop the sandbox, and a
        failed call ends only a new one: another worker may use one that is joined."""
        self._unfinished[thread_id] = STILL_STARTING
        try:
            connection = await connect_program(sandbox, self._plan, label=thread_id)
            try:  # the caller gives up earlier
                await connection.wait_for_hello(2 * self._plan.start_seconds)
                if (proxy := self._plan.browser_proxy) is not None:
                    await connection.call(
                        "browser_proxy", proxy=proxy.url, proxy_user=proxy.user, proxy_password=proxy.password
                    )
            except BaseException:
                await connection.close()
                raise
            return connection
        except (*GONE, SandboxUnavailable) as error:
            log.info("the sandbox %s of thread %s ended: %s", sandbox.object_id, thread_id, error)
            return None
        except SDK_ERRORS:
            if not is_joined:
                await self._discard(thread_id, sandbox)
            raise

    async def _record_started(self, thread_id: str, sandbox: modal.Sandbox, record: SandboxRecord | None) -> bool:
        """Records the sandbox as started. Returns False if the thread's record names another sandbox."""
        its_id = sandbox.object_id
        if record is not None and (record.provider_ref, record.state) == (its_id, "started"):
            await self._snapshots.record_use(thread_id, self._now())
            return True
        if await self._snapshots.record_started(thread_id, its_id, expected=record):
            if record is not None and record.state == "stopped":
                self._end_in_background(thread_id, record.provider_ref)
            return True
        newest = await self._snapshots.find_record(thread_id)
        if newest is None:
            await self._discard(thread_id, sandbox)
            raise SandboxUnavailable(FORGOTTEN, detail=f"no record for thread {thread_id}")
        return (newest.provider_ref, newest.state) == (its_id, "started")

    async def _discard(self, thread_id: str, sandbox: modal.Sandbox) -> None:
        """Terminates a sandbox that is not the thread's."""
        await self._terminate(sandbox)
        self._end_in_background(thread_id, sandbox.object_id)

    def _end_in_background(self, thread_id: str, sandbox_id: str) -> None:
        self._in_background(self._end(thread_id, sandbox_id), f"end the sandbox {sandbox_id}")

    async def _end(self, thread_id: str, sandbox_id: str) -> None:
        """Ends a sandbox for good, of which Modal need not keep files: its process may have died before its end."""
        try:
            sandbox = await self._find_running(sandbox_id)
            if sandbox is not None:
                await self._terminate(sandbox)
            await self._snapshots.delete_exit_snapshot(thread_id, sandbox_id, seconds=END_SECONDS)
        except (*SDK_ERRORS, StorageUnavailable) as error:
            log.info("the sandbox %s was not cleaned up: %s", sandbox_id, error)

    async def _save_and_terminate(self, machine: ModalRunningSandbox, was_lost: bool) -> None:
        """Saves and terminates the sandbox, unless only the connection was lost: another worker may use it, so the next
        opener decides. A sandbox that cannot be saved is left to the background jobs or to Modal's own timeout."""
        thread_id = machine.thread_id
        is_destroyed = thread_id in self._being_destroyed
        if was_lost or (self._is_closing and self._plan.is_left_running and not is_destroyed):
            return
        try:
            if is_destroyed or await self._snapshots.save(thread_id, machine.sandbox, "stopped"):
                await self._terminate(machine.sandbox)
        except (*SDK_ERRORS, StorageUnavailable) as error:
            log.warning("the sandbox of thread %s was not stopped: %s", thread_id, error)

    async def terminate_orphans(self) -> int:
        """Terminates sandboxes of this home without a record, if they are old enough to have one. Returns how many
        ended. Builds the image if it is missing. Raises the SDK's errors, StorageUnavailable."""
        left = await find_orphaned_sandboxes(self._account, self._snapshots, self._plan.home, self._now())
        endings = (self._discard(thread_id, sandbox) for thread_id, sandbox in left)
        outcomes = await asyncio.gather(*endings, return_exceptions=True)
        for error in filter(None, outcomes):
            log.warning("a sandbox without a record was not ended: %s", error)
        await self.wait_for_saves()
        await self._account.image()
        return outcomes.count(None)

    async def _stop_abandoned(self, record: SandboxRecord) -> bool:
        """Saves and terminates a sandbox whose worker is gone. Returns False if it ended and left no files.

        Raises the SDK's errors."""
        sandbox = await self._find_running(record.provider_ref)
        try:
            if sandbox is not None:
                if await self._snapshots.save(record.thread_id, sandbox, "stopped", unused=record):
                    await self._terminate(sandbox)
                return True
        except GONE as error:
            log.info("the sandbox %s is ending: %s", record.provider_ref, error)
        return await self._snapshots.record_exit_snapshot(record, seconds=END_SECONDS, has_ended=sandbox is None)

    async def _terminate(self, sandbox: modal.Sandbox) -> None:
        try:
            with TERMINATE:
                await sandbox.terminate.aio()
        except GONE as error:
            log.debug("the sandbox %s had ended: %s", sandbox.object_id, error)

    def _unavailable(self, error: Exception, doing: str) -> SandboxUnavailable:
        failure = unavailable_from_sdk_error(error, doing=doing)
        if str(failure) in FOR_OPERATOR:
            log.error("%s", failure.detail)
        return failure
