"""All tables. Rows stay in this package: `storage.sql.rows` converts them to the types of core and back."""

# the tables are imported from here
# pyright: reportUnusedImport=false

from sqlmodel import SQLModel

from storage.sql.tables.schedules import firings, schedules
from storage.sql.tables.threads_and_runs import (
    claimed_keys,
    deliveries,
    feedback,
    follow_modes,
    heard_messages,
    inbound_cursors,
    leases,
    message_versions,
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
    usage_days,
    usages,
    workers,
)
from storage.sql.tables.workspaces import (
    agent_versions,
    audit_entries,
    budget_limits,
    knowledge_chunks,
    knowledge_entries,
    knowledge_vectors,
    pairings,
    saved_agents,
    takeover_claims,
    workspaces,
)

METADATA = SQLModel.metadata
