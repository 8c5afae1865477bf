"""Who may talk to the agent: closed by default, looked at again for every message and every click."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bots.inbound.actions import (
    MEMBER,
    ActorContext,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    Outcome,
    StopRequested,
    UserAction,
    acting_person,
)
from core.domain.pairing import PairingRequest, Pairings
from core.domain.threads import Address
from core.stores import Inbox

ANYONE = "*"
NOT_ALLOWED = "I am not allowed to work for you here. Ask the operator of this bot to let you in."
NO_GUESTS = "I am not allowed to work for guests of this workspace. Ask the operator of this bot to let you in."
NO_EXTERNAL_MEMBERS = (
    "I am not allowed to work for members of other workspaces."
    " Ask the operator of this bot to let you in."
)
UNKNOWN_PERSON = (
    "I cannot see who you are just now, so I may not work for you. Please try it again in a moment."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
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

    def is_admin(self, workspace_id: str, person_id: str, standing: ActorContext = MEMBER) -> bool:
        """Never somebody of another workspace, who must be written with the workspace they act in."""
        if f"{workspace_id}/{person_id}" in self.admins:
            return True
        return person_id in self.admins and not standing.home_id

    def problem(
        self, workspace_id: str, channel_id: str, person_id: str, standing: ActorContext = MEMBER
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
        return ANYONE in self.workspaces or workspace_id in self.workspaces

    def _fits_place(self, workspace_ids: tuple[str, ...], channel_ids: tuple[str, ...]) -> bool:
        """False also where no list is set at all."""
        checks = ((self.workspaces, workspace_ids), (self.channels, channel_ids))
        is_set = any((self.workspaces, self.channels, self.users, self.roles))
        return is_set and all(
            not allowed or ANYONE in allowed or not set(allowed).isdisjoint(ids)
            for allowed, ids in checks
        )

    def _problem_with(self, standing: ActorContext) -> str | None:
        """Of somebody who is not listed by id, at a place that is allowed."""
        people = (*self.users, *self.roles)
        if people and ANYONE not in people:
            if standing.groups is None and self.roles:
                return UNKNOWN_PERSON
            if not standing.groups or standing.groups.isdisjoint(self.roles):
                return NOT_ALLOWED
        if not standing.is_known and not (self.guests and self.strangers):
            return UNKNOWN_PERSON
        if standing.home_id and not self.strangers and standing.home_id not in self.workspaces:
            return NO_EXTERNAL_MEMBERS
        return NO_GUESTS if standing.is_guest and not self.guests else None


def refusal_sentence(inbound: UserAction, policy: AccessPolicy) -> str | None:
    """The sentence for somebody who may not talk to the agent, or None."""
    address, person = inbound.address, acting_person(inbound)
    if isinstance(inbound, MessageDeleted) and not person.person_id:
        # the platform does not say whose message it was: taking words back is for whoever may delete them
        anybody = AccessPolicy(
            workspaces=policy.workspaces, channels=policy.channels, users=(ANYONE,)
        )
        place = replace(MEMBER, organisation_id=inbound.standing.organisation_id)
        return anybody.problem(address.workspace_id, address.channel_id, "", place)
    return policy.problem(
        address.workspace_id, address.channel_id, person.person_id, inbound.standing
    )


CODE_MINUTES = 60
OPEN_CODES_MAX = 20
"""So many people of one workspace may hold a code at once; whoever comes after them gets none."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARACTERS = 8
_DIRECT_IN_DISCORD = "@me"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """Asked before anything else is done with what comes in. Without `pairings` there are no codes."""

    policy: AccessPolicy
    inbox: Inbox
    pairings: Pairings | None = None

    async def refused(self, inbound: UserAction) -> Outcome | None:
        """What somebody is told who may not talk to the agent; None: come in. Raises StorageUnavailable."""
        no = refusal_sentence(inbound, self.policy)
        if no is None or await self._is_paired(inbound):
            return None
        if not _speaks_to_the_agent(inbound):
            return Outcome(is_ignored=True)
        if (code := await self._new_code(inbound)) is not None:
            await self.inbox.claim(_refusal_key(inbound))
            return Outcome(notice=_code_sentence(code), is_ignored=True)
        is_due = inbound.standing.expects_answer or no == UNKNOWN_PERSON
        if is_due or await self.inbox.claim(_refusal_key(inbound)):
            return Outcome(notice=no, is_ignored=True)
        return Outcome(is_ignored=True)

    async def _is_paired(self, inbound: UserAction) -> bool:
        if self.pairings is None or not inbound.standing.is_direct:
            return False
        address = inbound.address
        return await self.pairings.is_paired(
            address.platform, pairing_workspace(address), acting_person(inbound).person_id
        )

    async def _new_code(self, inbound: UserAction) -> str | None:
        """None: there are no codes here, or this person has one, or too many have."""
        is_asking = isinstance(inbound, IncomingMessage) and inbound.standing.is_direct
        if self.pairings is None or not self.policy.admins or not is_asking:
            return None
        code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_CHARACTERS))
        address, now = inbound.address, datetime.now(UTC)
        request = PairingRequest(
            platform=address.platform,
            workspace_id=pairing_workspace(address),
            person=acting_person(inbound),
            code_hash=hash_code(code),
            asked_at=now,
            expires_at=now + timedelta(minutes=CODE_MINUTES),
        )
        return code if await self.pairings.ask(request, open_max=OPEN_CODES_MAX) else None


def pairing_workspace(address: Address) -> str:
    """Where a pairing holds. Direct messages in Discord belong to no server, so an admin may pair from any."""
    return _DIRECT_IN_DISCORD if address.platform == "discord" else address.workspace_id


def hash_code(code: str) -> str:
    """What is stored of a code, however it was typed."""
    return hashlib.sha256(code.strip("` ").replace("-", "").upper().encode()).hexdigest()


def _code_sentence(code: str) -> str:
    return (
        "I do not know you yet: give an admin of this bot the code "
        f"`{code[:4]}-{code[4:]}`, which holds for {CODE_MINUTES} minutes."
    )


def _refusal_key(inbound: UserAction) -> str:
    """One refusal a day for a person in a place."""
    address, today = inbound.address, datetime.now(UTC).date()
    place = f"{address.platform}:{address.workspace_id}:{address.channel_id}"
    return f"refused:{place}:{acting_person(inbound).person_id}:{today}"


def _speaks_to_the_agent(inbound: UserAction) -> bool:
    """Whether an answer is expected; what strangers do among themselves is not our business."""
    if isinstance(inbound, IncomingMessage):
        return inbound.is_addressed
    return not isinstance(inbound, MessageEdited | MessageDeleted | StopRequested)
