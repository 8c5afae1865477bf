"""Posts the messages of one run without duplicates.

Every post is recorded in the store before and after the call. If the outcome of a call is unknown, the thread is
searched for the message before a retry. Rate limits are waited out. If the platform keeps failing at a message, the
message counts as refused only if the platform accepts another message meanwhile."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from bots.delivery.content import AnswerPart, Content, Notice
from bots.delivery.rate_limiter import PATIENT_SECONDS, waiting_at_most
from core.domain.errors import (
    LeaseLost,
    RunError,
    StorageUnavailable,
    SurfaceError,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnclear,
    ToolError,
)
from core.domain.threads import Address
from core.observability import NO_METRICS, RunMetrics
from core.ports import ChatPresence, ChatSurface, EventBus, OutgoingFile, Precondition, Reaction, SandboxProvider
from core.stores import Asks, Conversations, Deliveries, Delivery, DeliveryDraft, DeliveryLease
from core.tasks import boot_seconds

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
Action = Literal["post", "edit", "upload", "find", "react"]
"""What requests to the platform are called in the metrics."""
TRIES_MAX = 6
PAUSE_SECONDS = 1.0
PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The pauses after attempts to post a message whose outcome is unclear."""
ALWAYS_FAILS = "always_fails"
"""The error code of a message that the platform kept failing at, although it answered other calls."""
PROBE_ORDINAL = 1000
"""The ordinal of the first notice that is posted to see whether the platform accepts messages."""
FAILED_MESSAGE = "I could not post a message here, because the chat platform fails at it. It is kept."
IMPATIENT_SECONDS = 2.0
"""How long an edit, or a reaction that will change, waits for its turn. Newer ones follow, and answers must not wait
for them."""
RATE_LIMIT_SECONDS_MAX = 300.0
"""The longest wait before the next call, even if the platform asks for more. Some have asked for days."""
SURE_SECONDS = 2.0
"""How long the delivery lease is trusted after a successful write, without another check.

Shorter than the time after which a silent worker loses its runs, so no other worker can hold the lease yet."""


class AnswerStreams(Protocol):
    """Messages that grow while the model writes them. The methods raise the same errors as those of ChatSurface."""

    async def start(self, address: Address, *, delivery_id: str, precondition: Precondition) -> str:
        """Posts a message without text and returns its id. `ChatSurface.find` can find the message."""
        ...

    async def append(self, address: Address, stream: Delivery, markdown: str, *, precondition: Precondition) -> None:
        """Appends text that ends with a whole word. An empty text only keeps the stream open."""
        ...

    async def finish(
        self, address: Address, stream: Delivery, content: AnswerPart | None, *, precondition: Precondition
    ) -> None:
        """Ends the stream and, unless the content is None, replaces the text with it. Safe to repeat.

        If the platform refuses the content, raises SurfaceRefused, and the message is deleted if that is allowed."""
        ...


class ThreadBeginner(Protocol):
    """A chat platform on which the bot can begin a thread with a message of its own."""

    async def begin_thread(
        self,
        channel: Address,
        content: Content,
        *,
        title: str,
        delivery_id: str,
        may_be_posted: bool,
        precondition: Precondition,
    ) -> str:
        """Posts the content into the channel and opens its thread. Returns the message's id, which is the thread key.

        With `may_be_posted`, an earlier attempt may have posted the message, so the channel is searched for it first.
        Raises SurfaceError, or the exception of the precondition."""
        ...


