"""The docker provider: one hardened container without network per thread, with its files in a volume."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from sandbox.client.connection import Connection
from sandbox.client.sandbox_client import SandboxClient
from sandbox.docker.cli import AttachedProcess, DockerCli, DockerCommands, DockerResult
from sandbox.idle_sandboxes import IdleSandboxes
from sandbox.installed import find_names
from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.local.probe import ProbeResult
from sandbox.local.shared_access import SharedAccess
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.packed_program import packed_program
from sandbox.running_sandboxes import NOT_STARTED, RunningSandbox, RunningSandboxes, check_thread_id, usable_cores

START = Failpoint("docker.start")
REMOVE = Failpoint("docker.remove")
COMMAND_SECONDS = 60.0
STOP_SECONDS = 10.0
SILENCE_SECONDS = 24 * 3600
DEFAULT_LIFECYCLE = LifecyclePolicy()
NOT_DELETED = "The files of this conversation could not be deleted. Try again in a minute."

log = logging.getLogger(__name__)


class DockerSandboxProvider:
    """Satisfies `core.ports.SandboxProvider`. `folder` holds the locks of the threads."""

    def __init__(
        self,
        plan: DockerCommands,
        folder: Path,
        *,
        docker: DockerCli | None = None,
        lifecycle_policy: LifecyclePolicy = DEFAULT_LIFECYCLE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._docker = docker or DockerCli()
        folder = folder.absolute()
        self._workspaces = Workspaces(folder / "docker-threads", drops_user=False)
        self._machines = RunningSandboxes(self._start, self._on_lost, starts_at_once=usable_cores())
        self._shared_access = SharedAccess(folder / "doors", self._workspaces, self._machines)
        self.lifecycle = IdleSandboxes(self._machines, self._workspaces, lifecycle_policy, now)

    @property
    def name(self) -> str:
        return "docker"

    async def probe(self) -> ProbeResult:
        """Runs a container with all the flags once."""
        try:
            version = await self._run(["version", "--format", "{{.Server.Version}}"])
            if version.exit_code != 0:
                return ProbeResult(
                    ok=False,
                    reason=f"The docker engine does not answer: {version.error_line}.",
                    remedy="Start it, and let this user use it.",
                )
            image = self._plan.image
            found = await self._run(["image", "inspect", "--format", "{{.Id}}", image])
            if found.exit_code != 0:
                return ProbeResult(
                    ok=False, reason=f"The image {image} is not there.", remedy=f"Run: docker pull {image}"
                )
            tried = await self._run(self._plan.trial_run())
        except FileNotFoundError:
            return ProbeResult(ok=False, reason="docker is not installed.", remedy="Install it.")
        except (OSError, TimeoutError) as error:
            return ProbeResult(ok=False, reason=f"docker does not answer: {error!r}.", remedy="Restart its engine.")
        if tried.exit_code != 0:
            return ProbeResult(
                ok=False,
                reason=f"A container with all the flags does not run: {tried.error_line}.",
                remedy="Set THREADHAND_DOCKER_IMAGE to one with bash and Python 3.9 or newer.",
            )
        return ProbeResult(ok=True, installed=find_names(tried.stderr))

    async def start_background_work(self) -> None:
        """Removes containers left by killed processes and starts stopping idle ones. Raises OSError, TimeoutError."""
        listed = await self._run(self._plan.list_thread_ids())
        for thread_id in listed.output.split():
            try:
                check_thread_id(thread_id)
                self._workspaces.prepare()
                self._workspaces.acquire(thread_id).close()
            except (SandboxUnavailable, OSError):
                continue
            await self.remove_container(thread_id)
        self.lifecycle.start()

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        sandbox = await self._shared_access.open(thread_id, fence=fence)
        self.lifecycle.record_use(thread_id)
        if fence:
            self.lifecycle.raise_pending_notice(thread_id)
        return sandbox

    def release(self, thread_id: str) -> None:
        self._machines.release(thread_id)  # its files are saved as they are written

    async def destroy(self, thread_id: str) -> None:
        await self._shared_access.stop(thread_id)
        with REMOVE:
            for command in (self._plan.stop(thread_id), self._plan.forget(thread_id)):
                await self._run_checked(command, NOT_DELETED)
        await asyncio.to_thread(self._workspaces.delete, thread_id)

    async def close(self) -> None:
        await self.lifecycle.close()
        await self._shared_access.close()

    async def remove_container(self, thread_id: str) -> None:
        """Logs a container that cannot be removed; the next start of the thread tries again."""
        try:
            with REMOVE:
                done = await self._run(self._plan.stop(thread_id))
        except (OSError, TimeoutError) as error:
            log.warning("the container of thread %s was not removed: %s", thread_id, error)
            return
        if not done.is_success:
            log.warning("the container of thread %s stays: %s", thread_id, done.error_line)

    async def _start(self, thread_id: str) -> RunningSandbox:
        with START:
            return await self._shared_access.start(thread_id, partial(self._start_container, thread_id), NOT_STARTED)

    async def _start_container(self, thread_id: str, workspace: Workspace) -> "_RunningContainer":
        plan = self._plan
        await self.remove_container(thread_id)  # may be left by a killed process
        for command in (plan.create_volume(thread_id), plan.chown_volume(thread_id), plan.start(thread_id)):
            await self._run_checked(command, NOT_STARTED)
        packed = await asyncio.to_thread(packed_program)
        command = packed.command(
            {
                "limits": plan.rlimits(),
                "command_seconds_max": plan.limits.command_seconds,
                "silence_seconds_max": SILENCE_SECONDS,
            }
        )
        try:
            attached = await self._docker.open(plan.enter(thread_id, command))
        except OSError as error:
            await self.remove_container(thread_id)
            raise SandboxUnavailable(NOT_STARTED, detail=f"docker: {error}") from error
        attached.writer.write(packed.content)
        workspace.record_process(attached.process.pid)
        connection = Connection(attached.reader, attached.writer, label=thread_id)
        return _RunningContainer(self, thread_id, attached, connection, workspace)

    def _on_lost(self, thread_id: str, machine: RunningSandbox) -> None:
        self.lifecycle.note_unexpected_end(thread_id, machine)

    async def _run_checked(self, command: list[str], public_message: str) -> None:
        try:
            done = await self._run(command)
        except (OSError, TimeoutError) as error:
            raise SandboxUnavailable(public_message, detail=f"docker: {error!r}") from error
        if not done.is_success:
            raise SandboxUnavailable(public_message, detail=f"docker {command[0]}: {done.error_line}")

    async def _run(self, command: list[str]) -> DockerResult:
        return await self._docker.run(command, seconds=COMMAND_SECONDS)


@dataclass(eq=False)
class _RunningContainer:
    """Satisfies `sandbox.running_sandboxes.RunningSandbox`."""

    provider: DockerSandboxProvider
    thread_id: str
    attached: AttachedProcess
    connection: Connection
    workspace: Workspace
    is_stopped: bool = False
    is_remote: bool = False

    async def on_hello(self) -> None:
        return

    async def stop(self) -> None:
        """Removing the container ends all its processes."""
        if self.is_stopped:
            return
        self.is_stopped = True
        try:
            await self.connection.close()
            await self.provider.remove_container(self.thread_id)
            await self.attached.wait_or_kill(STOP_SECONDS)
        finally:
            self.workspace.close()
