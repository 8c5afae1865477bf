"""A fake chat platform in memory, which keeps posted messages and fails as configured."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from bots.delivery.content import Content
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.threads import Address
from core.ports import OutgoingFile, Precondition, Reaction

ELSEWHERE = (
    Address(platform="slack", workspace_id="T1", channel_id="C-parent", thread_key="parent"),
    Address(platform="slack", workspace_id="T1", channel_id="D1", thread_key=""),
)
"""The places where a person is told what cannot be said in the thread."""


@dataclass
class Posted:
    message_ref: str
    delivery_id: str
    address: Address
    contents: list[Content] = field(default_factory=list)
    file_name: str = ""
    file_bytes: bytes = b""
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Names and contents of the files in the message, by delivery id."""

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
    files_per_message = 2
    edit_interval_seconds = 0.05
    closed_reasons: Mapping[str, str] = {"is_archived": "the channel is archived"}

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self._numbers = count(1)
        self.reactions: list[tuple[str, Reaction | None]] = []
        self.failures: list[Failure] = []
        self.told: list[tuple[Address, str, str]] = []
        self.edits = 0
        self.is_typing = self.was_typing = False
        self.closed: set[Address] = set()
        self.on_edit: Callable[[Posted, Content], None] = lambda _posted, _content: None
        self.on_post: Callable[[], None] = lambda: None

    def _next_ref(self) -> str:
        """Returns an id as of a message that was posted a minute ago, so that people have had time to read it."""
        return f"{time.time() - 60:.3f}{next(self._numbers):03}"

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        files: Sequence[OutgoingFile] = (),
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        sent = {one.delivery_id: (one.name, b"".join([piece async for piece in one.pieces])) for one in files}

        def carry_out() -> str:
            if address in self.closed:
                raise SurfaceRefused("no", code="is_archived")
            ref = self._next_ref()
            self.posted.append(Posted(ref, delivery_id, address, [content], files=sent))
            self.on_post()
            return ref

        return await self._do("post with files" if files else "post", carry_out, precondition)

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition | None = None
    ) -> None:
        def carry_out() -> str:
            self.edits += 1
            if address in self.closed:
                raise SurfaceRefused("no", code="is_archived")
            found = self._find(message_ref)
            found.contents.append(content)
            self.on_edit(found, content)
            return message_ref

        await self._do("edit", carry_out, precondition)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition | None = None
    ) -> str:
        whole = b"".join([piece async for piece in file.pieces])

        def carry_out() -> str:
            if address in self.closed:
                raise SurfaceRefused("no", code="is_archived")
            ref = f"f{next(self._numbers)}"
            self.posted.append(Posted(ref, delivery_id, address, [], file.name, whole))
            return ref

        return await self._do("upload", carry_out, precondition)

    def file_limit(self, address: Address) -> int:
        return self.file_bytes_max

    async def find_streams(self, address: Address) -> None:
        return None

    async def delete(self, address: Address, message_ref: str) -> None:
        def carry_out() -> None:
            if address in self.closed:
                raise SurfaceRefused("no", code="is_archived")
            self.posted.remove(self._find(message_ref))

        await self._do("delete", carry_out)

    def _find(self, message_ref: str) -> Posted:
        for one in self.posted:
            if one.message_ref == message_ref:
                return one
        raise SurfaceRefused("no", code="message_not_found")

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        await self._do("tell", lambda: self.told.append((address, person_id, text)))

    async def find(self, address: Address, delivery_id: str) -> str | None:
        found = [one.message_ref for one in self.posted if delivery_id == one.delivery_id or delivery_id in one.files]
        return await self._do("find", lambda: found[0] if found else None)

    def all_files(self) -> list[tuple[str, bytes]]:
        """Names and contents of all files that were posted, alone or with a message."""
        return [
            file
            for one in self.posted
            for file in (*([(one.file_name, one.file_bytes)] if one.file_name else []), *one.files.values())
        ]

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncIterator[Address]:
        for elsewhere in ELSEWHERE:
            yield elsewhere

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        await self._do("react", lambda: self.reactions.append((message_ref, reaction)), precondition)

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncIterator[None]:
        self.is_typing = self.was_typing = True
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
