"""Posting one run's messages: recorded before and after, looked for after a doubt, patient with limits."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from bots.delivery.content import Content
from core.domain.errors import (
    LeaseLost,
    StorageUnavailable,
    SurfaceError,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnclear,
)
from core.domain.threads import Address
from core.ports import (
    ChatPresence,
    ChatSurface,
    EventBus,
    OutgoingFile,
    Reaction,
    SandboxProvider,
)
from core.stores import Asks, Conversations, Deliveries, Delivery, DeliveryDraft, DeliveryLease

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
TRIES_MAX = 6
PAUSE_SECONDS = 1.0
SURE_SECONDS = 2.0
"""So long after a record nobody else can have taken the run: less than what a silent worker is given."""


class DeliverySurface(ChatSurface[Content], ChatPresence, Protocol):
    """A chat platform with its figures."""

    @property
    def answer_limit(self) -> int:
        """Characters of Markdown that one message holds."""
        ...

    @property
    def file_bytes_max(self) -> int: ...

    @property
    def edit_interval_seconds(self) -> float:
        """The shortest pace of edits to one message."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDeps:
    """What showing runs needs. `link_for(thread_id, path)` makes an expiring link, or None where nothing serves it."""

    worker_id: str
    surfaces: Mapping[str, DeliverySurface]
    deliveries: Deliveries
    conversations: Conversations
    asks: Asks
    bus: EventBus
    sandboxes: SandboxProvider | None
    link_for: Callable[[str, str], str | None]


@dataclass
class Poster:
    """Posts for one run. The newest record of each delivery is kept here, as the store has it."""

    address: Address
    surface: DeliverySurface
    rendering: DeliveryLease
    deliveries: Deliveries
    sure_seconds: float = SURE_SECONDS

    def __post_init__(self) -> None:
        self._records: dict[str, Delivery] = {}
        self._was_ours_at = 0.0

    def newest(self, delivery: Delivery) -> Delivery:
        return self._records.get(delivery.delivery_id, delivery)

    async def show(self, delivery: Delivery, content: Content, *, is_final: bool = True) -> None:
        """Posts, or edits what is posted. Only a final showing counts as delivered.

        A refusal is recorded and logged; it does not raise. Raises SurfaceError when the platform stays out of reach.
        """
        record = self.newest(delivery)
        if record.state in ("delivered", "failed"):
            return
        try:
            record = await self._looked_for(record)
            if record.message_ref is None:
                record = await self._post(
                    record,
                    lambda: self.surface.post(
                        self.address,
                        content,
                        delivery_id=record.delivery_id,
                        precondition=self._check_lease,
                    ),
                )
                if is_final:
                    await self._record(replace(record, state="delivered"))
                return
            message_ref = record.message_ref

            def edit() -> Awaitable[None]:
                return self.surface.edit(
                    self.address, message_ref, content, precondition=self._check_lease
                )

            if not is_final:
                # whoever slept meanwhile must not paint over what another one has shown since
                await self._record(record)
                # newer ones follow; to wait for the platform here would keep the answer waiting
                await self._sent(edit)
                return
            await self._patiently(edit)
            await self._record(replace(record, state="delivered"))
        except SurfaceRefused as refused:
            await self._refused(record, refused)

    async def send_file(
        self, delivery: Delivery, file: Callable[[], OutgoingFile]
    ) -> SurfaceRefused | None:
        """Uploads once. Answers the platform's refusal, if it refused (too large, empty, forbidden)."""
        record = self.newest(delivery)
        if record.state in ("delivered", "failed"):
            return None
        try:
            record = await self._looked_for(record)
            if record.message_ref is None:
                record = await self._post(
                    record,
                    lambda: self.surface.upload(
                        self.address,
                        file(),
                        delivery_id=record.delivery_id,
                        precondition=self._check_lease,
                    ),
                )
        except SurfaceRefused as refused:
            log.warning("a file of run %s was refused: %s", self.rendering.run_id, refused.code)
            return refused
        await self._record(replace(record, state="delivered"))
        return None

    async def plan(self, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        """Raises LeaseLost where another process shows the run."""
        began = time.monotonic()
        planned = await self.deliveries.plan(self.rendering, drafts)
        self._was_ours_at = began
        return planned

    async def sign(self, message_ref: str, reaction: Reaction, *, is_patient: bool = True) -> None:
        """A reaction is a courtesy: what goes wrong with it is logged only. Whoever slept meanwhile gives none."""

        def react() -> Awaitable[None]:
            return self.surface.react(
                self.address, message_ref, reaction, precondition=self._check_lease
            )

        try:
            await (self._patiently(react) if is_patient else self._sent(react))
        except (SurfaceError, StorageUnavailable, LeaseLost) as error:
            log.info("no reaction on run %s: %s", self.rendering.run_id, error)

    async def _looked_for(self, record: Delivery) -> Delivery:
        """After a doubt, its own or a crash's, the thread is looked at; what stands there may show an older state."""
        if record.state != "attempting" or record.message_ref is not None:
            return record
        found = await self._patiently(lambda: self.surface.find(self.address, record.delivery_id))
        if found is None:
            return record
        return await self._record(replace(record, message_ref=found))

    async def _post(self, record: Delivery, send: Callable[[], Awaitable[str]]) -> Delivery:
        """Sends at most once: after an unclear try the thread is looked at first."""
        record_id = record.delivery_id
        attempting = await self._record(replace(record, state="attempting"))
        for _ in range(TRIES_MAX):
            try:
                sent = await self._patiently(send, is_repeatable=False)
            except SurfaceUnclear as unclear:
                log.warning("a post of run %s is unclear: %s", self.rendering.run_id, unclear)
                await asyncio.sleep(PAUSE_SECONDS)
                sent = await self._patiently(lambda: self.surface.find(self.address, record_id))
            if sent is not None:
                return await self._record(replace(attempting, message_ref=sent))
        raise SurfaceUnclear("the platform does not answer")

    async def _patiently(
        self, send: Callable[[], Awaitable[ResultT]], *, is_repeatable: bool = True
    ) -> ResultT:
        """Waits out rate limits; repeats after an unclear failure only what may be repeated."""
        unclear = 0
        while True:
            try:
                return await self._sent(send)
            except SurfaceRateLimited as limited:
                await asyncio.sleep(limited.retry_after_seconds)
            except SurfaceUnclear:
                unclear += 1
                if not is_repeatable or unclear >= TRIES_MAX:
                    raise
                await asyncio.sleep(PAUSE_SECONDS * unclear)

    async def _sent(self, send: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Whoever slept before it is sent finds that another one shows the run: LeaseLost."""
        await self._check_lease()
        return await send()

    async def _check_lease(self) -> None:
        """The precondition of every change. Raises LeaseLost."""
        if time.monotonic() - self._was_ours_at > self.sure_seconds:
            await self.plan([])

    async def _record(self, record: Delivery) -> Delivery:
        began = time.monotonic()
        await self.deliveries.record(self.rendering, record)
        self._was_ours_at = began
        self._records[record.delivery_id] = record
        return record

    async def _refused(self, record: Delivery, refused: SurfaceRefused) -> None:
        log.error(
            "the %s of run %s was refused: %s", record.slot, self.rendering.run_id, refused.code
        )
        await self._record(replace(record, state="failed", error=refused.code))
