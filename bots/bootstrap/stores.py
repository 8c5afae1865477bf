"""Opens the database, builds its stores and connects the messaging between processes."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from bots.bootstrap.process_messaging import Messaging, open_messaging
from bots.bootstrap.semantic_search import open_semantic_search
from bots.settings import Settings
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.semantic_search import SemanticSearch
from core.ports import RunQueue
from storage.sql.database import Database, LimitedDatabase, opened_database
from storage.sql.stores.agents import SqlAgentVersions, SqlPlans
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.knowledge import SqlKnowledge
from storage.sql.stores.run_claims import SqlRunClaims, SqlRunRequests
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.run_transitions import SqlAsks
from storage.sql.stores.sandboxes import SqlSandboxRecords
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.stores.takeover_claims import SqlTakeoverClaims
from storage.sql.stores.talk import SqlFeedback, SqlFollowModes
from storage.sql.stores.usage import SqlLedger
from storage.sql.stores.workspaces import SqlInstallations, SqlPairings

DELIVERY_TRANSACTIONS_MAX = 4
"""How many of a process's database connections (10 with PostgreSQL) deliveries use at once. The others stay free for
new messages, so that a burst of them is stored and acknowledged before the answers to it go out."""


class Stores:
    """All stores of the database, and the messaging between processes."""

    def __init__(self, database: Database, messaging: Messaging, semantics: SemanticSearch | None = None) -> None:
        self.database = database
        self.messaging = messaging
        self.inbox = SqlInbox(database)
        self.conversations = SqlConversations(database)
        self.follow_modes = SqlFollowModes(database)
        self.claims = SqlRunClaims(database)
        self.stops = SqlRunRequests(database)
        self.journal = SqlRunJournal(database)
        self.deliveries = SqlDeliveries(LimitedDatabase(database, DELIVERY_TRANSACTIONS_MAX))
        self.asks = SqlAsks(database)
        self.audit = SqlAuditLog(database)
        self.pairings = SqlPairings(database)
        self.installations = SqlInstallations(database)
        self.ledger = SqlLedger(database)
        self.plans = SqlPlans(database)
        self.sandboxes = SqlSandboxRecords(database)
        self.agents = SqlAgentVersions(database)
        self.knowledge_base = KnowledgeBase(store=SqlKnowledge(database), semantics=semantics)
        self.bus = messaging.bus
        self.queue = messaging.queue
        self.signals = messaging.signals
        self.feedback = SqlFeedback(database)
        self.takeover_claims = SqlTakeoverClaims(database)
        self.schedules = SqlSchedules(database)


@asynccontextmanager
async def open_stores(settings: Settings, queue: RunQueue | None) -> AsyncGenerator[Stores, None]:
    """Context manager: yields stores that are open inside the block.

    `queue` replaces the queue from the settings. Raises ConfigurationError if the database or Redis cannot be used."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened_database(settings.storage_url))
        messaging = await stack.enter_async_context(open_messaging(settings, queue))
        semantics = await stack.enter_async_context(open_semantic_search(settings, database))
        yield Stores(database, messaging, semantics)
