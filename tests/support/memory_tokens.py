"""Tokens of workspaces, laid down by a test in place of the database."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from bots.slack.install.tokens import UnreadableToken, WorkspaceToken
from bots.slack.web_api.client import Identity, SlackClient
from bots.slack.web_api.downloads import FileRefSigner
from bots.slack.workspaces import Workspaces


def access_of(team_id: str, *, installed_by: str = "") -> WorkspaceToken:
    return WorkspaceToken(
        token=f"xoxb-{team_id}",
        identity=Identity(team_id=team_id, user_id="U0", bot_id="B0"),
        installed_by=installed_by or team_id,
    )


@dataclass
class MemoryTokens:
    """Tokens by workspace; those of `slow` come once `released` is set, and no key opens those of `unreadable`."""

    known: dict[str, WorkspaceToken]
    slow: set[str] = field(default_factory=set[str])
    unreadable: set[str] = field(default_factory=set[str])
    released: asyncio.Event = field(default_factory=asyncio.Event)
    asked: Counter[str] = field(default_factory=Counter[str])

    async def find_token(self, team_id: str) -> WorkspaceToken | None:
        self.asked[team_id] += 1
        if team_id in self.slow:
            await self.released.wait()
        if team_id in self.unreadable:
            raise UnreadableToken(team_id, "no key opens it")
        return self.known.get(team_id)

    @property
    def file_ref_signer(self) -> FileRefSigner:
        return FileRefSigner(["secret"])

    async def has_threads_in(self, team_id: str, channel_id: str) -> bool:
        return False

    async def link_workspace(self, team_id: str, organisation_id: str) -> bool:
        return False


def teams_with(tokens: MemoryTokens, **settings: float) -> Workspaces:
    return Workspaces(
        tokens=tokens,
        new_client=lambda token: SlackClient(bot_token=token, api_url="http://127.0.0.1:9/api/"),
        new_event_handler=lambda client, people: None,
        **settings,
    )
