"""Who may talk to the agent: closed by default, looked at again for every message and every click."""

from dataclasses import dataclass

from bots.inbound import AskAnswered, CommandCalled, Inbound, RunButtonPressed, StopWished

EVERYBODY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Allowlists of platform ids. Empty lists admit nobody; `*` admits all; every list that is set must fit."""

    workspaces: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def admits(self, workspace_id: str, channel_id: str, person_id: str) -> bool:
        checks = (
            (self.workspaces, workspace_id),
            (self.channels, channel_id),
            (self.users, person_id),
        )
        set_lists = [(allowed, value) for allowed, value in checks if allowed]
        return bool(set_lists) and all(
            EVERYBODY in allowed or value in allowed for allowed, value in set_lists
        )


def refusal(inbound: Inbound, policy: Policy) -> str | None:
    """The sentence for somebody who may not talk to the agent, or None. The HTTP API has its own token."""
    if inbound.address.platform == "api":
        return None
    is_click = isinstance(inbound, AskAnswered | CommandCalled | RunButtonPressed | StopWished)
    person = inbound.person if is_click else inbound.author
    if policy.admits(inbound.address.workspace_id, inbound.address.channel_id, person.person_id):
        return None
    return "I am not allowed to work for you here. Ask the operator of this bot to let you in."
