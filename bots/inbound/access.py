"""Who may talk to the agent: closed by default, looked at again for every message and every click."""

from dataclasses import dataclass, replace

from bots.inbound.decide import MEMBER, Inbound, MessageDeleted, Standing, person_of

EVERYBODY = "*"
NOT_ALLOWED = "I am not allowed to work for you here. Ask the operator of this bot to let you in."
NO_GUESTS = "I am not allowed to work for guests of this workspace. Ask the operator of this bot to let you in."
NO_STRANGERS = "I am not allowed to work for members of other workspaces. Ask the operator of this bot to let you in."
WHO_ARE_YOU = (
    "I cannot see who you are just now, so I may not work for you. Please try it again in a moment."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Allowlists of platform ids. Empty lists admit nobody; `*` admits all; every list that is set must fit.

    `users` and `roles` are one list: who is in either fits. People may be written `WORKSPACE/PERSON`. Guests and
    members of other workspaces need their switch, or to be listed by id; another workspace may be listed itself.
    A listed organisation stands for all of its workspaces.
    Admins need nothing else.
    """

    workspaces: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    guests: bool = False
    strangers: bool = False

    def is_admin(self, workspace_id: str, person_id: str, standing: Standing = MEMBER) -> bool:
        """Never somebody of another workspace, who must be written with the workspace they act in."""
        if f"{workspace_id}/{person_id}" in self.admins:
            return True
        return person_id in self.admins and not standing.home_id

    def problem(
        self, workspace_id: str, channel_id: str, person_id: str, standing: Standing = MEMBER
    ) -> str | None:
        """Why somebody is not let in, in a sentence for them; None: they are."""
        if self.is_admin(workspace_id, person_id, standing):
            return None
        if not self._fits_place((workspace_id, standing.organisation_id), (channel_id,)):
            return NOT_ALLOWED
        if person_id in self.users or f"{workspace_id}/{person_id}" in self.users:
            return None
        return self._problem_with(standing)

    def admits_workspace(self, workspace_id: str) -> bool:
        """Whether a workspace or an organisation may install the bot: the list of workspaces must hold it."""
        return EVERYBODY in self.workspaces or workspace_id in self.workspaces

    def _fits_place(self, workspace_ids: tuple[str, ...], channel_ids: tuple[str, ...]) -> bool:
        """False also where no list is set at all."""
        checks = ((self.workspaces, workspace_ids), (self.channels, channel_ids))
        is_set = any((self.workspaces, self.channels, self.users, self.roles))
        return is_set and all(
            not allowed or EVERYBODY in allowed or not set(allowed).isdisjoint(ids)
            for allowed, ids in checks
        )

    def _problem_with(self, standing: Standing) -> str | None:
        """Of somebody who is not listed by id, at a place that is allowed."""
        people = (*self.users, *self.roles)
        if people and EVERYBODY not in people:
            if standing.groups is None and self.roles:
                return WHO_ARE_YOU
            if not standing.groups or standing.groups.isdisjoint(self.roles):
                return NOT_ALLOWED
        if not standing.is_known and not (self.guests and self.strangers):
            return WHO_ARE_YOU
        if standing.home_id and not self.strangers and standing.home_id not in self.workspaces:
            return NO_STRANGERS
        return NO_GUESTS if standing.is_guest and not self.guests else None


def refusal(inbound: Inbound, policy: Policy) -> str | None:
    """The sentence for somebody who may not talk to the agent, or None."""
    address, person = inbound.address, person_of(inbound)
    if isinstance(inbound, MessageDeleted) and not person.person_id:
        # the platform does not say whose message it was: taking words back is for whoever may delete them
        anybody = Policy(workspaces=policy.workspaces, channels=policy.channels, users=(EVERYBODY,))
        place = replace(MEMBER, organisation_id=inbound.standing.organisation_id)
        return anybody.problem(address.workspace_id, address.channel_id, "", place)
    return policy.problem(
        address.workspace_id, address.channel_id, person.person_id, inbound.standing
    )
