"""The commands about a conversation: which agent works in it, when it answers, and how its state and sizes are told."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled
from bots.inbound.commands.admin import ADMINS_ONLY
from bots.inbound.commands.conversation import (
    FILES_SHOWN_MAX,
    NO_THREAD_YET,
    answer_files,
    answer_follow,
    answer_new,
    answer_status,
    answer_use,
    format_size,
    format_usage,
)
from core.domain.errors import RunError, SurfaceRefused
from core.domain.threads import Address, Ask, Person, Run, RunStatus, Usage
from core.ports import FileEntry
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

    async def current_definitions(self) -> dict[str, Any]:
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


def entry(path: str, size_bytes: int = 1540) -> FileEntry:
    return FileEntry(path=path, kind="folder" if size_bytes < 0 else "file", size_bytes=size_bytes, modified_at=0.0)


MANY = [entry(f"{number}.md") for number in range(FILES_SHOWN_MAX + 1)]


@pytest.mark.parametrize(
    ("argument", "entries", "answer", "posted"),
    [
        ("", [], "There are no files yet.", []),
        ("", [entry(".cache"), entry("a.md"), entry("src", -1)], "- `a.md` (1.5 kB)\n- `src/`", []),
        ("a.md", [entry("a.md")], "`a.md` is posted here.", ["a.md of 1540 from a.md"]),
        ("src/a.md", [entry("src/a.md")], "`src/a.md` is posted here.", ["a.md of 1540 from src/a.md"]),
        ("src/", [entry("src/a.md")], "- `src/a.md` (1.5 kB)", []),
        ("a.md", SurfaceRefused("too large", code="x"), "The file could not be posted: too large", []),
        ("..", RunError("No."), "The files cannot be read: No.", []),
        ("", None, "There is no sandbox on this machine, so there are no files.", []),
        ("", MANY, "\n".join([*(f"- `{each.path}` (1.5 kB)" for each in MANY[:-1]), "- and 1 more"]), []),
        ("", MANY[:-1], "\n".join(f"- `{each.path}` (1.5 kB)" for each in MANY[:-1]), []),
    ],
)  # fmt: skip
async def test_files_are_listed_or_posted(argument: str, entries: Any, answer: str, posted: list[str]) -> None:
    uploads = list[str]()

    async def list_files(path: str) -> Any:
        assert path == (argument.rstrip("/") or ".")
        if isinstance(entries, Exception):
            raise entries
        return entries

    async def open_sandbox(_thread_id: str, *, fence: int) -> Any:
        assert fence == 0
        return SimpleNamespace(files=SimpleNamespace(list=list_files, read=lambda path, length: (path, length)))

    async def upload(_address: Address, file: Any) -> None:
        path, length = file.pieces
        assert length == file.size_bytes
        uploads.append(f"{file.name} of {length} from {path}")

    sandboxes = None if entries is None else SimpleNamespace(open=open_sandbox)
    deps: Any = SimpleNamespace(sandboxes=sandboxes, erasure=SimpleNamespace(upload=upload))
    assert (await answer_files(called(argument), snapshot(SLACK), deps)).notice == answer
    assert uploads == posted


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(input_tokens=1000, output_tokens=20, cost_usd=0.5), "1,000 tokens in, 20 out, $0.5000"),
        (Usage(input_tokens=1000, cached_tokens=900, output_tokens=20, cost_usd=0.5, estimated_usd=0.25),
         "1,000 tokens in (900 cached), 20 out, $0.5000 ($0.2500 of it estimated)"),
    ],
)  # fmt: skip
def test_usage_is_one_line(usage: Usage, words: str) -> None:
    assert format_usage(usage) == words


@pytest.mark.parametrize(
    ("is_idle", "words", "woken"), [(True, "Done. The next", ["r"]), (False, "I am still working", [])]
)
async def test_a_new_conversation_closes_the_open_question(words: str, woken: list[str], *, is_idle: bool) -> None:
    shown = list[str]()

    async def unbind(*_arguments: object, **_named: object) -> bool:
        return is_idle

    deps: Any = SimpleNamespace(
        conversations=SimpleNamespace(unbind=unbind), erasure=SimpleNamespace(wake_delivery=shown.append)
    )
    state = replace(snapshot(SLACK), open_ask=Ask(ask_id="a", run_id="r", text="Which?"))
    outcome = await answer_new(called(""), state, deps)
    assert (outcome.notice[: len(words)], outcome.is_private, shown) == (words, False, woken)


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