class DeliverySurface(ChatSurface[Content], ChatPresence, Protocol):
    """A chat platform with its limits for messages, files and edits."""

    @property
    def answer_limit(self) -> int:
        """The maximum number of Markdown characters in one message."""
        ...

    def file_limit(self, address: Address, /) -> int:
        """Returns the size in bytes of the largest file that is accepted at the address."""
        ...

    @property
    def files_per_message(self) -> int:
        """How many files `post` accepts."""
        ...

    @property
    def edit_interval_seconds(self) -> float:
        """The minimum time between two edits of the same message."""
        ...

    @property
    def closed_reasons(self) -> Mapping[str, str]:
        """The error codes which mean that the bot may not write in the thread at all, each with the reason for
        users."""
        ...

    async def find_streams(self, address: Address) -> AnswerStreams | None:
        """Returns the streams of the thread, or None if not everyone there would see a message grow. Raises
        SurfaceError."""
        ...

    async def delete(self, address: Address, message_ref: str) -> None:
        """Deletes a message of the bot. Raises SurfaceError."""
        ...

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        """Shows the text only to the person, beside the thread, if the platform can do that without a message that
        counts toward the rate limit of answers. Raises SurfaceError."""
        ...

    def fallback_addresses(self, address: Address, person_id: str) -> AsyncIterator[Address]:
        """Yields other places where the person can be told something about the thread. Raises SurfaceError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDeps:
    """The dependencies of run delivery.

    `link_for(thread_id, path)` returns an expiring download link for a sandbox file, or None if links are not served.
    `stop_run(run_id)` requests that the run stop. A run without steps that ends within `status_after_seconds` gets no
    status message. With 0, every run gets one."""

    worker_id: str
    surfaces: Mapping[str, DeliverySurface]
    deliveries: Deliveries
    conversations: Conversations
    asks: Asks
    bus: EventBus
    sandboxes: SandboxProvider | None
    link_for: Callable[[str, str], str | None]
    stop_run: Callable[[str], Awaitable[object]]
    status_after_seconds: float
    metrics: RunMetrics = NO_METRICS


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that is posted in the same message as an answer. `open` is called for each attempt."""

    delivery: Delivery
    open: Callable[[], OutgoingFile]


