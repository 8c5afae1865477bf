"""Take-overs as they go on: the way to the browser, how long nobody has used it, and the handing back."""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from bots.inbound.actions import AskAnswered, IncomingMessage
from bots.web.deps import WebDeps
from bots.web.takeover.claims import Claim, Claims
from core.domain.errors import StorageUnavailable
from core.domain.threads import Person, ThreadSnapshot
from core.failpoints import Failpoint
from core.tasks import cancel, spawn

IDLE_SECONDS = 10 * 60.0
NOTE_CHARACTERS_MAX = 4000
RETRY_SECONDS = 5.0
LET_GO_SECONDS = 5.0
HANDED_BACK = "I am done in the browser; it is yours again."
IDLE_TOO_LONG = "(The browser comes back to you because nobody used it for some minutes.)"
EXPIRED = "(The browser comes back to you because the time for it was over.)"
HAND_BACK = Failpoint("web.hand_back")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TakeoverSession:
    """One person's take-over. `note` is what they have written so far, sent off or not; `visits` are the pages that
    are open, each with the event that its hands have let go of the browser."""

    claim: Claim
    used_at: float
    note: str = ""
    visits: dict[web.WebSocketResponse, asyncio.Event] = field(
        default_factory=dict[web.WebSocketResponse, asyncio.Event]
    )
    watcher: asyncio.Task[None] | None = None


class TakeoverSessions:
    """Ends each take-over once: handed back, left alone, or out of time."""

    def __init__(self, ports: WebDeps, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.claims = Claims(ports.spool_folder.with_name("takeovers"))
        self._ports = ports
        self._idle_seconds = idle_seconds
        self._takings: dict[str, TakeoverSession] = {}

    async def start(self) -> None:
        """Looks after those again that were going on when the program ended."""
        for claim in await asyncio.to_thread(self.claims.open):
            self.taking(claim)

    async def close(self) -> None:
        for taking in list(self._takings.values()):
            if taking.watcher is not None:
                await cancel(taking.watcher)
            await _close_sockets(taking)

    def taking(self, claim: Claim) -> TakeoverSession:
        """The take-over of the claim, which is looked after from then on."""
        taking = self._takings.get(claim.key)
        if taking is None:
            taking = self._takings[claim.key] = TakeoverSession(
                claim=claim, used_at=time.monotonic()
            )
            taking.watcher = spawn(self._watch(taking), name="idle take-over")
        return taking

    def use(self, taking: TakeoverSession, note: str | None = None) -> None:
        """The person did something."""
        taking.used_at = time.monotonic()
        if note is not None:
            taking.note = note[:NOTE_CHARACTERS_MAX]

    async def finish(self, taking: TakeoverSession, why: str = HANDED_BACK) -> bool:
        """Gives the browser back and tells the agent. False where that was done already.

        Raises StorageUnavailable; then nothing is done, and it may be tried again.
        """
        claim = taking.claim
        found = await asyncio.to_thread(self.claims.find, claim.key)
        if found is None or found.is_done:
            return False
        await _close_sockets(taking)
        snapshot = await self._ports.conversations.snapshot(claim.thread_id)
        if snapshot is not None:
            with HAND_BACK:
                await self._tell(snapshot, claim.key, _told(why, taking.note))
        is_first = await asyncio.to_thread(self.claims.end, claim.key)
        self._takings.pop(claim.key, None)
        if taking.watcher is not None and taking.watcher is not asyncio.current_task():
            await cancel(taking.watcher)
        return is_first

    async def _tell(self, snapshot: ThreadSnapshot, key: str, text: str) -> None:
        """As the answer to the question with the link, or as a message where another answer came first. A repeated
        one is known by its key."""
        run, ask = snapshot.last_run, snapshot.open_ask
        person = run.requester if run and run.requester else Person(person_id="api", name="")
        moment = datetime.now(UTC)
        address, dedupe_key = snapshot.thread.address, f"takeover:{key}"
        if ask is not None and key in ask.text:
            answer = AskAnswered(
                address=address,
                dedupe_key=dedupe_key,
                ask_id=ask.ask_id,
                value=text,
                person=person,
                sent_at=moment,
            )
            await self._ports.receive(answer)
            return
        message = IncomingMessage(
            address=address,
            dedupe_key=dedupe_key,
            message_ref="",
            author=person,
            text=text,
            sent_at=moment,
            is_addressed=True,
        )
        await self._ports.receive(message)

    async def _watch(self, taking: TakeoverSession) -> None:
        while True:
            idle_left = taking.used_at + self._idle_seconds - time.monotonic()
            time_left = taking.claim.expires_at - time.time()
            if min(idle_left, time_left) > 0:
                await asyncio.sleep(min(idle_left, time_left))
                continue
            try:
                await self.finish(taking, EXPIRED if time_left <= 0 else IDLE_TOO_LONG)
            except StorageUnavailable as error:
                log.warning("a browser was not handed back yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return


async def _close_sockets(taking: TakeoverSession) -> None:
    """The agent hears nothing before the browser is free: its first look would be refused."""
    for socket, is_over in list(taking.visits.items()):
        await socket.close(code=4000, message=b"handed back")
        with suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), LET_GO_SECONDS)


def _told(why: str, note: str) -> str:
    return f"{note.strip()}\n\n{why}" if note.strip() else why


TAKEOVER_SESSIONS: web.AppKey[TakeoverSessions] = web.AppKey("takeovers", TakeoverSessions)
