"""Active browser take-overs: who controls the browser, how long it has been idle, and how the agent gets it back."""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from bots.web.deps import WebDeps
from bots.web.links import TakeoverLink
from core.domain.actions import ActorContext, AskAnswered, IncomingMessage
from core.domain.errors import StorageUnavailable
from core.domain.threads import Person, ThreadSnapshot
from core.failpoints import Failpoint
from core.stores import TakeoverClaim
from core.tasks import cancel, repeat, spawn

IDLE_SECONDS = 10 * 60.0
LOOK_SECONDS = 60.0
"""How often each process looks for take-overs that another process began."""
NOTE_CHARACTERS_MAX = 4000
RETRY_SECONDS = 5.0
SOCKET_CLOSE_SECONDS = 5.0
VISITOR = Person(person_id="", name="somebody with the link")
AS_APP = ActorContext(app_ids=frozenset({"takeover"}))
"""Marks the message as an app's, because anyone with the link can send it. Apps answer and approve nothing."""
HANDED_BACK = "I am done in the browser; it is yours again."
IDLE_TOO_LONG = "(The browser comes back to you because nobody used it for some minutes.)"
EXPIRED = "(The browser comes back to you because the time for it was over.)"
HAND_BACK = Failpoint("web.hand_back")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TakeoverSession:
    """The state of a take-over in this process.

    `used_at` is the Unix time of the user's last action. `note` is the user's current text, even if not submitted.
    `sockets` maps the WebSocket of each open page to an event that is set when the page no longer controls the browser.
    """

    claim: TakeoverClaim
    used_at: float
    note: str = ""
    sockets: dict[web.WebSocketResponse, asyncio.Event] = field(
        default_factory=dict[web.WebSocketResponse, asyncio.Event]
    )
    watcher: asyncio.Task[None] | None = None


