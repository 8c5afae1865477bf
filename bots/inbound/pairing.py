"""The door: who may not talk is told so once, and may be let in by a code in a direct message."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bots.inbound.access import WHO_ARE_YOU, Policy, refusal
from bots.inbound.decide import (
    Inbound,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    Outcome,
    StopWished,
    person_of,
)
from core.domain.pairing import PairingRequest, Pairings
from core.domain.threads import Address
from core.stores import Inbox

CODE_MINUTES = 60
WAITING_MAX = 20
"""So many people of one workspace may hold a code at once; whoever comes after them gets none."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARACTERS = 8
_DIRECT_IN_DISCORD = "@me"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Asked before anything else is done with what comes in. Without `pairings` there are no codes."""

    policy: Policy
    inbox: Inbox
    pairings: Pairings | None = None

    async def refused(self, inbound: Inbound) -> Outcome | None:
        """What somebody is told who may not talk to the agent; None: come in. Raises StorageUnavailable."""
        no = refusal(inbound, self.policy)
        if no is None or await self._is_paired(inbound):
            return None
        if not _speaks_to_the_agent(inbound):
            return Outcome(is_ignored=True)
        if (code := await self._new_code(inbound)) is not None:
            await self.inbox.claim(_refusal_key(inbound))
            return Outcome(notice=_with_code(code), is_ignored=True)
        is_due = inbound.standing.expects_answer or no == WHO_ARE_YOU
        if is_due or await self.inbox.claim(_refusal_key(inbound)):
            return Outcome(notice=no, is_ignored=True)
        return Outcome(is_ignored=True)

    async def _is_paired(self, inbound: Inbound) -> bool:
        if self.pairings is None or not inbound.standing.is_direct:
            return False
        address = inbound.address
        return await self.pairings.is_paired(
            address.platform, pairing_workspace(address), person_of(inbound).person_id
        )

    async def _new_code(self, inbound: Inbound) -> str | None:
        """None: there are no codes here, or this person has one, or too many have."""
        is_asking = isinstance(inbound, IncomingMessage) and inbound.standing.is_direct
        if self.pairings is None or not self.policy.admins or not is_asking:
            return None
        code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_CHARACTERS))
        address, now = inbound.address, datetime.now(UTC)
        request = PairingRequest(
            platform=address.platform,
            workspace_id=pairing_workspace(address),
            person=person_of(inbound),
            code_hash=hashed(code),
            asked_at=now,
            expires_at=now + timedelta(minutes=CODE_MINUTES),
        )
        return code if await self.pairings.ask(request, open_max=WAITING_MAX) else None


def pairing_workspace(address: Address) -> str:
    """Where a pairing holds. Direct messages in Discord belong to no server, so an admin may pair from any."""
    return _DIRECT_IN_DISCORD if address.platform == "discord" else address.workspace_id


def hashed(code: str) -> str:
    """What is stored of a code, however it was typed."""
    return hashlib.sha256(code.strip("` ").replace("-", "").upper().encode()).hexdigest()


def _with_code(code: str) -> str:
    return (
        "I do not know you yet: give an admin of this bot the code "
        f"`{code[:4]}-{code[4:]}`, which holds for {CODE_MINUTES} minutes."
    )


def _refusal_key(inbound: Inbound) -> str:
    """One refusal a day for a person in a place."""
    address, today = inbound.address, datetime.now(UTC).date()
    place = f"{address.platform}:{address.workspace_id}:{address.channel_id}"
    return f"refused:{place}:{person_of(inbound).person_id}:{today}"


def _speaks_to_the_agent(inbound: Inbound) -> bool:
    """Whether an answer is expected; what strangers do among themselves is not our business."""
    if isinstance(inbound, IncomingMessage):
        return inbound.is_addressed
    return not isinstance(inbound, MessageEdited | MessageDeleted | StopWished)
