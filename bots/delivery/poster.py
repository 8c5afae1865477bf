"""Posts the messages of one run without duplicates.

Every post is recorded in the store before and after the call. If the outcome of a call is unknown, the thread is
searched for the message before a retry. Rate limits are waited out.
"""

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
"""How long the delivery lease is trusted after a successful write, without another check.

Shorter than the time after which a silent worker loses its runs, so no other worker can hold the lease yet.
"""


class DeliverySurface(ChatSurface[Content], ChatPresence, Protocol):
    """A chat platform with its limits for messages, files and edits."""

    @property
    def answer_limit(self) -> int:
        """The maximum number of Markdown characters in one message."""
        ...

    @property
    def file_bytes_max(self) -> int: ...

    @property
    def edit_interval_seconds(self) -> float:
        """The minimum time between two edits of the same message."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDeps:
    """The dependencies of run delivery.

    `link_for(thread_id, path)` returns an expiring download link for a sandbox file, or None if links are not served.
    """

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
    """Posts the messages of one run and caches the last stored record of each delivery."""

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
        """Posts the message of a delivery, or edits the message if it is already posted.

        The delivery counts as delivered only if `is_final` is true. A refusal by the platform is logged and recorded,
        not raised. Raises SurfaceError if the platform stays unreachable, and LeaseLost if another process now
        delivers this run.
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
                # fails if this process was paused and another process has taken over the run
                await self._record(record)
                # no retries: newer edits follow, and waiting here would delay the answer
                await self._sent(edit)
                return
            await self._patiently(edit)
            await self._record(replace(record, state="delivered"))
        except SurfaceRefused as refused:
            await self._refused(record, refused)

    async def send_file(
        self, delivery: Delivery, file: Callable[[], OutgoingFile]
    ) -> SurfaceRefused | None:
        """Uploads the file of a delivery at most once.

        Returns the platform's refusal (for example: too large, empty, forbidden), or None if the file is delivered.
        """
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
        """Stores the drafts as pending deliveries and returns all deliveries of the run.

        Raises LeaseLost if another process now delivers this run.
        """
        began = time.monotonic()
        planned = await self.deliveries.plan(self.rendering, drafts)
        self._was_ours_at = began
        return planned

    async def sign(self, message_ref: str, reaction: Reaction, *, is_patient: bool = True) -> None:
        """Sets a reaction on a message. Errors are only logged, because reactions are optional.

        If `is_patient` is true, waits out rate limits and retries. Sets no reaction if the lease is lost.
        """

        def react() -> Awaitable[None]:
            return self.surface.react(
                self.address, message_ref, reaction, precondition=self._check_lease
            )

        try:
            await (self._patiently(react) if is_patient else self._sent(react))
        except (SurfaceError, StorageUnavailable, LeaseLost) as error:
            log.info("no reaction on run %s: %s", self.rendering.run_id, error)

    async def _looked_for(self, record: Delivery) -> Delivery:
        """Searches the thread for the message if an earlier attempt to post it has an unknown outcome.

        Returns the record, with the message reference if the message exists. The message may show an older state.
        """
        if record.state != "attempting" or record.message_ref is not None:
            return record
        found = await self._patiently(lambda: self.surface.find(self.address, record.delivery_id))
        if found is None:
            return record
        return await self._record(replace(record, message_ref=found))

    async def _post(self, record: Delivery, send: Callable[[], Awaitable[str]]) -> Delivery:
        """Sends a message without duplicates: searches the thread before a retry if the outcome is unknown.

        Raises SurfaceUnclear if the message is still not posted after TRIES_MAX attempts.
        """
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
        """Calls `send`, waiting out rate limits.

        If the outcome of a call is unknown, retries only if `is_repeatable` is true; otherwise raises SurfaceUnclear.
        """
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
        """Calls `send` after a lease check. Raises LeaseLost if another process now delivers this run."""
        await self._check_lease()
        return await send()

    async def _check_lease(self) -> None:
        """Checks the lease in the store if the last successful write is older than `sure_seconds`.

        Platforms call this immediately before they change a message. Raises LeaseLost if another process holds it.
        """
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
