"""One gRPC service out of plain functions: every call recorded, checked, made to fail where told, never unanswered."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from google.protobuf.message import Message
from grpclib import GRPCError, Status

log = logging.getLogger(__name__)


class RpcStream(Protocol):
    """What is used of a grpclib stream."""

    @property
    def metadata(self) -> Mapping[str, object]: ...

    async def recv_message(self) -> Message | None: ...
    async def send_message(self, _message: Message, /) -> None: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...


Answer = Callable[..., Awaitable[Message]]
Talk = Callable[..., Awaitable[None]]
Credentials = Callable[[str, Mapping[str, object]], str]


@dataclass(slots=True)
class RpcFault:
    """`seconds` is waited first; then, with a status, the call fails, and was carried out before if `is_done`."""

    rpc: str
    status: Status | None
    message: str
    times: int
    seconds: float
    is_done: bool


@dataclass(slots=True)
class Faults:
    armed: list[RpcFault] = field(default_factory=list[RpcFault])

    def arm(
        self,
        rpc: str,
        status: Status | None = None,
        message: str = "injected",
        *,
        times: int = 1,
        seconds: float = 0,
        is_done: bool = False,
    ) -> None:
        self.armed.append(RpcFault(rpc, status, message, times, seconds, is_done))

    def take(self, rpc: str) -> RpcFault | None:
        for fault in self.armed:
            if fault.rpc == rpc:
                fault.times -= 1
                if fault.times <= 0:
                    self.armed.remove(fault)
                return fault
        return None


@dataclass(slots=True)
class Gate:
    """What stands before every call. `calls` are the names in order; `bugs` are ours, and none of the client's."""

    calls: list[str] = field(default_factory=list[str])
    faults: Faults = field(default_factory=Faults)
    bugs: list[str] = field(default_factory=list[str])

    async def pass_through(
        self, name: str, stream: RpcStream, refusal: str, talk: Callable[[], Awaitable[None]]
    ) -> None:
        self.calls.append(name)
        fault = self.faults.take(name)
        if fault is not None:
            await asyncio.sleep(fault.seconds)
            if fault.status is not None and not fault.is_done:
                raise GRPCError(fault.status, fault.message)
        if refusal:
            raise GRPCError(Status.UNAUTHENTICATED, refusal)
        try:
            await talk()
        except (GRPCError, asyncio.CancelledError):
            raise
        except Exception as error:
            # an unknown error would be repeated by the client for seconds
            log.exception("the simulated Modal broke in %s", name)
            self.bugs.append(f"{name}: {error!r}")
            raise GRPCError(Status.ABORTED, f"a bug of the simulator in {name}") from error
        if fault is not None and fault.status is not None:
            raise GRPCError(fault.status, fault.message)


def service(
    base: type,
    gate: Gate,
    refusal: Credentials,
    world: object,
    answers: Mapping[str, Answer],
    talks: Mapping[str, Talk],
) -> object:
    """A servicer of the generated base. `answers` take the world and a request, `talks` the world and the stream.
    `refusal` says what is wrong with the metadata of a call, if anything."""
    known = cast("frozenset[str]", vars(base)["__abstractmethods__"])
    strangers = (answers.keys() | talks.keys()) - known
    if strangers:
        raise ValueError(f"this SDK has no such calls: {', '.join(sorted(strangers))}")

    async def carried_out(name: str, stream: RpcStream) -> None:
        if name in talks:
            return await talks[name](world, stream)
        request = await stream.recv_message()
        if name not in answers:
            raise GRPCError(Status.UNIMPLEMENTED, f"the simulated Modal has no {name}")
        await stream.send_message(await answers[name](world, request))
        return None

    def method(name: str) -> Callable[[object, RpcStream], Awaitable[None]]:
        return lambda _, stream: gate.pass_through(
            name, stream, refusal(name, stream.metadata), lambda: carried_out(name, stream)
        )

    return type(base.__name__, (base,), {name: method(name) for name in known})()
