"""The commands about a conversation: which agent works in it, when it answers, and how its state and sizes are told."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled
from bots.inbound.commands.admin import ADMINS_ONLY
from bots.inbound.commands.conversation import NO_THREAD_YET, answer_follow, answer_status, answer_use, format_size
from core.domain.threads import Address, Ask, Person, Run, RunStatus
from tests.unit.bots.test_what_actions_touch import SLACK, snapshot

THREAD = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
CHANNEL = replace(THREAD, thread_key="")
ALICE, ADMIN = Person(person_id="U1", name="alice"), Person(person_id="U2", name="bob")


class Deps:
    """A conversation, or none, and what was chosen in it."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.admin = SimpleNamespace(policy=AccessPolicy(admins=("U2",)))
        self.conversations = self.roster = self.versions = self.follow_modes = self
        self.chosen = list[object]()
        self.is_there = is_there

    async def find(self, _address: Address) -> Any:
        return SimpleNamespace(thread=SimpleNamespace(agent_id=None)) if self.is_there else None

    async def agents(self) -> dict[str, Any]:
        return {"research": None}

    async def choose_agent(self, address: Address, name: str, *, by: Person, begins_with: str) -> None:
        self.chosen.append((address, name, begins_with))

    async def set_mode(self, address: Address, mode: str, *, is_whole_channel: bool) -> None:
        self.chosen.append((mode, "channel" if is_whole_channel else "thread"))


def called(argument: str, address: Address = THREAD, **others: Any) -> CommandCalled:
    values = {"person": ALICE, **others}
    return CommandCalled(address=address, dedupe_key="1", name="any", argument=argument, **values)


HERE = replace(THREAD, platform="discord")
MESSAGE = SimpleNamespace(message_ref="7")


@pytest.mark.parametrize(
    ("command", "is_there", "answer", "begins_with"),
    [
        (called("Research"), True, "`research` works in this conversation", ""),
        (called("research", message=MESSAGE), False, "`research` works in this conversation", "7"),
        (called("<!everyone>"), True, "There is no agent everyone. There are: research.", None),
        (called("research", CHANNEL), True, NO_THREAD_YET, None),
        (called("research", HERE), True, "`research` works in this conversation", ""),
        (called("research", HERE), False, NO_THREAD_YET, None),
        (called("research", replace(HERE, thread_key="dm")), False, "`research` works in this conversation", ""),
    ],
)
async def test_an_agent_is_chosen_for_a_conversation(
    command: CommandCalled, is_there: bool, answer: str, begins_with: str | None
) -> None:
    deps = Deps(is_there=is_there)
    outcome = await answer_use(command, deps)
    assert outcome.notice.startswith(answer)
    assert deps.chosen == ([] if begins_with is None else [(command.address, "research", begins_with)])


@pytest.mark.parametrize(
    ("command", "is_there", "answer", "chosen"),
    [
        (called(""), True, "I read everything in this thread now", ("follow", "thread")),
        (called("quiet"), True, "I stay quiet in this thread", ("quiet", "thread")),
        (called("quiet"), False, "I stay quiet in this thread", ("quiet", "thread")),
        (called("quiet", is_addressed=False), True, "I stay quiet in this thread", ("quiet", "thread")),
        (called("quiet", is_addressed=False), False, "", None),
        (called("quiet channel"), True, ADMINS_ONLY, None),
        (called("quiet", CHANNEL), True, ADMINS_ONLY, None),
        (called("quiet channel", person=ADMIN), True, "I stay quiet in the threads of this", ("quiet", "channel")),
        (called("default", CHANNEL, person=ADMIN), True, "In the threads of this", ("default", "channel")),
    ],
)
async def test_only_admins_choose_for_a_whole_channel(
    command: CommandCalled, is_there: bool, answer: str, chosen: tuple[str, str] | None
) -> None:
    deps = Deps(is_there=is_there)
    outcome = await answer_follow(command, deps)
    assert outcome.notice.startswith(answer)
    assert outcome.is_ignored is (answer == "")
    assert deps.chosen == ([] if chosen is None else [chosen])


def run(status: RunStatus, **others: Any) -> Run:
    known = snapshot(SLACK).last_run
    assert known is not None
    return replace(known, status=status, **others)


@pytest.mark.parametrize(
    ("active", "last", "ask", "answer"),
    [
        (run("running"), run("running"), None, "Working for Alice."),
        (run("running", requester=None), None, None, "Working."),
        (run("running", agent_id="research"), None, None, "Working for Alice as `research`."),
        (run("running", agent_id="threadhand"), None, None, "Working for Alice."),
        (run("queued"), None, None, "Waiting in line for Alice."),
        (run("waiting"), None, None, "Waiting for an approval for Alice."),
        (None, run("completed"), Ask(ask_id="a", run_id="r", text="Which?"), "Waiting for an answer to: Which?"),
        (None, run("failed"), None, "Idle. The last run failed."),
        (None, None, None, "Nothing has been asked of me here yet."),
    ],
)
async def test_the_state_of_a_conversation(active: Run | None, last: Run | None, ask: Ask | None, answer: str) -> None:
    state = replace(snapshot(SLACK), active_run=active, last_run=last, open_ask=ask)
    assert (await answer_status(called(""), state, Deps())).notice == answer


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1540, "1.5 kB"),
        (1_000_000, "1.0 MB"),
        (2_500_000, "2.5 MB"),
        (1_000_000_000, "1.0 GB"),
        (7_200_000_000, "7.2 GB"),
    ],
)
def test_sizes_in_decimal_units(size_bytes: int, words: str) -> None:
    assert format_size(size_bytes) == words
