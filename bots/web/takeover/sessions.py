"""Take-overs in progress: who controls the browser, how long it has been idle, and handing it back to the agent."""

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

from bots.inbound.actions import AskAnswered, IncomingMessage
from bots.web.deps import WebDeps
from bots.web.links import TakeoverLink
from core.domain.errors import StorageUnavailable
from core.domain.threads import Person, ThreadSnapshot
from core.failpoints import Failpoint
from core.stores import TakeoverClaim
from core.tasks import cancel, spawn

IDLE_SECONDS = 10 * 60.0
NOTE_CHARACTERS_MAX = 4000
RETRY_SECONDS = 5.0
SOCKET_CLOSE_SECONDS = 5.0
HANDED_BACK = "I am done in the browser; it is yours again."
IDLE_TOO_LONG = "(The browser comes back to you because nobody used it for some minutes.)"
EXPIRED = "(The browser comes back to you because the time for it was over.)"
HAND_BACK = Failpoint("web.hand_back")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TakeoverSession:
    """One person's take-over, as this process sees it.

    `used_at` is a Unix time. `note` is the person's text so far, submitted or not. `sockets` are the open pages, each
    with an event that is set once the page no longer controls the browser.
    """

    claim: TakeoverClaim
    used_at: float
    note: str = ""
    sockets: dict[web.WebSocketResponse, asyncio.Event] = field(
        default_factory=dict[web.WebSocketResponse, asyncio.Event]
    )
    watcher: asyncio.Task[None] | None = None


class TakeoverSessions:
    """Ends each take-over once: when it is handed back, idle for too long, or out of time."""

    def __init__(self, deps: WebDeps, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._deps = deps
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, TakeoverSession] = {}

    async def start(self) -> None:
        """Resumes watching the take-overs that were active when the program ended."""
        for claim in await self._deps.takeover_claims.active():
            self.session_of(claim)

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            if session.watcher is not None:
                await cancel(session.watcher)
            await _close_sockets(session)

    async def claim(self, link: TakeoverLink) -> str | None:
        """Gives the browser to the first caller. Returns the cookie for that person's own browser, or None if the
        link has been claimed before. Raises StorageUnavailable."""
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
        self.session_of(claim)  # watched from now on, whether the page comes back or not
        return cookie

    async def find_claim(self, link_key: str) -> TakeoverClaim | None:
        return await self._deps.takeover_claims.find(link_key)

    def session_of(self, claim: TakeoverClaim) -> TakeoverSession:
        """Returns the claim's session, which is watched from the first call on."""
        session = self._sessions.get(claim.link_key)
        if session is None:
            session = TakeoverSession(claim=claim, used_at=time.time())
            self._sessions[claim.link_key] = session
            session.watcher = spawn(self._watch(session), name="idle take-over")
        return session

    def record_use(self, session: TakeoverSession, note: str | None = None) -> None:
        """The person did something; `note` replaces the text written so far."""
        session.used_at = time.time()
        if note is not None:
            session.note = note[:NOTE_CHARACTERS_MAX]

    async def finish(self, session: TakeoverSession, reason: str = HANDED_BACK) -> bool:
        """Gives the browser back and tells the agent. Returns False if that has happened already.

        Raises StorageUnavailable; then nothing is done, and the call may be repeated.
        """
        claim = session.claim
        found = await self.find_claim(claim.link_key)
        if found is None or found.is_ended:
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
        if session.watcher is not None and session.watcher is not asyncio.current_task():
            await cancel(session.watcher)
        return is_first

    async def _notify_agent(self, snapshot: ThreadSnapshot, link_key: str, text: str) -> None:
        """Answers the question that holds the link, or sends a message if another answer came first. The dedupe key
        makes a repetition harmless."""
        run, ask = snapshot.last_run, snapshot.open_ask
        person = run.requester if run and run.requester else Person(person_id="api", name="")
        now = datetime.now(UTC)
        address, dedupe_key = snapshot.thread.address, f"takeover:{link_key}"
        if ask is not None and link_key in ask.text:
            answer = AskAnswered(
                address=address,
                dedupe_key=dedupe_key,
                ask_id=ask.ask_id,
                value=text,
                person=person,
                sent_at=now,
            )
            await self._deps.receive(answer)
            return
        message = IncomingMessage(
            address=address,
            dedupe_key=dedupe_key,
            message_ref="",
            author=person,
            text=text,
            sent_at=now,
            is_addressed=True,
        )
        await self._deps.receive(message)

    async def _watch(self, session: TakeoverSession) -> None:
        """Ends the take-over when it is idle or out of time, in whichever process that happens.

        A process without the person's page learns of their use, and of the end, from the stored claim.
        """
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
        """Exchanges the time of the last use with other processes. Returns True if the take-over has ended."""
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
    """Whether the cookie belongs to the person who claimed the link."""
    return hmac.compare_digest(claim.cookie_hash, _hash_cookie(cookie))


def _hash_cookie(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


async def _close_sockets(session: TakeoverSession) -> None:
    """Frees the browser before the agent is told: until then, the agent's first look would be refused."""
    for socket, is_released in list(session.sockets.items()):
        await socket.close(code=4000, message=b"handed back")
        with suppress(TimeoutError):
            await asyncio.wait_for(is_released.wait(), SOCKET_CLOSE_SECONDS)


TAKEOVER_SESSIONS: web.AppKey[TakeoverSessions] = web.AppKey("takeovers", TakeoverSessions)
