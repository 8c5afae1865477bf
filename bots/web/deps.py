"""The dependencies of the HTTP API, which are stored in the aiohttp application."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bots.inbound.actions import Outcome, UserAction
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.commands.schedules import ScheduleDeps
from bots.web.links import SignedLinks
from core.agents.roster import Roster
from core.domain.audit import AuditLog
from core.domain.threads import APP_PREFIX, Address, Person
from core.ports import EventBus, SandboxProvider
from core.stores import Conversations, TakeoverClaims

API_PLACE = Address(platform="api", workspace_id="api", channel_id="api", thread_key="")
"""Where the API's own threads are."""
API_PERSON = Person(person_id="api", name="HTTP API")
"""Who acts over HTTP: the clients are not told apart."""
CHAT_PERSON = Person(person_id=f"{APP_PREFIX}{API_PERSON.person_id}", name=API_PERSON.name)
"""Whose words they are in a chat: an app's, which answer and approve nothing."""
Receive = Callable[[UserAction], Awaitable[Outcome]]
Stop = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsDeps:
    """Dependencies of the routes of agents and knowledge."""

    roster: Roster
    knowledge: KnowledgeDeps
    audit: AuditLog


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """Dependencies of the HTTP API.

    `receive` stores a message without an access check, and `is_claimed` tells whether one with this key was stored.
    `post` posts Markdown into a chat thread, and returns the message's id or raises SurfaceError. `propose` posts a
    card, with its text, the commands of its buttons by their labels, and a title, and raises SurfaceError, too. `stop`
    requests that a run stop and returns whether the run was still active. `sandboxes` is None if the sandbox tools are
    disabled. `upload_bytes_max` limits the size of each file. If `api_token` is empty, only programs on this machine
    have access. `time_zone` is that of schedules whose client names none."""

    conversations: Conversations
    takeover_claims: TakeoverClaims
    bus: EventBus
    receive: Receive
    is_claimed: Callable[[str], Awaitable[bool]]
    post: Callable[[Address, str], Awaitable[str]]
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


DEPS: web.AppKey[WebDeps] = web.AppKey("deps", WebDeps)