class TakeoverSessions:
    """Manages all take-overs. Each process monitors those of all processes, because the others may die.

    A take-over ends when the user hands the browser back or is idle for too long, or when its link expires."""

    def __init__(self, deps: WebDeps, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._deps = deps
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, TakeoverSession] = {}
        self._finder: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts monitoring take-overs, also those that were active when the program last ended."""
        await self._monitor_active()
        work = repeat(self._monitor_active, LOOK_SECONDS, "active take-overs cannot be found")
        self._finder = spawn(work, name="active take-overs")

    async def _monitor_active(self) -> None:
        for claim in await self._deps.takeover_claims.active_claims():
            self.get_or_start_session(claim)

    async def close(self) -> None:
        if self._finder is not None:
            await cancel(self._finder)
        for session in list(self._sessions.values()):
            if session.watcher is not None:
                await cancel(session.watcher)
            await _close_sockets(session)

    async def claim(self, link: TakeoverLink) -> str | None:
        """Claims a take-over link for the first caller.

        Returns the cookie that identifies this user, or None if the link is already claimed. Raises StorageUnavailable
        if the claim cannot be stored."""
        cookie = secrets.token_urlsafe(32)
        claim = TakeoverClaim(
            link_key=link.key,
            thread_id=link.thread_id,
            cookie_hash=_hash_cookie(cookie),
            expires_at=datetime.fromtimestamp(link.expires_at, UTC),
            used_at=datetime.now(UTC),
        )
        if not await self._deps.takeover_claims.claim(claim):
            return None
        self.get_or_start_session(claim)  # starts monitoring, even if the page never connects
        return cookie

    async def find_claim(self, link_key: str) -> TakeoverClaim | None:
        return await self._deps.takeover_claims.find(link_key)

    async def is_over(self, session: TakeoverSession) -> bool:
        """Whether the take-over has ended, perhaps in another process."""
        claim = await self.find_claim(session.claim.link_key)
        return claim is None or claim.is_ended

    def get_or_start_session(self, claim: TakeoverClaim) -> TakeoverSession:
        """Returns the session of a claim. The first call starts monitoring it for idle time and expiry."""
        session = self._sessions.get(claim.link_key)
        if session is None:
            session = TakeoverSession(claim=claim, used_at=time.time())
            self._sessions[claim.link_key] = session
            session.watcher = spawn(self._watch(session), name="idle take-over")
        return session

    def record_use(self, session: TakeoverSession, note: str | None = None) -> None:
        """Records that the user is active. `note` replaces the user's text if it is not None."""
        session.used_at = time.time()
        if note is not None:
            session.note = note[:NOTE_CHARACTERS_MAX]

    async def finish(self, session: TakeoverSession, reason: str = HANDED_BACK) -> bool:
        """Hands the browser back and notifies the agent. Returns False if the take-over has already ended.

        Raises StorageUnavailable if the database cannot be used. The call can then be repeated."""
        claim = session.claim
        if await self.is_over(session):
            return False
        await _close_sockets(session)
        snapshot = await self._deps.conversations.snapshot(claim.thread_id)
        if snapshot is not None:
            note = session.note.strip()
            with HAND_BACK:
                text = f"{note}\n\n{reason}" if note else reason
                await self._notify_agent(snapshot, claim.link_key, text)
        is_first = await self._deps.takeover_claims.end(claim.link_key)
        self._sessions.pop(claim.link_key, None)
        await _close_sockets(session)  # those that connected in the meantime
        if session.watcher is not None and session.watcher is not asyncio.current_task():
            await cancel(session.watcher)
        return is_first

    async def _notify_agent(self, snapshot: ThreadSnapshot, link_key: str, text: str) -> None:
        """Answers the question that contains the take-over link, or sends a message if the question is closed.

        The dedupe key ensures that repeated calls have no further effect."""
        ask, now = snapshot.open_ask, datetime.now(UTC)
        address, dedupe_key = snapshot.thread.address, f"takeover:{link_key}"
        if ask is not None and ask.kind != "approval" and link_key in ask.text:
            answer = AskAnswered(
                address=address, dedupe_key=dedupe_key, ask_id=ask.ask_id, text=text, person=VISITOR, sent_at=now
            )
            await self._deps.receive(answer)
            return
        message = IncomingMessage(
            address=address, dedupe_key=dedupe_key, message_ref="", person=VISITOR, text=text, sent_at=now, actor=AS_APP
        )
        await self._deps.receive(message)

    async def _watch(self, session: TakeoverSession) -> None:
        """Ends the take-over when it is idle for too long or expires.

        Several processes may monitor the same take-over. Those without the user's page read the time of the last use
        from the database."""
        expires_at = session.claim.expires_at.timestamp()
        while True:
            try:
                if await self._synchronize(session):
                    return
                now = time.time()
                idle_left = session.used_at + self._idle_seconds - now
                if min(idle_left, expires_at - now) <= 0:
                    await self.finish(session, EXPIRED if expires_at <= now else IDLE_TOO_LONG)
                    return
                await asyncio.sleep(min(idle_left, expires_at - now, self._idle_seconds / 4))
            except StorageUnavailable as error:
                log.warning("a browser could not be handed back yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _synchronize(self, session: TakeoverSession) -> bool:
        """Synchronizes the time of the user's last action with the database, which other processes also update.

        Returns True if the take-over has ended."""
        claims, link_key = self._deps.takeover_claims, session.claim.link_key
        found = await claims.find(link_key)
        if found is None or found.is_ended:
            self._sessions.pop(link_key, None)
            await _close_sockets(session)
            return True
        stored = found.used_at.timestamp()
        if stored < session.used_at:
            await claims.record_use(link_key, datetime.fromtimestamp(session.used_at, UTC))
        session.used_at = max(session.used_at, stored)
        return False


def is_holder(claim: TakeoverClaim, cookie: str) -> bool:
    """Whether the cookie belongs to the user who claimed the link."""
    return hmac.compare_digest(claim.cookie_hash, _hash_cookie(cookie))


def _hash_cookie(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


async def _close_sockets(session: TakeoverSession) -> None:
    """Closes the pages of a take-over and waits until they release the browser.

    Must happen before the agent is notified, because the agent cannot use the browser until then."""
    for socket, is_released in list(session.sockets.items()):
        await socket.close(code=4000, message=b"handed back")
        with suppress(TimeoutError):
            async with asyncio.timeout(SOCKET_CLOSE_SECONDS):
                await is_released.wait()


TAKEOVER_SESSIONS: web.AppKey[TakeoverSessions] = web.AppKey("takeovers", TakeoverSessions)
