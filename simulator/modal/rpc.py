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
Credentials = Callable[[Mapping[str, object]], str]


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
    answers: Mapping[str, Answer],
    talks: Mapping[str, Talk],
) -> object:
    """A servicer of the generated base. `answers` take a request and its metadata; `talks` the stream."""
    known = cast("frozenset[str]", vars(base)["__abstractmethods__"])
    strangers = (answers.keys() | talks.keys()) - known
    if strangers:
        raise ValueError(f"this SDK has no such calls: {', '.join(sorted(strangers))}")
    methods = {
        name: _method(name, gate, refusal, answers.get(name), talks.get(name)) for name in known
    }
    return type(base.__name__, (base,), methods)()


def _method(
    name: str, gate: Gate, refusal: Credentials, answer: Answer | None, talk: Talk | None
) -> Callable[[object, RpcStream], Awaitable[None]]:
    async def carried_out(stream: RpcStream) -> None:
        if talk is not None:
            return await talk(stream)
        request = await stream.recv_message()
        if answer is None:
            raise GRPCError(Status.UNIMPLEMENTED, f"the simulated Modal has no {name}")
        await stream.send_message(await answer(request, stream.metadata))
        return None

    async def method(_: object, stream: RpcStream) -> None:
        await gate.pass_through(name, stream, refusal(stream.metadata), lambda: carried_out(stream))

    return method
