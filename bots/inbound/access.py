"""Access control: allowlists, and pairing codes for direct messages.

By default, nobody has access. Access is checked for every message and every click."""

import hashlib
import logging
import re
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bots.inbound.actions import CommandCalled, Outcome, UserAction
from core.domain.actions import (
    MEMBER,
    ActorContext,
    AskAnswered,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
)
from core.domain.errors import SurfaceUnclear
from core.domain.pairing import PairingRequest, Pairings
from core.domain.threads import Address
from core.stores import Inbox

log = logging.getLogger(__name__)
ANYONE = "*"
NOT_ALLOWED = "I am not allowed to work for you here. Ask the operator of this bot to let you in."
NO_GUESTS = "I am not allowed to work for guests of this workspace. Ask the operator of this bot to let you in."
NO_EXTERNAL_MEMBERS = (
    "I am not allowed to work for members of other workspaces. Ask the operator of this bot to let you in."
)
UNKNOWN_PERSON = (
    "I cannot check who you are, so I did nothing. Please try again later, or ask the operator of this bot."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """Allowlists of platform IDs. Every list that is set must match. If all lists are empty, only admins have access.

    `*` matches everything. `users` and `roles` count as one list, so a match in either is enough. A user can be listed
    as `WORKSPACE/USER`. Guests, and members of other workspaces (`strangers`), have access only if their switch is on
    or they are listed by ID. Members of a listed workspace do not count as strangers. A listed organisation covers all
    its workspaces. Admins always have access.

    `apps` are the ids of apps whose mentions start runs if the lists for workspaces and channels match. No other app
    has access, whatever the other lists contain."""

    workspaces: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    guests: bool = False
    strangers: bool = False

    def is_admin(self, workspace_id: str, person_id: str, actor: ActorContext = MEMBER) -> bool:
        """Whether the user is an admin. An app is never an admin.

        Members of other workspaces are admins only if they are listed as `WORKSPACE/USER` with the workspace that they
        act in."""
        if actor.app_ids:
            return False
        if f"{workspace_id}/{person_id}" in self.admins:
            return True
        return person_id in self.admins and not actor.home_id

    def find_refusal(
        self, workspace_id: str, channel_id: str, person_id: str, actor: ActorContext = MEMBER
    ) -> str | None:
        """Returns a sentence that explains to the user why access is refused, or None if the user has access."""
        if actor.has_left:
            return NOT_ALLOWED
        if self.is_admin(workspace_id, person_id, actor):
            return None
        if not self._admits_place((workspace_id, actor.organisation_id), (channel_id,)):
            return NOT_ALLOWED
        if actor.app_ids:
            return NOT_ALLOWED if actor.app_ids.isdisjoint(self.apps) else None
        if person_id in self.users or f"{workspace_id}/{person_id}" in self.users:
            return None
        people = (*self.users, *self.roles)
        if people and ANYONE not in people:
            if actor.groups is None and self.roles:
                return UNKNOWN_PERSON
            if not actor.groups or actor.groups.isdisjoint(self.roles):
                return NOT_ALLOWED
        if not actor.is_known and not (self.guests and self.strangers):
            return UNKNOWN_PERSON
        if actor.home_id and not self.strangers and actor.home_id not in self.workspaces:
            return NO_EXTERNAL_MEMBERS
        return NO_GUESTS if actor.is_guest and not self.guests else None

    def may_install(self, workspace_id: str) -> bool:
        """Whether a workspace or organisation is listed and may therefore install the bot."""
        return ANYONE in self.workspaces or workspace_id in self.workspaces

    def _admits_place(self, workspace_ids: tuple[str, ...], channel_ids: tuple[str, ...]) -> bool:
        """Whether the allowlists for workspaces and channels match. Returns False if no allowlist is set."""
        checks = ((self.workspaces, workspace_ids), (self.channels, channel_ids))
        is_set = any((self.workspaces, self.channels, self.users, self.roles))
        return is_set and all(
            not allowed or ANYONE in allowed or not set(allowed).isdisjoint(ids) for allowed, ids in checks
        )


def find_refusal_sentence(action: UserAction, policy: AccessPolicy) -> str | None:
    """Returns a sentence that explains why the action is refused, or None if it is allowed."""
    address, person = action.address, action.person
    if isinstance(action, MessageDeleted | StopRequested) and not person.person_id:
        # the platform does not report who deleted a message or closed a thread, so accept it in an allowed channel
        anyone = AccessPolicy(workspaces=policy.workspaces, channels=policy.channels, users=(ANYONE,))
        place = replace(MEMBER, organisation_id=action.actor.organisation_id)
        return anyone.find_refusal(address.workspace_id, address.settings_channel_id, "", place)
    return policy.find_refusal(address.workspace_id, address.settings_channel_id, person.person_id, action.actor)


CODE_MINUTES = 60
OPEN_CODES_MAX = 100
"""Maximum number of users in a workspace with an open pairing code. Another user's code replaces the oldest one."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARACTERS = 8
DISCORD_DIRECT_MESSAGES = "@me"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """Checks access for every action, and gives pairing codes to users without access."""

    policy: AccessPolicy
    inbox: Inbox
    pairings: Pairings

    async def admits(self, action: UserAction) -> bool:
        """Returns whether the user has access.

        Raises StorageUnavailable if the database cannot be used. If the platform does not report now who the user is,
        raises SurfaceUnclear, so that the action is retried, but returns False for users who expect an immediate
        response."""
        sentence, address = find_refusal_sentence(action, self.policy), action.address
        workspace_id = pairing_workspace_id(address)
        if sentence is None or (
            action.actor.is_direct
            and not action.actor.has_left
            and await self.pairings.is_paired(address.platform, workspace_id, action.person.person_id)
        ):
            return True
        if sentence == UNKNOWN_PERSON and not (action.actor.expects_answer or action.actor.is_withheld):
            raise SurfaceUnclear(f"who {action.person.person_id} is, is not known yet")
        return False

    async def find_refusal(self, action: UserAction) -> Outcome | None:
        """Returns the outcome for a user without access, or None if the user has access.

        Raises the errors of `admits`."""
        if await self.admits(action):
            return None
        sentence = find_refusal_sentence(action, self.policy) or NOT_ALLOWED
        if not _expects_answer(action):
            return Outcome(is_ignored=True)
        address, person_id = action.address, action.person.person_id
        place = f"{address.platform} {address.workspace_id} {address.channel_id}"
        log.info("%s may not talk to the agent in %s: %s", person_id, place, sentence)
        is_asking = isinstance(action, IncomingMessage) and action.actor.is_direct
        if self.policy.admins and is_asking:
            code, now = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_CHARACTERS)), datetime.now(UTC)
            request = PairingRequest(
                platform=address.platform,
                workspace_id=pairing_workspace_id(address),
                person=action.person,
                code_hash=hash_pairing_code(code),
                asked_at=now,
                expires_at=now + timedelta(minutes=CODE_MINUTES),
            )
            if await self.pairings.request_code(request, open_max=OPEN_CODES_MAX):  # the user has no code yet
                await self.inbox.claim_key(_refusal_key(action))
                shown = f"the code `{code[:4]}-{code[4:]}`, which is valid for {CODE_MINUTES} minutes"
                return Outcome(notice=f"I do not know you yet: give an admin of this bot {shown}.", is_ignored=True)
        if action.actor.expects_answer or await self.inbox.claim_key(_refusal_key(action)):
            return Outcome(notice=sentence, is_ignored=True)
        return Outcome(is_ignored=True)


def pairing_workspace_id(address: Address) -> str:
    """Returns the workspace ID under which a pairing is stored. On Discord this is a constant, because direct messages
    belong to no server."""
    return DISCORD_DIRECT_MESSAGES if address.platform == "discord" else address.workspace_id


def hash_pairing_code(code: str) -> str:
    """Returns the hash under which a pairing code is stored. Ignores case, spaces, dashes and backquotes."""
    return hashlib.sha256(re.sub("[- ]", "", code.strip("`")).upper().encode()).hexdigest()


def _refusal_key(action: UserAction) -> str:
    """Returns the dedupe key that limits refusals to one per day, user and channel."""
    address, today = action.address, datetime.now(UTC).date()
    place = f"{address.platform}:{address.workspace_id}:{address.channel_id}"
    return f"refused:{place}:{action.person.person_id}:{today}"


def _expects_answer(action: UserAction) -> bool:
    """Whether a person directs the action at the agent. If not, it is refused without a notice."""
    if action.actor.app_ids:
        return False
    if isinstance(action, IncomingMessage | CommandCalled):
        return action.is_addressed
    if isinstance(action, AskAnswered):
        return not action.ask_ref
    return not isinstance(action, MessageEdited | MessageDeleted | StopRequested)
