"""The simulated Modal as it listens: two gRPC servers on this machine's loopback, over one world."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, cast
from weakref import WeakSet

from grpclib.protocol import H2Protocol
from grpclib.server import Server
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from simulator.modal import account, functions, router, sandboxes
from simulator.modal.container import Jail
from simulator.modal.rpc import Faults, Gate, service
from simulator.modal.world import Pace, World
from simulator.serving import HOST, PortInUse, cancel, spawn

LOOK_SECONDS = 0.2
CLOSE_SECONDS = 2.0


class _Listening(Server):
    """Aborts open connections when it closes, because the SDK would keep them open."""

    def __init__(self, servicer: object) -> None:
        super().__init__([cast("ModalClientBase", servicer)])
        self._connected: WeakSet[asyncio.BaseTransport] = WeakSet()

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        made = protocol.connection_made

        def noted(transport: asyncio.BaseTransport) -> None:
            self._connected.add(transport)
            made(transport)

        vars(protocol)["connection_made"] = noted
        return protocol

    async def serve(self, port: int) -> str:
        """Starts listening and returns the URL. Raises PortInUse."""
        try:
            await self.start(HOST, port)
        except OSError as error:
            raise PortInUse(port) from error
        listening = cast("asyncio.Server", self._server)
        return f"http://{HOST}:{listening.sockets[0].getsockname()[1]}"

    async def end(self) -> None:
        self.close()
        for transport in tuple(self._connected):
            cast("asyncio.WriteTransport", transport).abort()
        await asyncio.sleep(0)  # lets the aborted connections close
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait_closed(), CLOSE_SECONDS)


class ModalSimulator:
    """A strict simulated Modal. Without `jail`, commands are plain processes of this user. Port 0 picks a free one."""

    def __init__(self, jail: Jail | None = None, *, port: int = 0, pace: Pace | None = None) -> None:
        self._port = port
        self._folder = Path(tempfile.mkdtemp(prefix="threadhand-modal-"))
        self._folder.chmod(0o711)
        self._servers: list[_Listening] = []
        self.gate = Gate()
        self.world = World(self._folder, jail, replace(pace or Pace()))
        self.url = ""

    @property
    def calls(self) -> list[str]:
        """The names of all calls so far, in order."""
        return self.gate.calls

    @property
    def faults(self) -> Faults:
        return self.gate.faults

    async def __aenter__(self) -> Self:
        world = self.world
        control = service(
            ModalClientBase,
            self.gate,
            lambda name, metadata: _refusal(name, metadata, world),
            world,
            {**account.ANSWERS, **functions.ANSWERS, **sandboxes.ANSWERS},
            account.TALKS,
        )
        commands = service(
            TaskCommandRouterBase,
            self.gate,
            lambda _, metadata: "" if _is_known(metadata, world) else "bad router token",
            world,
            router.ANSWERS,
            router.TALKS,
        )
        self.url = world.url = await self._serve(control, self._port)
        world.router_url = await self._serve(commands, 0)
        self._watching = spawn(self._watch(), name="the clock of the simulated Modal")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel(self._watching)
        await self.world.close()
        for server in self._servers:
            await server.end()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _serve(self, servicer: object, port: int) -> str:
        server = _Listening(servicer)
        url = await server.serve(port)
        self._servers.append(server)
        return url

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.world.end_expired()


def _refusal(name: str, metadata: Mapping[str, object], world: World) -> str:
    if (metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret")) != world.credentials:
        return "bad token"
    is_missing = name == "SandboxCreateV2" and not metadata.get("x-modal-auth-token")
    return "x-modal-auth-token is missing" if is_missing else ""


def _is_known(metadata: Mapping[str, object], world: World) -> bool:
    given = str(metadata.get("authorization", "")).removeprefix("Bearer ")
    return any(given in sandbox.router_tokens for sandbox in world.sandboxes.values())
