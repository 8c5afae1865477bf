"""Runs and leases under any order of messages, claims, deaths, ends and takeovers: a state machine over SQLite."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.domain.errors import LeaseLost
from core.domain.threads import Lease
from tests.contracts.stores import ADDRESS, COMPLETED, FAILED, STOPPED, added, asking, stores_over
from tests.databases import open_sqlite

WORKERS = st.sampled_from(["w1", "w2", "w3"])


class RunsAndLeases(RuleBasedStateMachine):
    """The model: which lease is the newest, who is alive, and how many inputs nobody has taken."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp()
        self._runner = asyncio.Runner()
        database = self._runner.run(open_sqlite(Path(self._folder) / "x.db"))
        self.stores = stores_over(database)
        self.leases: list[Lease] = []
        self.valid: Lease | None = None
        self.alive: set[str] = set()
        self.active: str | None = None
        self.said = 0
        self.untaken = 0
        self.written = 0

    def teardown(self) -> None:
        self._runner.run(self.stores.database.close())
        self._runner.close()
        shutil.rmtree(Path(self._folder))

    @rule()
    def somebody_writes(self) -> None:
        self.said += 1
        receipt = self._runner.run(self.stores.say(f"message {self.said}"))
        assert receipt.is_new_run == (self.active is None)
        assert self.active in (None, receipt.run_id)
        self.active = receipt.run_id
        self.untaken += 1

    @precondition(lambda self: self.active is not None)
    @rule(worker=WORKERS)
    def a_worker_claims(self, worker: str) -> None:
        assert self.active is not None
        lease = self._runner.run(self.stores.claims.claim(self.active, worker))
        is_held = self.valid is not None and self.valid.worker_id in self.alive
        assert (lease is None) == is_held
        self.alive.add(worker)
        if lease is not None:
            assert all(lease.fence > older.fence for older in self.leases)
            self.leases.append(lease)
            self.valid = lease

    @rule(worker=WORKERS)
    def a_worker_dies(self, worker: str) -> None:
        self._runner.run(self.stores.silence(worker))
        self.alive.discard(worker)

    @precondition(lambda self: self.leases)
    @rule(choice=st.randoms(use_true_random=False))
    def somebody_journals(self, choice) -> None:
        lease = choice.choice(self.leases)
        self.written += 1
        writing = self.stores.journal.write(lease, added(lease, self.written, "words"))
        if lease != self.valid:
            self.written -= 1
            with pytest.raises(LeaseLost):
                self._runner.run(writing)
        else:
            self._runner.run(writing)

    @precondition(lambda self: self.leases)
    @rule(
        choice=st.randoms(use_true_random=False),
        ending=st.sampled_from([COMPLETED, FAILED, STOPPED, asking("?")]),
        takes=st.booleans(),
    )
    def somebody_finishes(self, choice, ending, takes: bool) -> None:
        lease = choice.choice(self.leases)
        if lease != self.valid:
            with pytest.raises(LeaseLost):
                self._runner.run(self.stores.finish(lease, ending, takes=takes))
            return
        is_refused = self.untaken > 0 and not takes and ending.yields_to_input
        assert self._runner.run(self.stores.finish(lease, ending, takes=takes)) is not is_refused
        if is_refused:
            return
        self.untaken = 0 if takes else self.untaken
        self.valid = None
        runs = self._runner.run(self.stores.conversations.runs(lease.thread_id))
        self.active = runs[-1].run_id if self.untaken else None
        assert (runs[-1].run_id != lease.run_id) == (self.untaken > 0)

    @precondition(lambda self: self.leases)
    @rule(choice=st.randoms(use_true_random=False))
    def somebody_hands_back(self, choice) -> None:
        lease = choice.choice(self.leases)
        self._runner.run(self.stores.claims.release(lease))
        if lease == self.valid:
            self.valid = None

    @invariant()
    def the_thread_tells_the_truth(self) -> None:
        snapshot = self._runner.run(self.stores.conversations.find(ADDRESS))
        if snapshot is None:
            assert self.said == 0
            return
        active = snapshot.active_run
        assert (active.run_id if active else None) == self.active
        assert (snapshot.thread.state == "running") == (active is not None)
        assert (snapshot.thread.state == "waiting") == (active is None and snapshot.open_ask is not None)
        if active is not None:
            assert (active.status == "running") == (self.valid is not None)
        messages = self._runner.run(self.stores.conversations.messages(snapshot.thread.thread_id))
        assert [one.sequence for one in messages] == list(range(1, self.written + 1))

    @invariant()
    def what_nobody_runs_can_be_recovered(self) -> None:
        for worker in self.alive:
            self._runner.run(self.stores.claims.heartbeat(worker))
        is_held = self.valid is not None and self.valid.worker_id in self.alive
        expected = () if self.active is None or is_held else (self.active,)
        assert self._runner.run(self.stores.claims.claimable_runs()) == expected


RunsAndLeases.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestRunsAndLeases = RunsAndLeases.TestCase
