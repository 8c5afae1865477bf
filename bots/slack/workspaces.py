"""The workspaces that the app serves, each with a client that has its own token."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from weakref import WeakValueDictionary

from bots.delivery.content import Content
from bots.slack import limits
from bots.slack.events.handler import EventHandler
from bots.slack.events.payload_fields import Origin
from bots.slack.install.tokens import TokenSource, WorkspaceToken
from bots.slack.surface import CLOSED_REASONS, SlackSurface
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.downloads import FileRefSigner, SlackFiles
from bots.slack.web_api.history import SlackThreadHistory, parse_message_time
from bots.slack.web_api.posting import SlackStreams
from core.domain.errors import AgentError, SurfaceRefused
from core.domain.threads import Address, ChatMessage, ChatPage, IncomingFile
from core.ports import OutgoingFile, Precondition, Reaction

TOKEN_RECHECK_SECONDS = 30.0
"""Maximum time for which a process may use a token that another process has replaced or deleted."""
FOREIGN_CHANNEL_CODE = "channel_not_found"
IDLE_SECONDS = 3600.0
"""A workspace's client and its caches are closed after this time without an event or call."""
_KNOWN_CHANNELS_MAX = 5000

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Workspace:
    """One workspace with its client and adapters.

    `token_read_at` is the monotonic time at which the token was last read, None for a configured token. `installed_by`
    is the id of the workspace, or of the organisation whose token serves it. `known_channel_ids` caches the channels
    that belong to this workspace, which is checked only for an organisation's token.
    """

    client: SlackClient
    surface: SlackSurface
    files: SlackFiles
    thread_history: SlackThreadHistory
    event_handler: EventHandler | None
    installed_by: str = ""
    token_read_at: float | None = None
    known_channel_ids: set[str] = field(default_factory=set[str])

    @property
    def uses_organisation_token(self) -> bool:
        return self.installed_by not in ("", self.client.identity.team_id)