@dataclass
class Poster:
    """Posts the messages of one run and caches the last stored record of each delivery.

    `held_since` is the last time at which the delivery lease was certainly held, in `core.tasks.boot_seconds`, or 0."""

    address: Address
    surface: DeliverySurface
    rendering: DeliveryLease
    deliveries: Deliveries
    held_since: float = 0.0
    sure_seconds: float = SURE_SECONDS
    metrics: RunMetrics = NO_METRICS
    _records: dict[str, Delivery] = field(default_factory=dict[str, Delivery], init=False)

    def latest_record(self, delivery: Delivery) -> Delivery:
        return self._records.get(delivery.delivery_id, delivery)

    def refused_posts(self, planned: Sequence[Delivery] = ()) -> list[Delivery]:
        """Returns the posts that the platform refused, now or before `planned` was read. Refused edits are left out."""
        newest = {one.delivery_id: one for one in planned} | self._records
        return [one for one in newest.values() if one.state == "failed" and not one.message_ref]

    async def post_or_edit(
        self,
        delivery: Delivery,
        content: Content,
        *,
        is_final: bool = True,
        may_wait: bool = True,
        files: Sequence[AttachedFile] = (),
    ) -> None:
        """Posts the message of a delivery, or edits the message if it is already posted.

        The files go in the same message. If the platform refuses the message with them, it is posted alone, and the
        files stay pending.

        The delivery counts as delivered only if `is_final` is true. A refusal by the platform is logged and recorded,
        not raised. Raises SurfaceError if the platform stays unreachable, SurfaceRateLimited if the message would have
        to wait and is not final or not `may_wait`, and LeaseLost if another process now delivers this run."""
        record = self.latest_record(delivery)
        if record.state in ("delivered", "failed"):
            return
        try:
            record = await self._looked_for(record)
            if record.message_ref is None:
                if not files or not await self._show_with_files(record, content, files):
                    await self._show_alone(record, content, is_final=is_final, may_wait=may_wait)
                return
            if isinstance(content, AnswerPart):  # an answer part never changes, so the posted one is complete
                await self._record(replace(record, state="delivered"))
                return
            message_ref = record.message_ref
            if not is_final:
                # fails if this process was paused and another process has taken over the run
                await self._record(record)
            await self._send(
                "edit",
                lambda: self.surface.edit(self.address, message_ref, content, precondition=self._check_lease),
                patience_seconds=PATIENT_SECONDS if is_final else IMPATIENT_SECONDS,
            )
            if is_final:
                await self._record(replace(record, state="delivered"))
        except SurfaceRefused as refused:
            await self.record_refusal(record, refused)

    def _sender(
        self, record: Delivery, content: Content, files: Sequence[AttachedFile] = ()
    ) -> Callable[[], Awaitable[str]]:
        return lambda: self.surface.post(
            self.address,
            content,
            files=[replace(one.open(), delivery_id=one.delivery.delivery_id) for one in files],
            delivery_id=record.delivery_id,
            precondition=self._check_lease,
        )

    async def _show_alone(self, record: Delivery, content: Content, *, is_final: bool, may_wait: bool) -> None:
        """Posts the message. The last attempt sends it as plain text. A platform that keeps failing may fail at all
        messages for a time. So the message counts as refused only if the platform accepts a notice and then fails at
        the message once more.

        Raises SurfaceUnclear if the platform does not accept the notice either."""
        send = self._sender(record, content)
        is_answer = isinstance(content, AnswerPart)
        plain = self._sender(record, replace(content, is_plain=True)) if is_answer else send
        try:
            await self._post(record, send, is_final=is_final, may_wait=may_wait, send_last=plain)
        except SurfaceRefused as refused:
            if refused.code != ALWAYS_FAILS:
                raise
            await self._post_probe()
            await self._post(record, plain, is_final=is_final, pauses_seconds=(0.0,))

    async def _post_probe(self) -> None:
        """Posts a notice about a message that failed. Raises SurfaceError if the platform does not accept the
        notice."""
        rows = [one for one in await self.plan_deliveries([]) if is_probe_notice(one)]
        ordinal = PROBE_ORDINAL + sum(one.state == "delivered" for one in rows)
        planned = await self.plan_delivery(DeliveryDraft(slot="notice", ordinal=ordinal, body={}))
        notice = await self._looked_for(planned)
        if notice.message_ref is None:
            content = Notice(markdown=FAILED_MESSAGE, level="warning")
            await self._post(notice, self._sender(notice, content), is_final=False)
        await self.mark_done(notice)

    async def mark_done(self, delivery: Delivery) -> None:
        """Records that nothing more is to be done for the delivery."""
        await self._record(replace(self.latest_record(delivery), state="delivered"))

    async def _show_with_files(self, record: Delivery, content: Content, files: Sequence[AttachedFile]) -> bool:
        """Posts the message with the files in it. Returns False if nothing was posted, because the files were refused.

        Records the files as attempted first, so that the thread is searched for each of them after a crash."""
        sent = [await self._record(replace(self.latest_record(one.delivery), state="attempting")) for one in files]
        try:
            await self._post(record, self._sender(record, content, files), is_final=True, action="upload")
        except (SurfaceRefused, RunError, ToolError) as refused:
            log.warning(
                "the files of run %s do not go with its answer: %s",
                self.rendering.run.run_id,
                refused.code if isinstance(refused, SurfaceRefused) else type(refused).__name__,
            )
            for one in sent:
                await self._record(replace(one, state="pending"))
            return False
        message_ref = self.latest_record(record).message_ref
        for one in sent:
            await self._record(replace(one, state="delivered", message_ref=message_ref))
        return True

    async def start_stream(self, stream: Delivery, streams: AnswerStreams) -> bool:
        """Starts the message of an answer that is still being written. Returns whether the platform allows it."""
        try:
            await self._post(
                stream,
                lambda: streams.start(self.address, delivery_id=stream.delivery_id, precondition=self._check_lease),
                is_final=False,
            )
        except SurfaceRefused as refused:
            log.info("the answer of run %s is not streamed: %s", stream.run_id, refused.code)
            await self._record(replace(stream, state="delivered", error=refused.code))
            return False
        return True

    async def append_to_stream(self, stream: Delivery, streams: AnswerStreams, markdown: str) -> None:
        """Appends text to the message. If SurfaceError is raised, the text may or may not have been appended."""
        record = self.latest_record(stream)
        await self._send(
            "edit",
            lambda: streams.append(self.address, record, markdown, precondition=self._check_lease),
            patience_seconds=IMPATIENT_SECONDS,
        )

    async def finish_stream(
        self, stream: Delivery, answer: Delivery | None = None, part: AnswerPart | None = None
    ) -> bool:
        """Ends the stream, if it is open, and makes its message the answer. Returns whether the answer is delivered.

        This also works in a process that does not know how much was written, because the whole text is replaced."""
        record = self.latest_record(stream)
        if record.state == "delivered":
            return False
        is_answer = False
        try:
            record = await self._looked_for(record)
            streams = await self.surface.find_streams(self.address)
            if record.message_ref is not None and streams is not None:
                found = record
                await self._send(
                    "edit", lambda: streams.finish(self.address, found, part, precondition=self._check_lease)
                )
                if answer is not None:
                    posted = replace(self.latest_record(answer), message_ref=found.message_ref)
                    await self._record(replace(posted, state="delivered"))
                    is_answer = True
        except SurfaceRefused as refused:
            log.warning("the stream of run %s is not its answer: %s", stream.run_id, refused.code)
        await self._record(replace(record, state="delivered"))
        return is_answer

    async def send_file(self, delivery: Delivery, file: Callable[[], OutgoingFile]) -> SurfaceRefused | None:
        """Uploads the file of a delivery at most once.

        Returns the platform's refusal (for example: too large, empty, forbidden), or None if the file is delivered."""
        record = self.latest_record(delivery)
        if record.state in ("delivered", "failed"):
            return None
        try:
            record = await self._looked_for(record)
            if record.message_ref is None:
                await self._post(
                    record,
                    lambda: self.surface.upload(
                        self.address, file(), delivery_id=record.delivery_id, precondition=self._check_lease
                    ),
                    is_final=True,
                    action="upload",
                )
                return None
        except SurfaceRefused as refused:
            log.warning("a file of run %s was refused: %s", self.rendering.run.run_id, refused.code)
            return refused
        await self._record(replace(record, state="delivered"))
        return None

    async def plan_deliveries(self, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        """Stores the drafts as pending deliveries and returns all deliveries of the run.

        Raises LeaseLost if another process now delivers this run."""
        began = boot_seconds()
        planned = await self.deliveries.plan_deliveries(self.rendering, drafts)
        self.held_since = began
        return planned

    async def plan_delivery(self, draft: DeliveryDraft) -> Delivery:
        """Stores the draft as a pending delivery if it is missing, and returns the delivery. Raises LeaseLost."""
        place = (draft.slot, draft.ordinal)
        return next(one for one in await self.plan_deliveries([draft]) if (one.slot, one.ordinal) == place)

    async def set_reaction(self, message_ref: str, reaction: Reaction | None, *, is_patient: bool) -> str:
        """Sets a reaction on a message; None removes it. Errors are only logged, because reactions are optional.
        Returns the code of a refusal, or "".

        If `is_patient` is true, waits out rate limits and retries, and raises StorageUnavailable if the lease cannot be
        checked. Sets no reaction if the lease is lost."""

        try:
            await self._send(
                "react",
                lambda: self.surface.react(self.address, message_ref, reaction, precondition=self._check_lease),
                patience_seconds=PATIENT_SECONDS if is_patient else IMPATIENT_SECONDS,
            )
        except (SurfaceError, StorageUnavailable, LeaseLost) as error:
            if is_patient and isinstance(error, StorageUnavailable):
                raise
            log.info("no reaction on run %s: %s", self.rendering.run.run_id, error)
            return error.code if isinstance(error, SurfaceRefused) else ""
        return ""

    async def _looked_for(self, record: Delivery) -> Delivery:
        """Searches the thread for the message if an earlier attempt to post it has an unknown outcome.

        Returns the record, with the message reference if the message exists. The message may show an older state."""
        if record.state != "attempting" or record.message_ref is not None:
            return record
        found = await self._send("find", lambda: self.surface.find(self.address, record.delivery_id))
        if found is None:
            return record
        return await self._record(replace(record, message_ref=found))

    async def _post(
        self,
        record: Delivery,
        send: Callable[[], Awaitable[str]],
        *,
        is_final: bool,
        may_wait: bool = True,
        action: Action = "post",
        send_last: Callable[[], Awaitable[str]] | None = None,
        pauses_seconds: Sequence[float] = (),
    ) -> None:
        """Sends a message without duplicates: searches the thread before a retry if the outcome is unknown.

        Records the message as delivered if `is_final` is true. Waits for its turn only if the message is final and may
        wait. If the outcome of every attempt stays unclear although the searches succeed, raises SurfaceRefused with
        the code ALWAYS_FAILS for a final message, and SurfaceUnclear for any other."""
        attempting = await self._record(replace(record, state="attempting"))
        every = pauses_seconds or (*PAUSES_SECONDS, 0.0)
        for pause in every if is_final else every[:1]:
            send = send if pause else send_last or send
            try:
                patience = PATIENT_SECONDS if is_final and may_wait else 0.0
                sent = await self._send(action, send, patience_seconds=patience, is_repeatable=False)
            except SurfaceRateLimited:
                await self._record(replace(attempting, state="pending"))  # it was not sent
                raise
            except SurfaceUnclear as unclear:
                log.warning("a post of run %s is unclear: %s", self.rendering.run.run_id, unclear)
                await asyncio.sleep(pause or PAUSE_SECONDS)
                sent = (await self._looked_for(attempting)).message_ref
            if sent is not None:
                state = "delivered" if is_final else "attempting"
                await self._record(replace(attempting, message_ref=sent, state=state))
                return
        if is_final:
            raise SurfaceRefused("the platform fails at this message", code=ALWAYS_FAILS)
        raise SurfaceUnclear("the platform does not answer")

    async def _send(
        self,
        action: Action,
        send: Callable[[], Awaitable[ResultT]],
        *,
        patience_seconds: float = PATIENT_SECONDS,
        is_repeatable: bool = True,
    ) -> ResultT:
        """Calls `send` after a lease check, and measures the call. Raises LeaseLost if another process has the run.

        With PATIENT_SECONDS, waits out rate limits without losing its place, and calls again if the outcome is unknown
        and `is_repeatable` is true. With less patience, raises SurfaceUnclear, or SurfaceRateLimited if the call would
        have to wait longer, because newer edits follow and answers must not wait for them."""
        is_patient, unclear = patience_seconds == PATIENT_SECONDS, 0
        while True:
            try:
                with waiting_at_most(patience_seconds):
                    await self._check_lease()
                    with self.metrics.time_step("delivery", platform=self.address.platform, action=action):
                        return await send()
            except SurfaceRateLimited as limited:
                if not is_patient:
                    raise
                await asyncio.sleep(min(limited.retry_after_seconds, RATE_LIMIT_SECONDS_MAX))
            except SurfaceUnclear:
                unclear += 1
                if not (is_patient and is_repeatable) or unclear >= TRIES_MAX:
                    raise
                await asyncio.sleep(PAUSE_SECONDS * unclear)

    async def _check_lease(self) -> None:
        """Checks the lease in the store if the last successful write is older than `sure_seconds`.

        Platforms call this immediately before they change a message. Raises LeaseLost if another process holds it."""
        if boot_seconds() - self.held_since > self.sure_seconds:
            await self.plan_deliveries([])

    async def _record(self, record: Delivery) -> Delivery:
        began, before = boot_seconds(), self._records.get(record.delivery_id)
        was = before.state if before is not None else None
        await self.deliveries.record(self.rendering, record, was=was)
        self.held_since = began
        self._records[record.delivery_id] = record
        return record

    async def record_refusal(self, delivery: Delivery, refused: SurfaceRefused) -> None:
        """Records that the platform did not accept the message, so that it is not sent again."""
        record = self.latest_record(delivery)
        log.error("the %s of run %s was refused: %s", record.slot, self.rendering.run.run_id, refused.code)
        await self._record(replace(record, state="failed", error=refused.code))


def is_probe_notice(delivery: Delivery) -> bool:
    """Whether this is a notice that was posted to see if the platform accepts messages."""
    return delivery.slot == "notice" and delivery.ordinal >= PROBE_ORDINAL
