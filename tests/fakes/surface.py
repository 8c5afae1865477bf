"""A fake chat platform in memory, which keeps posted messages and fails as configured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bots.delivery.content import Content
from core.domain.errors import SurfaceError
from core.domain.threads import Address
from core.ports import OutgoingFile, Precondition, Reaction


@dataclass
class Posted:
    message_ref: str
    delivery_id: str
    contents: list[Content] = field(default_factory=list)
    file_name: str = ""
    file_bytes: bytes = b""

    @property
    def newest(self) -> Content:
        return self.contents[-1]


@dataclass
class Failure:
    """An error for the next call of the operation. With `is_carried_out`, it is raised after the operation is done."""

    operation: str
    error: SurfaceError
    is_carried_out: bool = False


class FakeSurface:
    platform = "slack"
    answer_limit = 1000
    file_bytes_max = 10_000
    edit_interval_seconds = 0.05

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.reactions: list[tuple[str, Reaction | None]] = []
        self.failures: list[Failure] = []
        self.edits = 0
        self.is_typing = False

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        def carry_out() -> str:
            ref = f"m{len(self.posted) + 1}"
            self.posted.append(Posted(ref, delivery_id, [content]))
            return ref

        return await self._do("post", carry_out, precondition)

    async def edit(
        self,
        address: Address,
        message_ref: str,
        content: Content,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        def carry_out() -> str:
            self.edits += 1
            found = next(one for one in self.posted if one.message_ref == message_ref)
            found.contents.append(content)
            return message_ref

        await self._do("edit", carry_out, precondition)

    async def upload(
        self,
        address: Address,
        file: OutgoingFile,
        *,
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        whole = b"".join([piece async for piece in file.pieces])

        def carry_out() -> str:
            ref = f"f{len(self.posted) + 1}"
            self.posted.append(Posted(ref, delivery_id, [], file.name, whole))
            return ref

        return await self._do("upload", carry_out, precondition)

    async def find(self, address: Address, delivery_id: str) -> str | None:
        found = [one.message_ref for one in self.posted if one.delivery_id == delivery_id]
        return await self._do("find", lambda: found[0] if found else None)

    async def react(
        self,
        address: Address,
        message_ref: str,
        reaction: Reaction | None,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        await self._do(
            "react", lambda: self.reactions.append((message_ref, reaction)), precondition
        )

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncIterator[None]:
        self.is_typing = True
        try:
            yield
        finally:
            self.is_typing = False

    async def _do(self, operation: str, carry_out, precondition: Precondition | None = None):
        if precondition is not None:
            await precondition()
        failure = next((one for one in self.failures if one.operation == operation), None)
        if failure is None:
            return carry_out()
        self.failures.remove(failure)
        if failure.is_carried_out:
            carry_out()
        raise failure.error