class Workspaces:
    """Finds workspaces by id and creates their clients. `tokens` is None if a single token is configured.

    Looking up a token may wait for Slack to refresh it. Lookups of different workspaces do not wait for each other.
    """

    def __init__(
        self,
        *,
        tokens: TokenSource | None,
        new_client: Callable[[str], SlackClient],
        new_event_handler: Callable[[SlackClient], EventHandler | None],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._tokens = tokens
        self._new_client = new_client
        self._new_event_handler = new_event_handler
        self._idle_seconds = idle_seconds
        self._workspaces: dict[str, Workspace] = {}
        self._sharing: dict[str, frozenset[str]] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self.uninstalling = asyncio.Lock()

    def build_workspace(self, client: SlackClient) -> Workspace:
        """Builds the adapters that use the client."""
        return Workspace(
            client=client,
            surface=SlackSurface(client),
            files=SlackFiles(client),
            thread_history=SlackThreadHistory(client),
            event_handler=self._new_event_handler(client),
        )

    def add(self, team_id: str, workspace: Workspace) -> None:
        """Adds the workspace of the configured token."""
        self._workspaces[team_id] = workspace

    @property
    def active_ids(self) -> tuple[str, ...]:
        """The ids of the workspaces that have an open client."""
        return tuple(self._workspaces)

    async def find(self, team_id: str) -> Workspace | None:
        """Returns the workspace, or None if the bot is not installed in it. Raises StorageUnavailable."""
        if (workspace := self._find_fresh(team_id)) is not None or self._tokens is None:
            return workspace
        async with self._locks.setdefault(team_id, asyncio.Lock()):
            if (workspace := self._find_fresh(team_id)) is not None:
                return workspace
            return await self._refresh(team_id, await self._tokens.find_token(team_id))

    def _find_fresh(self, team_id: str) -> Workspace | None:
        workspace = self._workspaces.get(team_id)
        if workspace is None or workspace.token_read_at is None:
            return workspace
        return workspace if time.monotonic() - workspace.token_read_at < TOKEN_RECHECK_SECONDS else None

    async def _refresh(self, team_id: str, access: WorkspaceToken | None) -> Workspace | None:
        workspace = self._workspaces.get(team_id)
        if workspace is not None and (access is None or access.identity != workspace.client.identity):
            await self.remove(team_id)
            workspace = None
        if access is None:
            return None
        if workspace is None:
            await self._close_idle()
            client = self._new_client(access.token)
            client.open_session(access.identity)
            workspace = self._workspaces[team_id] = self.build_workspace(client)
        workspace.client.set_token(access.token)
        workspace.installed_by = access.installed_by
        workspace.token_read_at = time.monotonic()
        return workspace

    async def _close_idle(self) -> None:
        oldest = time.monotonic() - self._idle_seconds
        silent = [
            team_id
            for team_id, workspace in self._workspaces.items()
            if workspace.token_read_at is not None and workspace.token_read_at < oldest
        ]
        # Remove all before closing any, because an event may reopen one workspace while another is being closed.
        for workspace in [self._workspaces.pop(team_id) for team_id in silent]:
            await _close_workspace(workspace)

    async def find_for_origin(self, origin: Origin) -> Workspace | None:
        """Returns the workspace that a payload came from, or None. Raises StorageUnavailable.

        If the organisation installed the app, links a workspace without a token of its own to the organisation's.
        """
        team_id, organisation_id = origin.team_id, origin.organisation_id
        workspace = await self.find(team_id)
        if workspace is not None or self._tokens is None or not (team_id and organisation_id):
            return workspace
        is_served = await self._tokens.link_workspace(team_id, organisation_id)
        return await self.find(team_id) if is_served else None

    async def find_sharing(self, channel_id: str, team_ids: frozenset[str]) -> list[Workspace]:
        """Returns the workspaces with the bot that share a Slack Connect channel: those of `team_ids`, which an event
        names, and those that earlier events of the channel named. Raises StorageUnavailable."""
        if not team_ids:
            return []
        known = self._sharing.pop(channel_id, frozenset[str]()) | team_ids
        found = [one for team_id in sorted(known) if (one := await self.find(team_id)) is not None]
        self._sharing[channel_id] = frozenset(one.client.identity.team_id for one in found)
        if len(self._sharing) > _KNOWN_CHANNELS_MAX:
            del self._sharing[next(iter(self._sharing))]
        return found

    async def get(self, team_id: str) -> Workspace:
        """Returns the workspace. Raises SurfaceRefused if the bot is not installed in it, and StorageUnavailable."""
        workspace = await self.find(team_id)
        if workspace is None:
            raise SurfaceRefused("the bot is not installed in this workspace", code="not_installed")
        return workspace

    async def get_for_address(self, address: Address) -> Workspace:
        """Returns the workspace of an address. Raises SurfaceRefused or StorageUnavailable.

        An organisation's token can access the channels of all its workspaces, so a channel is refused unless the
        workspace already has a thread in it.
        """
        workspace = await self.get(address.workspace_id)
        channel_id = address.channel_id
        if not workspace.uses_organisation_token or self._tokens is None or channel_id in workspace.known_channel_ids:
            return workspace
        if not await self._tokens.has_threads_in(address.workspace_id, channel_id):
            raise SurfaceRefused("the channel does not belong to this workspace", code=FOREIGN_CHANNEL_CODE)
        if len(workspace.known_channel_ids) >= _KNOWN_CHANNELS_MAX:
            workspace.known_channel_ids.clear()
        workspace.known_channel_ids.add(channel_id)
        return workspace

    async def remove(self, team_id: str) -> None:
        """Closes a workspace that removed the bot, or every workspace of an organisation that did."""
        gone = [one for one, workspace in self._workspaces.items() if team_id in {one, workspace.installed_by} - {""}]
        for workspace in [self._workspaces.pop(one) for one in gone]:
            await _close_workspace(workspace)

    async def close(self) -> None:
        for workspace in self._workspaces.values():
            await _close_workspace(workspace)
        self._workspaces.clear()


async def _close_workspace(workspace: Workspace) -> None:
    if workspace.event_handler is not None:
        await workspace.event_handler.close()
    await workspace.client.close()


class MultiWorkspaceSurface:
    """ChatSurface and ChatPresence for all workspaces. Each call uses the token of the address's workspace."""

    platform = "slack"
    answer_limit: int = limits.ANSWER_MAX
    files_per_message = SlackSurface.files_per_message
    edit_interval_seconds: float = limits.EDIT_INTERVAL_SECONDS
    closed_reasons = CLOSED_REASONS

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def file_limit(self, address: Address) -> int:
        return limits.FILE_BYTES_MAX

    async def _surface_for(self, address: Address) -> SlackSurface:
        return (await self._workspaces.get_for_address(address)).surface

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        files: Sequence[OutgoingFile] = (),
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        return await (await self._surface_for(address)).post(
            address, content, files=files, delivery_id=delivery_id, precondition=precondition
        )

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition | None = None
    ) -> None:
        await (await self._surface_for(address)).edit(address, message_ref, content, precondition=precondition)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition | None = None
    ) -> str:
        return await (await self._surface_for(address)).upload(
            address, file, delivery_id=delivery_id, precondition=precondition
        )

    async def streams(self, address: Address) -> SlackStreams | None:
        return await (await self._surface_for(address)).streams(address)

    async def delete(self, address: Address, message_ref: str) -> None:
        await (await self._surface_for(address)).delete(address, message_ref)

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        await (await self._surface_for(address)).tell_privately(address, person_id, text)

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncGenerator[Address]:
        surface = await self._surface_for(address)
        async for elsewhere in surface.fallback_addresses(address, person_id):
            yield elsewhere

    async def find(self, address: Address, delivery_id: str) -> str | None:
        return await (await self._surface_for(address)).find(address, delivery_id)

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        await (await self._surface_for(address)).react(address, message_ref, reaction, precondition=precondition)

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncGenerator[None]:
        try:
            surface = await self._surface_for(address)
        except SurfaceRefused:
            yield
            return
        async with surface.typing(address):
            yield


