"""People whom an admin let in by a code that they were given in a direct message."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from core.domain.threads import Address, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """Somebody who waits to be let in. The code itself is known to that person alone, here is its hash."""

    platform: str
    workspace_id: str
    person: Person
    code_hash: str
    asked_at: datetime
    expires_at: datetime


class Pairings(Protocol):
    """A pairing holds for one person in one workspace. Each change is in the audit log, too."""

    async def is_paired(self, platform: str, workspace_id: str, person_id: str) -> bool: ...

    async def ask(self, request: PairingRequest, *, open_max: int) -> bool:
        """Stores the request. False: the person has one that holds still or is paired, or `open_max` people wait."""
        ...

    async def pair(
        self, code_hash: str, *, workspace_id: str, at: Address, by: Person
    ) -> Person | None:
        """Lets the person with that code into `workspace_id` of the address's platform; None: no code that holds."""
        ...

    async def unpair(
        self, name: str, *, workspace_id: str, at: Address, by: Person
    ) -> Person | None:
        """Takes the pairing of the person with that id or, where only one has it, that name; None: nobody."""
        ...

    async def paired(self, platform: str, workspace_id: str) -> tuple[Person, ...]:
        """Everybody who is paired there, by name."""
        ...
