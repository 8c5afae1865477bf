"""What the poster of a run calls and records, and when, however the platform answers: a table, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bots.delivery.content import AnswerPart, Content, Notice
from bots.delivery.poster import PROBE_ORDINAL, AnswerStreams, AttachedFile, DeliverySurface, Poster
from bots.delivery.rate_limiter import RateBudget, RateLimit, RateLimiter
from core.domain.errors import (
    LeaseLost,
    RunError,
    StorageUnavailable,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnclear,
)
from core.domain.threads import Address
from core.ports import OutgoingFile
from core.stores import Deliveries, Delivery, DeliveryDraft, DeliveryLease, DeliverySlot, DeliveryState
from tests.histories.virtual_time import in_virtual_time

HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
LIMIT = RateLimit(owner="slack", name="any", interval_seconds=1)
UNCLEAR = SurfaceUnclear("no answer")
REFUSED = SurfaceRefused("no", code="no")
ANSWER = AnswerPart(markdown="text")
STATUS = Notice(markdown="works")
Outcomes = Mapping[str, Sequence[object]]


def limited(seconds: float) -> SurfaceRateLimited:
    return SurfaceRateLimited("slow", retry_after_seconds=seconds)


def delivery(
    state: DeliveryState = "pending", ref: str | None = None, slot: DeliverySlot = "answer", ordinal: int = 0
) -> Delivery:
    return Delivery(
        delivery_id=f"{slot} {ordinal}", run_id="r", slot=slot, ordinal=ordinal, body={}, state=state, message_ref=ref
    )


class Chat:
    """A surface with streams, its rate limits and a store. Each call ends with the next outcome of its kind.

    `events` has the calls, with the seconds that each would wait for its turn, and the records. `@` is the time."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = {kind: [*each] for kind, each in outcomes.items()}
        self.events = list[str]()
        self.began = self.last = asyncio.get_running_loop().time()

    def note(self, event: str) -> None:
        now = asyncio.get_running_loop().time()
        self.events.append(f"{event} @{now - self.began:.0f}" if now - self.last > 0.1 else event)
        self.last = now

    def outcome(self, kind: str, default: object) -> Any:
        outcomes = self.outcomes.get(kind)
        outcome = outcomes.pop(0) if outcomes else default
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def reserve(self, _limit: RateLimit, *, wait_seconds_max: float) -> float:
        self.patience = f"{wait_seconds_max:.0f}"
        return 0.0

    async def call(self, kind: str, default: object, detail: str = "", precondition: Any = None) -> Any:
        await RateLimiter(cast(RateBudget, self)).admit([LIMIT], wait_seconds_max=30)
        if precondition:
            await precondition()
        self.note(" ".join(filter(None, (kind, detail, self.patience))))
        return self.outcome(kind, default)

    async def find(self, _address: Address, _delivery_id: str) -> str | None:
        return await self.call("find", None)

    async def post(
        self, _: Address, content: Content, *, files: Sequence[OutgoingFile], delivery_id: str, precondition: Any
    ) -> str:
        kind = "plain" if isinstance(content, AnswerPart) and content.is_plain else ""
        return await self.call(
            "post", "8.0", " ".join([kind, *(one.delivery_id for one in files)]).strip(), precondition
        )

    async def edit(self, _address: Address, ref: str, _content: Content, *, precondition: Any) -> None:
        await self.call("edit", None, ref, precondition)

    async def upload(self, _address: Address, _file: object, *, delivery_id: str, precondition: Any) -> str:
        return await self.call("upload", "8.0", "", precondition)

    async def react(self, _address: Address, _ref: str, sign: str | None, *, precondition: Any) -> None:
        await self.call("react", None, sign or "none", precondition)

    async def find_streams(self, _address: Address) -> object:
        return self.outcome("streams", self)

    async def start(self, _address: Address, *, delivery_id: str, precondition: Any) -> str:
        return await self.call("start", "8.0", "", precondition)

    async def append(self, _address: Address, stream: Delivery, text: str, *, precondition: Any) -> None:
        await self.call("append", None, f"{text} to {stream.message_ref}", precondition)

    async def finish(self, _address: Address, stream: Delivery, part: Any, *, precondition: Any) -> None:
        await self.call("finish", None, f"{stream.message_ref} {part and part.markdown}", precondition)

    async def plan_deliveries(self, _rendering: object, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        if not drafts:
            self.note("lease")
        planned = (delivery(slot=one.slot, ordinal=one.ordinal) for one in drafts)
        return *self.outcome("plan", ()), *planned

    async def record(self, _rendering: object, record: Delivery, *, was: DeliveryState | None) -> None:
        name = "" if record.slot == "answer" else f"{record.delivery_id} "
        self.note(f"{name}{record.state} {record.message_ref}")


Call = Callable[[Poster, Chat], Awaitable[object]]
OLD_PROBE = (delivery("delivered", "3.0", "notice", PROBE_ORDINAL), delivery("attempting"))
NEW_PROBE = (delivery("attempting", None, "notice", PROBE_ORDINAL),)


def show(state: DeliveryState = "pending", ref: str | None = None, content: Content = ANSWER, **more: Any) -> Call:
    return lambda poster, _: poster.post_or_edit(delivery(state, ref), content, **more)


def attach(error: Exception | None = None) -> AttachedFile:
    async def pieces() -> Any:
        yield b""

    def open_file() -> OutgoingFile:
        if error:
            raise error
        return OutgoingFile(name="a", size_bytes=0, pieces=pieces())

    return AttachedFile(delivery(slot="file"), open_file)


def send_file(state: DeliveryState) -> Call:
    return lambda poster, _: poster.send_file(delivery(state), cast(Any, SimpleNamespace))


def react(*, is_patient: bool = True) -> Call:
    return lambda poster, _: poster.set_reaction("5.0", "seen", is_patient=is_patient)


def start(poster: Poster, chat: Chat) -> Awaitable[object]:
    return poster.start_stream(delivery(), cast(AnswerStreams, chat))


def append(poster: Poster, chat: Chat) -> Awaitable[object]:
    return poster.append_to_stream(delivery("attempting", "5.0"), cast(AnswerStreams, chat), "more")


def finish(state: DeliveryState = "attempting", ref: str | None = "5.0", *answer: Any) -> Call:
    return lambda poster, _: poster.finish_stream(delivery(state, ref, "stream"), *answer)


TRIED = (
    "attempting None; post 3600; find 3600 @1; post 3600; lease @3; find 3600; post 3600; lease @7; find 3600; "
    "post 3600; lease @15; find 3600; post 3600; lease @31; find 3600; "
)
ROWS: Sequence[tuple[Call, Outcomes, str]] = [
    (show(), {}, "attempting None; post 3600; delivered 8.0"),
    (show(content=STATUS, is_final=False), {}, "attempting None; post 0; attempting 8.0"),
    (show("attempting", content=STATUS), {"find": ["7.0"]},
     "lease; find 3600; attempting 7.0; edit 7.0 3600; delivered 7.0"),
    (show(content=STATUS, may_wait=False), {"post": [limited(9)]},
     "attempting None; post 0; pending None; SurfaceRateLimited"),
    (show(content=STATUS, is_final=False), {"post": [UNCLEAR]},
     "attempting None; post 0; find 3600 @1; SurfaceUnclear"),
    (show("delivered"), {}, ""),
    (show("failed"), {}, ""),
    (show("attempting"), {"find": ["7.0"]}, "lease; find 3600; attempting 7.0; delivered 7.0"),
    (show("attempting"), {"find": [limited(9), limited(900)]},
     "lease; find 3600; lease @9; find 3600; lease @309; find 3600; attempting None; post 3600; delivered 8.0"),
    (show("attempting"), {"find": [UNCLEAR] * 6},
     "lease; find 3600; find 3600 @1; lease @3; find 3600; lease @6; find 3600; lease @10; find 3600; lease @15; "
     "find 3600; SurfaceUnclear"),
    (show("attempting", "5.0", STATUS, is_final=False), {}, "attempting 5.0; edit 5.0 2"),
    (show("attempting", "5.0", STATUS, is_final=False), {"edit": [limited(9)]},
     "attempting 5.0; edit 5.0 2; SurfaceRateLimited"),
    (show("stale", "5.0", STATUS), {"edit": [UNCLEAR, UNCLEAR]},
     "lease; edit 5.0 3600; edit 5.0 3600 @1; lease @3; edit 5.0 3600; delivered 5.0"),
    (show("stale", "5.0", STATUS), {"edit": [REFUSED]}, "lease; edit 5.0 3600; failed 5.0"),
    (show("attempting", "5.0"), {}, "delivered 5.0"),
    (show(), {"post": [REFUSED]}, "attempting None; post 3600; failed None; refused answer 0"),
    (show(), {"post": [UNCLEAR], "find": ["7.0"]},
     "attempting None; post 3600; find 3600 @1; attempting 7.0; delivered 7.0"),
    (show(), {"post": [UNCLEAR] * 6},
     TRIED + "post plain 3600; find 3600 @32; lease; notice 1000 attempting None; post 0; "
     "notice 1000 attempting 8.0; notice 1000 delivered 8.0; attempting None; post plain 3600; "
     "delivered 8.0"),
    (show(content=STATUS), {"post": [*[UNCLEAR] * 6, "8.0", UNCLEAR], "plan": [*[()] * 4, OLD_PROBE]},
     TRIED + "post 3600; find 3600 @32; lease; notice 1001 attempting None; post 0; "
     "notice 1001 attempting 8.0; notice 1001 delivered 8.0; attempting None; post 3600; "
     "find 3600 @33; failed None; refused answer 0"),
    (show(content=STATUS), {"post": [UNCLEAR] * 6, "find": [*[None] * 6, "9.0"], "plan": [*[()] * 5, NEW_PROBE]},
     TRIED + "post 3600; find 3600 @32; lease; find 3600; notice 1000 attempting 9.0; "
     "notice 1000 delivered 9.0; attempting None; post 3600; delivered 8.0"),
    (show(content=STATUS), {"post": [UNCLEAR] * 7},
     TRIED + "post 3600; find 3600 @32; lease; notice 1000 attempting None; post 0; find 3600 @33; SurfaceUnclear"),
    (show(files=[attach()]), {},
     "file 0 attempting None; attempting None; post file 0 3600; delivered 8.0; file 0 delivered 8.0"),
    (show(files=[attach()]), {"post": [REFUSED]},
     "file 0 attempting None; attempting None; post file 0 3600; file 0 pending None; attempting None; post 3600; "
     "delivered 8.0"),
    (show(files=[attach(RunError("gone"))]), {},
     "file 0 attempting None; attempting None; file 0 pending None; attempting None; post 3600; delivered 8.0"),
    (send_file("pending"), {}, "attempting None; upload 3600; delivered 8.0"),
    (send_file("attempting"), {}, "lease; find 3600; attempting None; upload 3600; delivered 8.0"),
    (send_file("attempting"), {"find": ["7.0"]}, "lease; find 3600; attempting 7.0; delivered 7.0"),
    (send_file("delivered"), {}, ""),
    (send_file("failed"), {}, ""),
    (send_file("pending"), {"upload": [REFUSED]}, "attempting None; upload 3600; no"),
    (react(), {}, "lease; react seen 3600; "),
    (react(is_patient=False), {}, "lease; react seen 2; "),
    (react(), {"react": [REFUSED]}, "lease; react seen 3600; no"),
    (react(), {"react": [UNCLEAR] * 6},
     "lease; react seen 3600; react seen 3600 @1; lease @3; react seen 3600; lease @6; react seen 3600; "
     "lease @10; react seen 3600; lease @15; react seen 3600; "),
    (react(is_patient=False), {"react": [UNCLEAR]}, "lease; react seen 2; "),
    (react(), {"plan": [StorageUnavailable("away")]}, "lease; StorageUnavailable"),
    (react(is_patient=False), {"plan": [StorageUnavailable("away")]}, "lease; "),
    (react(), {"plan": [LeaseLost("another")]}, "lease; "),
    (start, {}, "attempting None; start 0; attempting 8.0; True"),
    (start, {"start": [REFUSED]}, "attempting None; start 0; delivered None; False"),
    (append, {}, "lease; append more to 5.0 2"),
    (append, {"append": [UNCLEAR]}, "lease; append more to 5.0 2; SurfaceUnclear"),
    (finish(), {}, "lease; finish 5.0 None 3600; stream 0 delivered 5.0; False"),
    (finish("attempting", "5.0", delivery(), ANSWER), {},
     "lease; finish 5.0 text 3600; delivered 5.0; stream 0 delivered 5.0; True"),
    (finish("delivered"), {}, "False"),
    (finish("attempting", None), {}, "lease; find 3600; stream 0 delivered None; False"),
    (finish("attempting", None), {"find": ["7.0"]},
     "lease; find 3600; stream 0 attempting 7.0; finish 7.0 None 3600; stream 0 delivered 7.0; False"),
    (finish("attempting", "5.0", delivery(), ANSWER), {"streams": [None]}, "stream 0 delivered 5.0; False"),
    (finish("attempting", "5.0", delivery(), ANSWER), {"finish": [REFUSED]},
     "lease; finish 5.0 text 3600; stream 0 delivered 5.0; False"),
]  # fmt: skip


async def play(call: Call, outcomes: Outcomes) -> str:
    await asyncio.sleep(9)  # so that the lease is not as new as the clock
    chat = Chat(outcomes)
    rendering = cast(DeliveryLease, SimpleNamespace(run=SimpleNamespace(run_id="r")))
    poster = Poster(HERE, cast(DeliverySurface, chat), rendering, cast(Deliveries, chat))
    try:
        result = await call(poster, chat)
    except (SurfaceUnclear, SurfaceRateLimited, StorageUnavailable) as error:
        result = type(error).__name__
    if result is not None:
        chat.note(f"{result.code if isinstance(result, SurfaceRefused) else result}")
    chat.events += [f"refused {each.delivery_id}" for each in poster.refused_posts()]
    return "; ".join(chat.events)


@pytest.mark.parametrize(("call", "outcomes", "events"), ROWS)
@in_virtual_time
async def test_calls_and_records(call: Call, outcomes: Outcomes, events: str) -> None:
    assert await play(call, outcomes) == events
