"""All tables. Rows stay in this package: `storage.sql.rows` converts them to the types of core and back."""

from sqlmodel import SQLModel

from storage.sql.tables.threads_and_runs import (
    claimed_keys,
    deliveries,
    inbound_cursors,
    leases,
    messages,
    pending_asks,
    plans,
    renderings,
    run_events,
    runs,
    sandboxes,
    thread_inputs,
    threads,
    tool_calls,
    usages,
    workers,
)
from storage.sql.tables.workspaces import (
    agent_versions,
    audit_entries,
    knowledge_chunks,
    knowledge_entries,
    knowledge_vectors,
    pairings,
    takeover_claims,
    workspaces,
)

METADATA = SQLModel.metadata

__all__ = [
    "METADATA",
    "agent_versions",
    "audit_entries",
    "claimed_keys",
    "deliveries",
    "inbound_cursors",
    "knowledge_chunks",
    "knowledge_entries",
    "knowledge_vectors",
    "leases",
    "messages",
    "pairings",
    "pending_asks",
    "plans",
    "renderings",
    "run_events",
    "runs",
    "sandboxes",
    "takeover_claims",
    "thread_inputs",
    "threads",
    "tool_calls",
    "usages",
    "workers",
    "workspaces",
]
