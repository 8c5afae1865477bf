"""Who did what: the entries that outlive the conversations they are about, and the port to them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.domain.threads import Address, Person

AuditAction = Literal[
    "run_requested",
    "question_answered",
    "approval_given",
    "approval_denied",
    "stop_requested",
    "conversation_renewed",
    "conversation_forgotten",
    "agent_chosen",
    "knowledge_changed",
    "plan_changed",
    "paired",
    "unpaired",
    "workspace_joined",
    "workspace_left",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of one person. `subject` names what it was done to (tools, an agent, a person); never what was said."""

    action: AuditAction
    actor: Person
    address: Address
    thread_id: str = ""
    run_id: str = ""
    subject: str = ""
    happened_at: datetime


class AuditLog(Protocol):
    """Entries are written by the stores, with the acts themselves; `record` is for acts that no store carries out."""

    async def record(self, entry: AuditEntry) -> None: ...

    async def newest(
        self, *, limit: int, platform: str | None = None, workspace_id: str | None = None
    ) -> tuple[AuditEntry, ...]:
        """The newest first; of one workspace where it is named."""
        ...
