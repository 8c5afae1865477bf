"""The workspaces and organisations of the simulated platform, whose each bot token is, and how far it reaches."""

from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.slack.events.payloads import Payload, Refused, as_payloads
from simulator.slack.organisation import Organisation
from simulator.slack.world import Workspace

NO_ACCESS = "team_access_not_granted"
_NEEDS_TEAM = frozenset({"conversations.list", "usergroups.users.list", "users.conversations", "users.list"})


@dataclass(slots=True)
class Tenants:
    """`tokens` are those of workspaces; an organisation keeps its own. `revoked` were tokens once."""

    workspaces: dict[str, Workspace] = field(default_factory=dict[str, Workspace])
    organisations: dict[str, Organisation] = field(default_factory=dict[str, Organisation])
    tokens: dict[str, Workspace] = field(default_factory=dict[str, Workspace])
    revoked: set[str] = field(default_factory=set[str])

    def organisation_with(self, token: str) -> Organisation | None:
        return next((one for one in self.organisations.values() if one.token and one.token == token), None)

    def reached_by(self, token: str) -> list[Workspace]:
        """The workspaces whose data the token opens."""
        if (workspace := self.tokens.get(token)) is not None:
            return [workspace]
        organisation = self.organisation_with(token)
        return self.reached(organisation) if organisation is not None else []

    def reached(self, organisation: Organisation) -> list[Workspace]:
        return [self.workspaces[one] for one in organisation.team_ids if organisation.serves(one)]

    def withdraw(self, workspace: Workspace) -> None:
        """The tokens of the workspace stop to work."""
        for token in [old for old, owner in self.tokens.items() if owner is workspace]:
            del self.tokens[token]
            self.revoked.add(token)
        if workspace.organisation is not None:
            workspace.organisation.alone.discard(workspace.team_id)

    def meant(self, organisation: Organisation, method: str, arguments: Payload) -> Workspace:
        """The workspace that a call with an organisation's token is about. Some methods have to be told; for the others
        ids lead to it, and what leads nowhere ends in the method's own refusal. Raises Refused."""
        reached = self.reached(organisation)
        if method in _NEEDS_TEAM:
            team_id = str(arguments.get("team_id") or "")
            if not team_id:
                raise Refused("missing_argument")
            reached = [one for one in reached if one.team_id == team_id]
        if not reached:
            raise Refused(NO_ACCESS)
        holder = next((one for one in reached if _holds(one, arguments)), reached[0])
        if method == "files.completeUploadExternal":
            for entry in as_payloads(arguments.get("files")):
                _bring(str(entry.get("id")), reached, holder)
        return holder


def _holds(workspace: Workspace, arguments: Payload) -> bool:
    kept: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("channel", workspace.channels.__contains__),
        ("channel_id", workspace.channels.__contains__),
        ("file", workspace.files.__contains__),
        ("user", workspace.members.__contains__),
    )
    named = [has(str(arguments[name])) for name, has in kept if arguments.get(name)]
    return bool(named) and named[0]


def _bring(file_id: str, reached: list[Workspace], holder: Workspace) -> None:
    """An upload belongs to the organisation until it is shared somewhere."""
    for workspace in reached:
        if (stored := workspace.files.get(file_id)) is not None and not stored.is_complete:
            del workspace.files[file_id], workspace.file_keys[stored.key]
            holder.files[file_id] = holder.file_keys[stored.key] = stored
            return
