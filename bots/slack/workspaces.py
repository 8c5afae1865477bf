"""The workspaces that the app serves, each with a client that has its own token."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from bots.slack.events.handler import EventHandler
from bots.slack.events.payload_fields import Tenant
from bots.slack.install.tokens import TokenSource, UnreadableToken
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.users import UserLookup
from core.domain.errors import RunError, SurfaceRefused
from core.domain.threads import Address, IncomingFile

TOKEN_RECHECK_SECONDS = 30.0
"""Maximum time for which a process may use a token that another process has replaced or deleted."""
FOREIGN_CHANNEL_CODE = "channel_not_found"
IDLE_SECONDS = 3600.0
"""A workspace's client and its caches are closed after this time without an event or call."""
_KNOWN_CHANNELS_MAX = 5000

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Workspace:
    """A workspace with its client, the lookup of its users, and its event handler.

    `token_read_at` is the monotonic time at which the token was last read, or None for a configured token.
    `installed_by` is the id of the workspace, or of the organisation whose token serves it."""

    client: SlackClient
    people: UserLookup
    event_handler: EventHandler | None
    installed_by: str = ""
    token_read_at: float | None = None

    @property
    def uses_organisation_token(self) -> bool:
        return self.installed_by not in ("", self.client.identity.team_id)


class Workspaces:
    """Finds workspaces by id and creates their clients. `tokens` is None if a single token is configured.

    To find a token, a lookup may wait until Slack has refreshed it. Lookups of different workspaces do not wait for
    each other."""

    def __init__(
        self,
        *,
        tokens: TokenSource | None,
        new_client: Callable[[str], SlackClient],
        new_event_handler: Callable[[SlackClient, UserLookup], EventHandler | None],
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
        people = UserLookup(client)
        return Workspace(client=client, people=people, event_handler=self._new_event_handler(client, people))

    def add(self, team_id: str, workspace: Workspace) -> None:
        """Adds the workspace of the configured token."""
        self._workspaces[team_id] = workspace

    @property
    def active_ids(self) -> tuple[str, ...]:
        """The ids of the workspaces that have an open client."""
        return tuple(self._workspaces)

    async def find(self, team_id: str) -> Workspace | None:
        """Returns the workspace, or None if the bot is not installed in it.

        Raises StorageUnavailable and UnreadableToken."""
        if (workspace := self._find_fresh(team_id)) is not None or self._tokens is None:
            return workspace
        async with self._locks.setdefault(team_id, asyncio.Lock()):
            if (workspace := self._find_fresh(team_id)) is not None:
                return workspace
            access = await self._tokens.find_token(team_id)
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

    async def find_all(self, team_ids: Iterable[str]) -> list[Workspace]:
        """Returns the workspaces with the bot, without those whose token cannot be read. Raises StorageUnavailable."""
        found = list[Workspace]()
        for team_id in team_ids:
            try:
                workspace = await self.find(team_id)
            except UnreadableToken as error:
                log.warning("slack: a workspace is left out: %s", error)
            else:
                found += [workspace] if workspace else []
        return found

    def _find_fresh(self, team_id: str) -> Workspace | None:
        workspace = self._workspaces.get(team_id)
        if workspace is None or workspace.token_read_at is None:
            return workspace
        return workspace if time.monotonic() - workspace.token_read_at < TOKEN_RECHECK_SECONDS else None

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

    async def find_for_tenant(self, tenant: Tenant) -> Workspace | None:
        """Returns the workspace that a payload came from, or None. Raises like `find`.

        If the organisation installed the app, lets the organisation's token serve a workspace that has no token of its
        own."""
        team_id, organisation_id = tenant.team_id, tenant.organisation_id
        workspace = await self.find(team_id)
        if workspace is not None or self._tokens is None or not (team_id and organisation_id):
            return workspace
        is_served = await self._tokens.link_workspace(team_id, organisation_id)
        return await self.find(team_id) if is_served else None

    async def find_sharing_channel(self, channel_id: str, team_ids: frozenset[str]) -> list[Workspace]:
        """Returns the workspaces with the bot that share a Slack Connect channel: those in `team_ids`, which the event
        names, and those that earlier events of the channel named. Raises StorageUnavailable."""
        if not team_ids:
            return []
        known = self._sharing.pop(channel_id, frozenset[str]()) | team_ids
        found = await self.find_all(sorted(known))
        self._sharing[channel_id] = frozenset(one.client.identity.team_id for one in found)
        if len(self._sharing) > _KNOWN_CHANNELS_MAX:
            del self._sharing[next(iter(self._sharing))]
        return found

    async def require(self, team_id: str) -> Workspace:
        """Returns the workspace. Raises SurfaceRefused if the bot is not installed in it, and like `find`."""
        workspace = await self.find(team_id)
        if workspace is None:
            raise SurfaceRefused("the bot is not installed in this workspace", code="not_installed")
        return workspace

    async def require_for_address(self, address: Address) -> Workspace:
        """Returns the workspace of an address. Raises SurfaceError or StorageUnavailable.

        An organisation's token can access the channels of all its workspaces, so a channel is refused unless the
        workspace already has a thread in it, or the client has opened it as a direct message."""
        workspace = await self.require(address.workspace_id)
        known, channel_id = workspace.client.known_channel_ids, address.channel_id
        if not workspace.uses_organisation_token or self._tokens is None or channel_id in known:
            return workspace
        if not await self._tokens.has_threads_in_channel(address.workspace_id, channel_id):
            raise SurfaceRefused("the channel does not belong to this workspace", code=FOREIGN_CHANNEL_CODE)
        if len(known) >= _KNOWN_CHANNELS_MAX:
            known.clear()
        known.add(channel_id)
        return workspace

    async def client_for(self, address: Address) -> SlackClient:
        """Returns the client of `require_for_address`, and raises the same exceptions."""
        return (await self.require_for_address(address)).client

    async def client_for_file(self, file: IncomingFile) -> tuple[SlackClient, IncomingFile]:
        """Returns the client of the workspace that received the file, and the file with its original reference.

        Raises RunError if the file was not received in a workspace with the bot, and StorageUnavailable."""
        if self._tokens is None:
            (workspace,) = self._workspaces.values()
            return workspace.client, file
        named = self._tokens.file_ref_signer.verify(file)
        workspace = await self.find(named.team_id) if named else None
        if named is None or workspace is None or (workspace.uses_organisation_token and not named.is_sealed):
            raise RunError(
                f"The file {file.name!r} cannot be read from Slack.", detail="its workspace has not installed the bot"
            )
        return workspace.client, named.file

    def sign_file(self, team_id: str, file: IncomingFile) -> IncomingFile:
        """Returns the file with a reference that names its workspace, if the app may serve several."""
        return self._tokens.file_ref_signer.sign(team_id, file) if self._tokens else file

    async def remove(self, team_id: str) -> None:
        """Closes a workspace that removed the bot, or all workspaces of an organisation that removed it."""
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
    await workspace.people.close()
    await workspace.client.close()
