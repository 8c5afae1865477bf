"""The audit log, which records each person's actions. Entries outlive the conversations that they describe."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.domain.threads import Address, Person

AuditAction = Literal[
    "run_requested", "question_answered", "approval_given", "approval_denied", "stop_requested",
    "conversation_renewed", "conversation_forgotten", "agent_chosen", "agent_changed", "knowledge_changed",
    "plan_changed", "budget_changed", "schedule_changed", "paired", "unpaired", "workspace_joined", "workspace_left",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of one person. `subject` names the action's object (tools, an agent, a person), never the text of a
    message."""

    action: AuditAction
    actor: Person
    address: Address
    thread_id: str = ""
    run_id: str = ""
    subject: str = ""
    happened_at: datetime


class AuditLog(Protocol):
    """The audit log. Stores write entries in the same transaction as the action; `record` is for actions that change
    no store."""

    async def record(self, entry: AuditEntry) -> None: ...

    async def newest_entries(
        self, *, limit: int, platform: str | None = None, workspace_id: str | None = None
    ) -> tuple[AuditEntry, ...]:
        """Returns the newest entries first. With a workspace id, returns only that workspace's entries."""
        ...
