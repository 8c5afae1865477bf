"""The dependencies of the HTTP API, which are stored in the aiohttp application."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from aiohttp import web

from bots.inbound.actions import Receive
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.commands.schedules import ScheduleDeps
from bots.web.links import SignedLinks
from core.agents.roster import Roster
from core.domain.audit import AuditLog
from core.domain.threads import APP_PREFIX, Address, Person
from core.ports import EventBus, SandboxProvider
from core.stores import Conversations, Inbox, TakeoverClaims

API_PLACE = Address(platform="api", workspace_id="api", channel_id="api", thread_key="")
"""The address of the API's own threads, without a thread key."""
API_PERSON = Person(person_id="api", name="HTTP API")
"""The person who acts over HTTP. Clients are not distinguished."""
CHAT_PERSON = Person(person_id=f"{APP_PREFIX}{API_PERSON.person_id}", name=API_PERSON.name)
"""The author of API messages in a chat. It is an app, whose messages answer and approve nothing."""
Stop = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsDeps:
    """Dependencies of the routes of agents and knowledge."""

    roster: Roster
    knowledge: KnowledgeDeps
    audit: AuditLog


class PostOnce(Protocol):
    """Posts Markdown into a chat thread, and returns the message's id. With `may_be_posted`, a message with the
    delivery id is looked for first. Raises SurfaceError."""

    async def __call__(self, address: Address, text: str, *, delivery_id: str, may_be_posted: bool) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """Dependencies of the HTTP API.

    `receive` stores a message without an access check. `propose` posts a card with a text, a mapping from the labels of
    its buttons to their commands, and a title. It raises SurfaceError. `stop` requests that a run stop and returns
    whether the run was still active. `sandboxes` is None if the sandbox tools are disabled. `upload_bytes_max` limits
    the size of each file. If `api_token` is empty, only programs on this machine have access. `time_zone` is used for
    schedules without a time zone."""

    conversations: Conversations
    takeover_claims: TakeoverClaims
    bus: EventBus
    receive: Receive
    inbox: Inbox
    post: PostOnce
    propose: Callable[[Address, str, Mapping[str, str], str], Awaitable[object]]
    stop: Stop
    sandboxes: SandboxProvider | None
    spool_folder: Path
    links: SignedLinks
    upload_bytes_max: int
    schedules: ScheduleDeps
    time_zone: str = "UTC"
    api_token: str = ""
    heartbeat_seconds: float = 15.0
    agents: AgentsDeps | None = None
    post_locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary[str, asyncio.Lock])
    """A lock for each message, by its key, that this process is posting in a chat and storing."""


DEPS: web.AppKey[WebDeps] = web.AppKey("deps", WebDeps)
