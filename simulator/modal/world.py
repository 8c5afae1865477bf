"""The state of the simulated Modal: apps, images, sandboxes, secrets, and the clock that their lives follow."""

import asyncio
import base64
import json
import random
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from simulator.modal.calls import FunctionCalls
from simulator.modal.container import Command, Container, Jail, copied
from simulator.modal.links import Link
from simulator.serving import cancel, spawn

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LIFETIME_SECONDS_MAX = 24 * 3600
ANSWER_SECONDS = 3600.0
ENDED = api_pb2.GenericResult.GENERIC_STATUS_TERMINATED
BROKEN = api_pb2.GenericResult.GENERIC_STATUS_INTERNAL_FAILURE
NO_ROOM = "the workspace's limit is reached"


def new_id(prefix: str, length: int = 22) -> str:
    """Returns a random id. Sandbox ids need more than 22 letters, or the SDK treats them as V1 sandboxes."""
    return f"{prefix}-" + "".join(secrets.choice(LETTERS) for _ in range(length))


def token(seconds: float) -> str:
    """Returns an unsigned JWT that expires. Nobody checks a signature."""
    parts = [{"alg": "none"}, {"exp": time.time() + seconds, "jti": secrets.token_hex(6)}]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return ".".join([*(part.decode() for part in coded), "none"])


@dataclass(slots=True, kw_only=True)
class Pace:
    """How long a sandbox takes to end after a terminate, and from its creation to the first command. `scale` converts
    these to real seconds. The same seed gives the same delays."""

    end_seconds: tuple[float, float] = (0.2, 35.0)
    start_seconds: tuple[float, float] = (0.0, 0.0)
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def draw(self, between: tuple[float, float]) -> float:
        return self._random.uniform(*between) * self.scale

    _random: random.Random = field(init=False, repr=False)


@dataclass(slots=True, kw_only=True)
class SimulatedImage:
    """`folder` is a copy of a file system, or None if the image has only `layers`, which are recorded but not built."""

    image_id: str
    layers: tuple[str, ...] = ()
    folder: Path | None = None
    expires_at: float | None = None
    is_exit_snapshot: bool = False


@dataclass(slots=True, kw_only=True)
class SimulatedSandbox:
    sandbox_id: str
    task_id: str
    app_id: str
    definition: api_pb2.Sandbox
    container: Container
    environment: dict[str, str]
    tags: dict[str, str]
    created_at: float
    last_active_at: float
    router_tokens: list[str]
    commands: dict[str, Command] = field(default_factory=dict[str, Command])
    result: api_pb2.GenericResult | None = None
    is_ending: bool = False
    exit_image_id: str = ""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    links: dict[int, Link] = field(default_factory=dict[int, Link])

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def has_exit_snapshot(self) -> bool:
        return self.definition.experimental_options_v2.get("enable_exit_snapshot") == "True"

    @property
    def is_busy(self) -> bool:
        return any(command.code is None for command in self.commands.values())


