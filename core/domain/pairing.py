"""Pairing: an admin admits a person by a code that the bot sent to that person in a direct message."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from core.domain.threads import Address, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """A person's request for admission. Only the person knows the code; the request stores its hash."""

    platform: str
    workspace_id: str
    person: Person
    code_hash: str
    asked_at: datetime
    expires_at: datetime


class Pairings(Protocol):
    """Stores which users are paired. A pairing is valid for one person in one workspace. Every change is recorded in
    the audit log."""

    async def is_paired(self, platform: str, workspace_id: str, person_id: str) -> bool: ...

    async def request_code(self, request: PairingRequest, *, open_max: int) -> bool:
        """Stores the request. Returns False if the person is paired or already waiting. If more than `open_max` users
        wait, the oldest requests are deleted."""
        ...

    async def pair_person(self, code_hash: str, *, workspace_id: str, at: Address, by: Person) -> Person | None:
        """Admits the person with that code to the workspace. Returns None if the code is invalid."""
        ...

    async def unpair_person(self, name: str, *, workspace_id: str, at: Address, by: Person) -> Person | None:
        """Removes the pairing of the person with that id, or that unique name. Returns None if no one matches."""
        ...

    async def paired_people(self, platform: str, workspace_id: str) -> tuple[Person, ...]:
        """Returns the paired users of the workspace, sorted by name."""
        ...
