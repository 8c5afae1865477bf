"""The docker provider: its exact command lines, its life on a stand-in of the command line, and what it says is wrong.

What the flags really hold is tried by the contract suite where there is an engine.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.domain.errors import SandboxUnavailable
from sandbox.docker.cli import DockerCli, DockerCommands
from sandbox.docker.provider import DockerSandboxProvider
from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.limits import SandboxLimits
from tests.paths import FAKES
from tests.support.sandboxes import content, pieces, reachable_folder, run
from tests.support.waiting import until

FAKE = FAKES / "docker_cli.py"
PLAN = DockerCommands(image="python:3.12-slim", home="/data", limits=SandboxLimits())
NAME = PLAN.name("thread")
HARDENED = [
    "--pull", "never", "--init", "--network", "none", "--ipc", "private", "--hostname", "sandbox",
    "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--pids-limit", "512", "--memory", "2147483648", "--memory-swap", "2147483648", "--cpus", "2",
    "--ulimit", "nofile=4096:4096", "--ulimit", "core=0:0",
    "--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777",
    "--tmpfs", "/home/user:rw,exec,nosuid,nodev,size=268435456,mode=0700,uid=1000,gid=1000",
]  # fmt: skip
MOUNT = ["--mount", f"type=volume,source={NAME},target=/workspace,volume-nocopy"]
LABELS = ["--label", "threadhand.home=/data", "--label", "threadhand.thread=thread"]


@dataclass(slots=True)
class Stage:
    folder: Path
    provider: DockerSandboxProvider
    minutes: float = 0.0

    @property
    def asked(self) -> list[list[str]]:
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def containers(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "running").glob("*"))

    @property
    def volumes(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "volumes").glob("*"))


@asynccontextmanager
async def docker_stage(image: str = "python:3.12-slim") -> AsyncGenerator[Stage]:
    async with reachable_folder() as folder:
        executable = folder / "docker"
        executable.write_text(f"#!{sys.executable}\n" + FAKE.read_text())
        executable.chmod(0o755)
        stages: list[Stage] = []
        provider = DockerSandboxProvider(
            DockerCommands(image=image, home="/data"),
            folder / "data",
            docker=DockerCli(executable=str(executable)),
            lifecycle_policy=LifecyclePolicy(stop_after_seconds=900),
            now=lambda: stages[0].minutes * 60,
        )
        stages.append(Stage(folder, provider))
        try:
            yield stages[0]
        finally:
            await stages[0].provider.close()


def test_the_command_lines_are_these() -> None:
    assert PLAN.start("thread") == [
        "run", "--detach", "--name", NAME, *LABELS, *HARDENED,
        "--env", "PATH=/workspace/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "--env", "HOME=/home/user", "--env", "LANG=C.UTF-8", "--env", "PYTHONUSERBASE=/workspace/.local",
        "--user", "1000:1000", *MOUNT, "--workdir", "/workspace",
        "--entrypoint", "sleep", "python:3.12-slim", "2147483647",
    ]  # fmt: skip
    assert PLAN.create_volume("thread") == ["volume", "create", *LABELS, NAME]
    assert PLAN.chown_volume("thread") == [
        "run", "--rm", *HARDENED, "--cap-add", "CHOWN", "--user", "0:0", *MOUNT,
        "--entrypoint", "chown", "python:3.12-slim", "1000:1000", "/workspace",
    ]  # fmt: skip
    assert PLAN.enter("thread", ["python3", "x"]) == [
        "exec", "--interactive", "--user", "1000:1000", "--workdir", "/workspace", NAME, "python3", "x",
    ]  # fmt: skip
    assert PLAN.stop("thread") == ["rm", "--force", NAME]
    assert PLAN.forget("thread") == ["volume", "rm", "--force", NAME]
    assert PLAN.trial_run()[: len(HARDENED) + 2] == ["run", "--rm", *HARDENED]
    assert PLAN.list_thread_ids()[:4] == ["ps", "--all", "--filter", "label=threadhand.home=/data"]


async def test_a_thread_gets_a_container_whose_files_outlive_it() -> None:
    async with docker_stage() as stage:
        assert (await stage.provider.probe()).ok
        sandbox = await stage.provider.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"kept"))
        assert (await run(sandbox, "cat file")).output == "kept"
        assert stage.containers == [NAME]
        assert [line[:2] for line in stage.asked[3:]] == [
            ["rm", "--force"], ["volume", "create"], ["run", "--rm"], ["run", "--detach"], ["exec", "--interactive"],
        ]  # fmt: skip
        await sandbox.close()
        assert stage.containers == []
        again = await stage.provider.open("thread", fence=2)
        assert await content(again, "file") == b"kept"
        await stage.provider.destroy("thread")
        assert (stage.containers, stage.volumes) == ([], [])


async def test_an_idle_container_is_stopped_and_a_busy_one_not() -> None:
    async with docker_stage() as stage:
        sandbox = await stage.provider.open("thread", fence=1)
        working = asyncio.ensure_future(run(sandbox, "read x"))
        await run(sandbox, "true", session="other")
        stage.minutes = 60
        await stage.provider.lifecycle.run_once()
        assert stage.containers == [NAME]
        await sandbox.shell.type_text("main", "\n")
        await working
        stage.minutes += 14
        await stage.provider.lifecycle.run_once()
        assert stage.containers == [NAME]
        stage.minutes += 2
        await stage.provider.lifecycle.run_once()
        assert stage.containers == []


async def test_a_container_that_ended_alone_is_told_to_the_next_run_once() -> None:
    async with docker_stage() as stage:
        sandbox = await stage.provider.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"kept"))
        pids = stage.folder / f"pids-{NAME}"
        await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        (pid,) = pids.read_text().split()
        os.killpg(int(pid), signal.SIGKILL)
        (machine,) = stage.provider._machines._running.values()
        await until(lambda: machine.connection.is_lost)
        with pytest.raises(SandboxUnavailable, match="ended unexpectedly"):
            await stage.provider.open("thread", fence=2)
        fresh = await stage.provider.open("thread", fence=2)
        assert await content(fresh, "file") == b"kept"


async def test_what_a_killed_process_left_is_removed() -> None:
    async with docker_stage() as stage:
        (stage.folder / "running").mkdir()
        (stage.folder / "running" / NAME).write_text("thread")
        (stage.folder / "running" / "strange").write_text("../..")
        await stage.provider.start_background_work()
        assert stage.containers == ["strange"]
        (stage.folder / "running" / NAME).write_text("thread")
        sandbox = await stage.provider.open("thread", fence=1)
        assert (await run(sandbox, "echo on")).output == "on\n"


async def test_an_engine_that_goes_away_is_told_plainly() -> None:
    async with docker_stage() as stage:
        (stage.folder / "down").touch()
        with pytest.raises(SandboxUnavailable, match="could not be started") as caught:
            await stage.provider.open("thread", fence=1)
        assert "Cannot connect" in caught.value.detail
        with pytest.raises(SandboxUnavailable, match="could not be deleted"):
            await stage.provider.destroy("thread")
        (stage.folder / "down").unlink()
        assert (await run(await stage.provider.open("thread", fence=1), "echo on")).output == "on\n"


@pytest.mark.parametrize(
    ("image", "reason", "remedy"),
    [
        ("missing", "The image missing is not there", "docker pull missing"),
        ("broken", "bash: not found", "DOCKER_IMAGE"),
    ],
)
async def test_an_image_that_does_not_do_is_told_with_a_remedy(image: str, reason: str, remedy: str) -> None:
    async with docker_stage(image) as stage:
        result = await stage.provider.probe()
        assert not result.ok
        assert reason in result.reason
        assert remedy in result.remedy


async def test_no_engine_and_no_docker_are_told_with_a_remedy() -> None:
    async with docker_stage() as stage:
        (stage.folder / "down").touch()
        result = await stage.provider.probe()
        assert (result.ok, "does not answer" in result.reason) == (False, True)
        (stage.folder / "docker").unlink()
        result = await stage.provider.probe()
        assert (result.ok, result.reason) == (False, "docker is not installed.")
