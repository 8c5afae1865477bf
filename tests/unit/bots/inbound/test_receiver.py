"""What the receiver makes of buttons and of what it has stored: who is woken, and what people are told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bots.inbound import receiver as receiver_module
from bots.inbound.access import NOT_ALLOWED, AccessPolicy
from bots.inbound.actions import NO_ANSWER, CommandCalled, FeedbackGiven, Outcome, RunButtonPressed, conversation_link
from bots.inbound.receiver import IN_NEWEST, NO_DETAILS, NOT_OF_THIS, ActionReceiver
from core.domain.actions import ActorContext, IncomingMessage, StopRequested
from core.domain.threads import Accept, Address, Decision, Hold, Ignore, Overhear, Person, Run, StopRun, Thread
from core.stores import Receipt
from tests.histories.virtual_time import in_virtual_time

NOW = datetime(2026, 11, 30, tzinfo=UTC)
HERE = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
THERE = replace(HERE, thread_key="2.0")
DIRECT = replace(HERE, channel_id="D1", thread_key="3.0")
ALICE, BOB = Person(person_id="U1", name="alice"), Person(person_id="U2", name="bob")
EVERYBODY = AccessPolicy(workspaces=("*",))
MESSAGE = IncomingMessage(
    address=HERE, dedupe_key="k", person=ALICE, message_ref="1", text="hello", sent_at=NOW, is_addressed=True
)


@dataclass
class Ports:
    """Everything that a receiver calls. `events` lists the calls in order."""

    decision: Decision = field(default_factory=Accept)
    newest: dict[str, Any] = field(default_factory=dict[str, Any])
    is_stoppable: bool = True
    has_refused: bool = False
    retried: str | None = "r2"
    steps: str = "1. Looked."
    home: Address | None = HERE
    policy: AccessPolicy = EVERYBODY
    conversation: Address | None = None
    answered_at: tuple[Address, ...] = ()
    holds: int = 0
    modes: dict[str, Any] = field(default_factory=lambda: {"": "default"})
    rules: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    events: list[str] = field(default_factory=list[str])
    accepted: list[str] = field(default_factory=list[str])
    keys: set[str] = field(default_factory=set[str])

    def receiver(self) -> ActionReceiver:
        commands = SimpleNamespace(
            conversations=self,
            describe_run=self.describe,
            roster=SimpleNamespace(current_definitions=self.agents),
            admin=SimpleNamespace(policy=self.policy),
        )
        return ActionReceiver(
            inbox=self,
            stops=self,
            queue=self,
            signals=self,
            policy=self.policy,
            commands=commands,
            wake_delivery=lambda run_id: self.events.append(f"shows {run_id}"),
            reopen_delivery=self.reopen_delivery,
            pairings=SimpleNamespace(is_paired=self.is_paired),
            feedback=cast(Any, self),
            follow_modes=self.modes,
        )

    async def accept_action(self, action: Any, rule: Any) -> Receipt:
        keywords = rule.keywords
        self.rules.append(keywords)
        self.accepted.append(f"{action.address.thread_key}{' only as an answer' * keywords['must_answer']}")
        if self.holds and keywords["may_hold"]:
            self.holds -= 1
            return Receipt(decision=Hold(), thread_id="t", run_id=None)
        if keywords["must_answer"] and action.address not in self.answered_at:
            return Receipt(decision=NO_ANSWER, thread_id="t", run_id=None)
        return Receipt(decision=self.decision, thread_id="t", **{"run_id": "r", "is_new_run": True, **self.newest})

    async def claim_key(self, key: str, **_others: object) -> bool:
        is_new = key not in self.keys
        self.keys.add(key)
        return is_new

    async def is_key_claimed(self, key: str) -> bool:
        return key in self.keys

    async def is_paired(self, *_arguments: object) -> bool:
        return False

    async def agents(self) -> dict[str, object]:
        return {}

    async def put(self, run_id: str) -> None:
        self.events.append(f"queues {run_id}")

    async def send(self, run_id: str) -> None:
        self.events.append(f"signals {run_id}")

    async def request_stop(self, run_id: str, *, by: Person | None, at: datetime | None) -> bool:
        self.events += [f"stops {run_id}"] if self.is_stoppable else []
        return self.is_stoppable

    async def retry_run(
        self, run_id: str, _key: str, *, continues: bool, by: Person, at: datetime | None
    ) -> str | None:
        self.events.append(f"{'continues' if continues else 'retries'} {run_id}")
        return self.retried

    async def reopen_delivery(self, run_id: str) -> bool:
        self.events += [f"reopens {run_id}"] if self.has_refused else []
        return self.has_refused

    async def describe(self, _run_id: str) -> str:
        return self.steps

    async def record(self, feedback: Any) -> None:
        self.events.append(f"{feedback.person.name} says {feedback.is_good} of {feedback.thread_id}: {feedback.reason}")

    async def has_thread(self, address: Address) -> bool:
        return address.thread_key == "old"

    async def runs_of_person(self, *place: str, limit: int, channel_id: str) -> Any:
        assert (place, limit, channel_id) == (("slack", "T1", "U1"), 1, "D1")
        return [(None, SimpleNamespace(address=self.conversation))] if self.conversation else []

    async def note_author(self, _address: Address, person: Person) -> None:
        self.events.append(f"notes {person.name}")

    async def run_with_thread(self, run_id: str) -> tuple[Run, Thread] | None:
        if self.home is None:
            return None
        run = Run(run_id=run_id, thread_id="t", status="failed", requester=ALICE, created_at=NOW)
        thread = Thread(thread_id="t", address=self.home, state="idle", created_at=NOW, last_activity_at=NOW)
        return run, thread


STOPPED = ["stops r", "signals r", "queues r", "shows r"]
ENDED = "It has ended already."
NEWER = "There is something newer in this thread already."
LISTED = AccessPolicy(workspaces=("T1",), channels=("C1",), users=("U1",))


@pytest.mark.parametrize(
    ("action", "ports", "notice", "events"),
    [
        ("details", Ports(), "1. Looked.", []),
        ("details", Ports(steps=""), NO_DETAILS, []),
        ("stop", Ports(), "", STOPPED),
        ("stop", Ports(is_stoppable=False), ENDED, []),
        ("stop", Ports(is_stoppable=False, has_refused=True), "", ["reopens r", "shows r"]),
        ("stop", Ports(has_refused=True), "", STOPPED),
        ("retry", Ports(), "", ["retries r", "queues r2", "shows r2"]),
        ("retry", Ports(has_refused=True), "", ["reopens r", "shows r"]),
        ("retry", Ports(retried=None), NEWER, ["retries r"]),
        ("continue", Ports(has_refused=True), "", ["continues r", "queues r2", "shows r2"]),
        ("stop", Ports(home=None), "", STOPPED),
        ("stop", Ports(home=THERE), "", STOPPED),
        ("stop", Ports(home=replace(THERE, workspace_id="T9")), NOT_OF_THIS, []),
        ("stop", Ports(home=replace(THERE, platform="discord")), NOT_OF_THIS, []),
    ],
)
async def test_what_a_button_of_a_run_does(action: Any, ports: Ports, notice: str, events: list[str]) -> None:
    button = RunButtonPressed(address=HERE, dedupe_key="b", run_id="r", action=action, person=ALICE)
    outcome = await ports.receiver().receive(button)
    assert (outcome.notice, ports.events) == (notice, events)
    is_done = not notice or action == "details"
    assert outcome.is_ignored is not is_done
    run_id = next((event.split()[1] for event in reversed(events)), None) if is_done else None
    assert outcome.run_id == run_id


@pytest.mark.parametrize(
    ("person", "address", "home", "policy", "notice"),
    [
        (BOB, HERE, HERE, LISTED, NOT_ALLOWED),
        (BOB, HERE, THERE, EVERYBODY, NOT_OF_THIS),
        (ALICE, DIRECT, HERE, LISTED, ""),
        (ALICE, DIRECT, HERE, replace(LISTED, channels=("C2",)), NOT_ALLOWED),
        (ALICE, DIRECT, HERE, AccessPolicy(workspaces=("T1",), roles=("R1",)), NOT_ALLOWED),
        (
            ALICE,
            replace(DIRECT, platform="discord", workspace_id="@me"),
            replace(HERE, platform="discord"),
            AccessPolicy(workspaces=("T1",), channels=("C1",), roles=("R1",)),
            "",
        ),
    ],
)
async def test_who_may_press_it_is_decided_by_the_place_of_the_run(
    person: Person, address: Address, home: Address, policy: AccessPolicy, notice: str
) -> None:
    actor = ActorContext(is_direct=address.channel_id == "D1", expects_answer=True)
    button = RunButtonPressed(address=address, dedupe_key="b", run_id="r", action="stop", person=person, actor=actor)
    outcome = await Ports(home=home, policy=policy).receiver().receive(button)
    assert outcome.notice == notice


ASK = SimpleNamespace(run_id="r0")
STOP = StopRequested(address=HERE, dedupe_key="k", person=ALICE, message_ref="1")
TOLD = Ignore(reason="empty", notice="Hello!")


@pytest.mark.parametrize(
    ("action", "ports", "notices", "events"),
    [
        (MESSAGE, Ports(), ["", ""], ["shows r", "queues r"] * 2),
        (MESSAGE, Ports(newest={"is_new_run": False}), [""], ["shows r"]),
        (MESSAGE, Ports(newest={"is_duplicate": True}), [""], []),
        (MESSAGE, Ports(newest={"answered_ask": ASK}), [""], ["shows r0", "shows r", "queues r"]),
        (MESSAGE, Ports(StopRun(), {"is_new_run": False}), [""], ["signals r", "shows r"]),
        (MESSAGE, Ports(Overhear(reason="talk"), {"run_id": None}), [""], []),
        (MESSAGE, Ports(TOLD, {"run_id": None}), ["Hello!", ""], []),
        (replace(MESSAGE, address=replace(HERE, platform="api")), Ports(TOLD, {"run_id": None}), ["Hello!"] * 2, []),
        (replace(MESSAGE, actor=ActorContext(app_ids=frozenset({"A1"}))), Ports(TOLD, {"run_id": None}), [""], []),
        (STOP, Ports(TOLD, {"run_id": None}), ["Hello!"] * 2, []),
        (MESSAGE, Ports(policy=AccessPolicy()), [NOT_ALLOWED, ""], ["notes alice"] * 2),
    ],
)  # fmt: skip
async def test_who_is_woken_and_told(action: Any, ports: Ports, notices: list[str], events: list[str]) -> None:
    if action.actor.app_ids:
        ports.policy = AccessPolicy(workspaces=("*",), apps=("A1",))
    outcomes = [await ports.receiver().receive(action) for _ in notices]
    assert [outcome.notice for outcome in outcomes] == notices
    assert ports.events == events
    is_taken = isinstance(ports.decision, Accept | StopRun) and "is_duplicate" not in ports.newest
    assert all(outcome.is_ignored is not (is_taken and NOT_ALLOWED not in notices) for outcome in outcomes)


async def fail() -> None:
    raise RuntimeError("no thread")


@pytest.mark.parametrize(("prepare", "seconds"), [(fail, 30.0), (asyncio.Event().wait, 0.01)])
async def test_a_run_that_could_not_be_prepared_begins_all_the_same(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[], Awaitable[object]], seconds: float
) -> None:
    monkeypatch.setattr(receiver_module, "PREPARE_SECONDS_MAX", seconds)
    ports = Ports()
    outcome = await ports.receiver().receive(replace(MESSAGE, prepare=prepare))
    assert (outcome.run_id, ports.events) == ("r", ["shows r", "queues r"])


async def test_a_run_begins_once_it_is_prepared() -> None:
    ports, is_ready = Ports(), asyncio.Event()

    async def prepare() -> None:
        ports.events.append("prepares")
        is_ready.set()
        await asyncio.sleep(0)
        ports.events.append("has prepared")

    await ports.receiver().receive(replace(MESSAGE, prepare=prepare))
    assert ports.events == ["shows r", "prepares", "has prepared", "queues r"]


@in_virtual_time
async def test_a_command_that_another_process_answers_is_left_to_it() -> None:
    """The other one has begun. It answers in time, or it has died and this one answers."""
    carried_out = list[str]()

    async def answer(called: CommandCalled, _deps: object) -> Outcome:
        carried_out.append(called.dedupe_key)
        return Outcome(notice="Done.")

    began = asyncio.get_running_loop().time()
    receiver = Ports(keys={"left:begun", "done:begun", "done"}).receiver()
    receiver.answering.add("busy")
    called = CommandCalled(address=HERE, dedupe_key="left", name="help", argument="", person=ALICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiver_module, "answer_command", answer)
        assert (await receiver.receive(called)).notice
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.1)
        for key in ("left", "done", "busy"):
            assert (await receiver.receive(replace(called, dedupe_key=key))).is_ignored
    assert carried_out == ["left"]


@pytest.mark.parametrize(
    ("name", "key", "is_linked"),
    [("knowledge", "", True), ("knowledge", "old", False), ("follow", "", True), ("help", "", False)],
)
async def test_a_command_outside_of_a_conversation_says_which_one_it_was_for(
    name: str, key: str, *, is_linked: bool
) -> None:
    asked = list[Address]()

    async def answer(called: CommandCalled, _deps: object) -> Outcome:
        asked.append(called.address)
        return Outcome(notice="Done.")

    place = replace(DIRECT, thread_key=key)
    called = CommandCalled(address=place, dedupe_key="c", name=name, argument="", person=ALICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiver_module, "answer_command", answer)
        outcome = await Ports(conversation=DIRECT).receiver().receive(called)
    assert asked == [place if key else DIRECT]
    assert outcome.notice == ("Done." + IN_NEWEST.format(conversation_link(DIRECT)) if is_linked else "Done.")


@pytest.mark.parametrize(("home", "is_taken"), [(HERE, True), (THERE, False)])
async def test_feedback_is_recorded_in_the_conversation_of_its_run(home: Address, *, is_taken: bool) -> None:
    ports = Ports(home=home)
    feedback = FeedbackGiven(address=HERE, dedupe_key="f", run_id="r", person=ALICE, is_good=False, text="Wrong.")
    outcome = await ports.receiver().receive(feedback)
    assert (outcome.notice, outcome.is_ignored) == (("", False) if is_taken else (NOT_OF_THIS, True))
    assert ports.events == ["alice says False of t: Wrong."] * is_taken


TOP = replace(MESSAGE, address=replace(DIRECT, thread_key="1"))


@pytest.mark.parametrize(
    ("action", "ports", "accepted"),
    [
        (MESSAGE, Ports(conversation=DIRECT), ["1.0"]),
        (TOP, Ports(), ["1"]),
        (TOP, Ports(conversation=DIRECT), ["3.0 only as an answer", "1"]),
        (TOP, Ports(conversation=DIRECT, answered_at=(DIRECT,)), ["3.0 only as an answer"]),
        (replace(TOP, agent_id="coding"), Ports(conversation=DIRECT), ["1"]),
        (replace(TOP, address=replace(DIRECT, thread_key="2")), Ports(conversation=DIRECT), ["2"]),
        (replace(TOP, address=replace(DIRECT, thread_key="old"), message_ref="old"), Ports(conversation=DIRECT),
         ["old"]),
        (replace(TOP, address=replace(TOP.address, platform="discord")), Ports(conversation=DIRECT), ["1"]),
        (CommandCalled(address=replace(DIRECT, thread_key=""), dedupe_key="c", name="stop", argument="", person=ALICE),
         Ports(conversation=DIRECT), ["3.0"]),
        (MESSAGE, Ports(holds=3), ["1.0"] * 4),
        (MESSAGE, Ports(holds=99), ["1.0"] * 8),
    ],
)  # fmt: skip
@in_virtual_time
async def test_where_and_how_often_a_message_is_offered(action: Any, ports: Ports, accepted: list[str]) -> None:
    began = asyncio.get_running_loop().time()
    outcome = await ports.receiver().receive(action)
    assert (ports.accepted, outcome.is_ignored) == (accepted, False)
    waits = len(accepted) - 1 if accepted[0] == "1.0" else 0
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.2 * waits, abs=0.1)


@pytest.mark.parametrize(
    ("action", "ports", "rule"),
    [
        (MESSAGE, Ports(), ("default", False, None)),
        (MESSAGE, Ports(modes={"": "mention"}), ("mention", False, None)),
        (MESSAGE, Ports(modes={"": "mention", "C1": "quiet"}), ("quiet", False, None)),
        (MESSAGE, Ports(policy=replace(EVERYBODY, admins=("U1",))), ("default", True, None)),
        (replace(MESSAGE, address=replace(HERE, platform="api")), Ports(), ("default", True, None)),
        (replace(MESSAGE, agent_id="coding"), Ports(), ("default", False, {})),
    ],
)
async def test_what_the_decision_takes_into_account(action: Any, ports: Ports, rule: tuple[object, ...]) -> None:
    await ports.receiver().receive_trusted(action)
    assert tuple(ports.rules[0][name] for name in ("follow_mode", "is_admin", "agents")) == rule


async def test_values_are_suggested_only_to_people_with_access(monkeypatch: pytest.MonkeyPatch) -> None:
    async def suggest(*_arguments: object) -> list[str]:
        return ["coding"]

    monkeypatch.setattr(receiver_module, "suggest_values", suggest)
    called = CommandCalled(address=HERE, dedupe_key="k", name="use", argument="", person=ALICE)
    assert [*await Ports().receiver().suggest_values(called)] == ["coding"]
    assert [*await Ports(policy=AccessPolicy()).receiver().suggest_values(called)] == []
