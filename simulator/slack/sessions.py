"""The sessions of an agent, which the platform shows beside its threads."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class AgentSession:
    status: str
    title: str = ""
    initiator_id: str | None = None
