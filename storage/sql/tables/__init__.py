"""All tables. Rows stay in this package: `storage.sql.rows` converts them to the types of core and back."""

from sqlmodel import SQLModel

from storage.sql.tables.conversations import (
    claimed_keys as claimed_keys,
)
from storage.sql.tables.conversations import (
    deliveries as deliveries,
)
from storage.sql.tables.conversations import (
    inbound_cursors as inbound_cursors,
)
from storage.sql.tables.conversations import (
    leases as leases,
)
from storage.sql.tables.conversations import (
    messages as messages,
)
from storage.sql.tables.conversations import (
    pending_asks as pending_asks,
)
from storage.sql.tables.conversations import (
    plans as plans,
)
from storage.sql.tables.conversations import (
    renderings as renderings,
)
from storage.sql.tables.conversations import (
    run_events as run_events,
)
from storage.sql.tables.conversations import (
    runs as runs,
)
from storage.sql.tables.conversations import (
    sandboxes as sandboxes,
)
from storage.sql.tables.conversations import (
    thread_inputs as thread_inputs,
)
from storage.sql.tables.conversations import (
    threads as threads,
)
from storage.sql.tables.conversations import (
    tool_calls as tool_calls,
)
from storage.sql.tables.conversations import (
    usages as usages,
)
from storage.sql.tables.conversations import (
    workers as workers,
)
from storage.sql.tables.workspaces import (
    agent_versions as agent_versions,
)
from storage.sql.tables.workspaces import (
    audit_entries as audit_entries,
)
from storage.sql.tables.workspaces import (
    knowledge_chunks as knowledge_chunks,
)
from storage.sql.tables.workspaces import (
    knowledge_entries as knowledge_entries,
)
from storage.sql.tables.workspaces import (
    knowledge_vectors as knowledge_vectors,
)
from storage.sql.tables.workspaces import (
    pairings as pairings,
)
from storage.sql.tables.workspaces import (
    takeover_claims as takeover_claims,
)
from storage.sql.tables.workspaces import (
    workspaces as workspaces,
)

METADATA = SQLModel.metadata
