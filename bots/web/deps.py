"""What the HTTP API stands on: given by the bootstrap, kept in the application."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bots.inbound.actions import Outcome, UserAction
from core.ports import EventBus, SandboxProvider
from core.stores import Conversations

Receive = Callable[[UserAction], Awaitable[Outcome]]
Stop = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    """`receive` takes a message in, whoever wrote it; `stop` asks a run to stop and says whether it was still active.

    `sandboxes` is None where the sandbox tools are off. `link_secret` signs file links. `upload_bytes_max` is for one
    file. With an empty `api_token` the API is open, to programs on this machine alone. `expose_domain` is what stands
    behind the labels of exposed ports; empty: localhost, where there is no `public_url`.
    """

    conversations: Conversations
    bus: EventBus
    receive: Receive
    stop: Stop
    sandboxes: SandboxProvider | None
    spool_folder: Path
    link_secret: bytes
    upload_bytes_max: int
    api_token: str = ""
    public_url: str = ""
    expose_domain: str = ""
    heartbeat_seconds: float = 15.0


DEPS: web.AppKey[WebDeps] = web.AppKey("ports", WebDeps)