class World:
    """The state of one simulated account. `url` and `router_url` are set once the servers listen."""

    def __init__(self, folder: Path, jail: Jail | None, pace: Pace) -> None:
        self._folder = folder
        self._jail = jail
        self._waits: set[asyncio.Task[None]] = set()
        self.pace = pace
        self._ahead_seconds = 0.0
        self.credentials: tuple[str, str] = ("ak-simulated", "as-simulated")
        self.url = ""
        self.router_url = ""
        self.router_token_seconds = ANSWER_SECONDS
        self.sandboxes_max: int | None = None
        self.refusal: str = NO_ROOM
        self.failing_builds = 0
        self.pending_exit_snapshots = False
        self.apps: dict[str, str] = {}
        self.deployed: dict[str, list[api_pb2.FunctionCreateRequest]] = {}
        self.mounted_files: set[str] = set()
        self.published: set[str] = set()
        self.function_calls = FunctionCalls(folder / "calls")
        self.images: dict[str, SimulatedImage] = {}
        self.sandboxes: dict[str, SimulatedSandbox] = {}
        self.secrets: dict[str, dict[str, str]] = {}

    def now(self) -> float:
        return time.time() + self._ahead_seconds

    async def advance(self, seconds: float) -> None:
        """Advances the clock and ends the sandboxes that have reached a timeout."""
        self._ahead_seconds += seconds
        await self.end_expired()

    async def end_expired(self) -> None:
        result = api_pb2.GenericResult
        for sandbox in self.living():
            definition = sandbox.definition
            if sandbox.is_busy:
                sandbox.last_active_at = self.now()
            if self.now() - sandbox.created_at >= definition.timeout_secs:
                await self.end(sandbox, result(status=result.GENERIC_STATUS_TIMEOUT))
            elif (
                definition.HasField("idle_timeout_secs")
                and self.now() - sandbox.last_active_at >= definition.idle_timeout_secs
            ):
                await self.end(sandbox, result(status=result.GENERIC_STATUS_IDLE_TIMEOUT))

    def living(self) -> list[SimulatedSandbox]:
        """Returns the sandboxes that have not ended and are not ending."""
        return [one for one in self.sandboxes.values() if one.result is None and not one.is_ending]

    def sandbox(self, sandbox_id: str) -> SimulatedSandbox:
        """Raises GRPCError."""
        found = self.sandboxes.get(sandbox_id)
        if found is None:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox {sandbox_id} not found")
        return found

    def of_task(self, task_id: str) -> SimulatedSandbox | None:
        return next((one for one in self.sandboxes.values() if one.task_id == task_id), None)

    def named(self, app_id: str, name: str, *, with_ended: bool = False) -> SimulatedSandbox | None:
        """Returns the newest sandbox with this name, or None. Ended ones count only if `with_ended`."""
        found = (
            one
            for one in reversed(self.sandboxes.values())
            if (one.app_id, one.name) == (app_id, name) and (with_ended or one.result is None)
        )
        return next(found, None)

    def image(self, image_id: str) -> SimulatedImage:
        """Raises GRPCError if the image is unknown, deleted or expired."""
        found = self.images.get(image_id)
        is_old = found and found.expires_at is not None and self.now() >= found.expires_at
        if found is None or is_old:
            raise GRPCError(Status.NOT_FOUND, f"Image {image_id} not found")
        return found

    async def create(self, request: api_pb2.SandboxCreateV2Request, environment: Mapping[str, str]) -> SimulatedSandbox:
        """Raises GRPCError."""
        definition = request.definition
        image = self._acceptable(request)
        sandbox_id = new_id("sb", 25)
        root = self._folder / "sandboxes" / sandbox_id
        sandbox = SimulatedSandbox(
            sandbox_id=sandbox_id,
            task_id=new_id("ta"),
            app_id=request.app_id,
            definition=definition,
            container=Container(
                root,
                self._jail,
                has_network=definition.network_access.network_access_type != api_pb2.NetworkAccess.BLOCKED,
            ),
            environment=dict(environment),
            tags={tag.tag_name: tag.tag_value for tag in request.tags},
            created_at=self.now(),
            last_active_at=self.now(),
            router_tokens=[],
        )
        self.sandboxes[sandbox_id] = sandbox  # reserves the name during the awaits below
        try:
            if image.folder is not None:
                await copied(image.folder, root)
            sandbox.container.start()
        except OSError as error:
            del self.sandboxes[sandbox_id]
            raise GRPCError(Status.INTERNAL, f"the container does not start: {error}") from error
        self._later(self.pace.draw(self.pace.start_seconds), sandbox.started.set)
        return sandbox

    def _later(self, seconds: float, done: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            done()

        waiting = spawn(wait(), name="the pace of the simulated Modal")
        self._waits.add(waiting)
        waiting.add_done_callback(self._waits.discard)

    def _acceptable(self, request: api_pb2.SandboxCreateV2Request) -> SimulatedImage:
        definition = request.definition
        if request.app_id not in self.apps.values():
            raise GRPCError(Status.NOT_FOUND, f"App {request.app_id} not found")
        if definition.name and self.named(request.app_id, definition.name):
            told = f"Sandbox with name {definition.name!r} already exists"
            raise GRPCError(Status.ALREADY_EXISTS, told)
        if not 0 < definition.timeout_secs <= LIFETIME_SECONDS_MAX:
            raise GRPCError(Status.INVALID_ARGUMENT, "timeout must be at most 24 hours")
        if self.sandboxes_max is not None and len(self.living()) >= self.sandboxes_max:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, self.refusal)
        return self.image(definition.image_id)

    def router_token(self, sandbox: SimulatedSandbox) -> str:
        fresh = token(self.router_token_seconds)
        sandbox.router_tokens.append(fresh)
        return fresh

    async def end(self, sandbox: SimulatedSandbox, result: api_pb2.GenericResult) -> None:
        """Kills the sandbox's processes now. It gets its result and releases its name after a delay."""
        if sandbox.result is not None or sandbox.is_ending:
            return
        sandbox.is_ending = True
        sandbox.started.set()
        for link in sandbox.links.values():
            await link.close()
        await sandbox.container.end()
        if sandbox.has_exit_snapshot and result.status != BROKEN:
            sandbox.exit_image_id = await self.snapshot(sandbox, -1)
            self.images[sandbox.exit_image_id].is_exit_snapshot = True
        await asyncio.to_thread(shutil.rmtree, sandbox.container.root, ignore_errors=True)

        def has_ended() -> None:
            sandbox.result = result
            sandbox.ended.set()

        self._later(self.pace.draw(self.pace.end_seconds), has_ended)

    async def stop_app(self, name: str) -> None:
        """Ends the app's sandboxes. The next lookup of the name creates a new app."""
        app_id = self.apps.pop(name)
        for sandbox in self.living():
            if sandbox.app_id == app_id:
                await self.end(sandbox, api_pb2.GenericResult(status=ENDED))

    async def snapshot(self, sandbox: SimulatedSandbox, ttl_seconds: int) -> str:
        """Raises GRPCError."""
        image_id = new_id("im")
        target = self._folder / "images" / image_id
        try:
            await copied(sandbox.container.root, target)
        except OSError as error:
            raise GRPCError(Status.INTERNAL, f"the snapshot failed: {error}") from error
        expires_at = self.now() + ttl_seconds if ttl_seconds > 0 else None
        self.images[image_id] = SimulatedImage(image_id=image_id, folder=target, expires_at=expires_at)
        return image_id

    async def delete_image(self, image_id: str) -> None:
        image = self.images.pop(image_id, None)
        if image is not None and image.folder is not None:
            await asyncio.to_thread(shutil.rmtree, image.folder, ignore_errors=True)

    async def close(self) -> None:
        await self.function_calls.close()
        for sandbox in self.living():
            sandbox.definition.experimental_options_v2.clear()
            await self.end(sandbox, api_pb2.GenericResult(status=ENDED))
        for waiting in tuple(self._waits):
            await cancel(waiting)