class MultiWorkspaceFileSource:
    """FileSource for all workspaces. Opens a file with the token of the workspace that received it."""

    def __init__(self, workspaces: Workspaces, file_ref_signer: FileRefSigner) -> None:
        self._workspaces = workspaces
        self._file_ref_signer = file_ref_signer

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        named = self._file_ref_signer.verify(file)
        workspace = await self._workspaces.find(named.team_id) if named else None
        if named is None or workspace is None or (workspace.uses_organisation_token and not named.is_sealed):
            raise AgentError(
                f"The file {file.name!r} cannot be read from Slack.", detail="its workspace has not installed the bot"
            )
        async for piece in workspace.files.open(named.file, bytes_max=bytes_max):
            yield piece


class MultiWorkspaceThreadHistory:
    """Reads threads of all workspaces, each with its own token (their ChatHistory)."""

    def __init__(self, workspaces: Workspaces, file_ref_signer: FileRefSigner) -> None:
        self._workspaces = workspaces
        self._file_ref_signer = file_ref_signer

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        workspace = await self._workspaces.get_for_address(address)
        history = workspace.thread_history
        page = await history.read(address, before=before, limit=limit, after=after)
        return replace(
            page,
            messages=tuple(self._signed(address, one) for one in page.messages),
            root=page.root and self._signed(address, page.root),
        )

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        workspace = await self._workspaces.get_for_address(address)
        if workspace.uses_organisation_token:
            # the token reads the channels of all the organisation's workspaces, so only this channel's are resolved
            here = f"/archives/{address.channel_id}/"
            text = " ".join(word for word in text.split() if here in word)
        found = await workspace.thread_history.read_linked(address, text, person_id=person_id)
        return {link: one and self._signed(address, one) for link, one in found.items()}

    def sent_at(self, message_ref: str) -> datetime:
        return parse_message_time(message_ref)

    def _signed(self, address: Address, message: ChatMessage) -> ChatMessage:
        sign = self._file_ref_signer.sign
        files = tuple(sign(address.workspace_id, file) for file in message.files)
        return replace(message, files=files)
