"""The commands `forget` and `export`: who may delete a conversation, in which order it goes, and what a file has."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.conversation import require_conversation
from bots.inbound.commands.export import answer_export
from bots.inbound.commands.forget import NEWEST_SHOWN, NOT_HERE, NOT_YOURS, answer_forget, delete_conversation
from core.domain.actions import ActorContext
from core.domain.errors import SurfaceError
from core.domain.messages import Message
from core.domain.threads import Ask, ChatMessage, ChatPage, Person
from tests.histories.virtual_time import in_virtual_time
from tests.unit.bots.inbound.test_schedules import DAILY
from tests.unit.bots.test_what_actions_touch import ALICE, NOON, SLACK, snapshot

BOB, CAROL, ADMIN = (Person(person_id=f"U{number}", name=f"p{number}") for number in (12, 13, 14))
STATE = snapshot(SLACK)
DONE = replace(STATE.last_run, status="completed", finished_at=NOON)
POLICY = AccessPolicy(admins=(ADMIN.person_id,))
FIRST = ChatMessage(author=BOB, text="x", sent_at=NOON, message_ref=SLACK.thread_key)
REPLY = replace(FIRST, author=CAROL, message_ref="9.9")
HERE = Message(type="user", content={"content": "né"}, is_llm_message=True, thread_id="t", created_at=NOON)
MESSAGES = [replace(HERE, metadata={"author": "alice"}), replace(HERE, type="assistant"), replace(HERE, type="status")]


@dataclass
class World:
    """A conversation, its ports, and what they did, in order."""

    state: Any = STATE
    polls: int = 0
    """How often its runs are read before they have ended."""
    shown: tuple[str, ...] = ()
    page: ChatPage | None = None
    has_sandboxes: bool = True
    is_there: bool = True
    upload_error: str = ""
    done: list[str] = field(default_factory=list[str])
    reads: int = 0

    def deps(self) -> Any:
        log = self.done
        signals = SimpleNamespace(send=recording(log, "signals"), request_stop=recording(log, "stops"))
        return SimpleNamespace(
            conversations=self,
            deliveries=self,
            schedules=self,
            sandboxes=SimpleNamespace(destroy=recording(log, "destroys")) if self.has_sandboxes else None,
            stops=signals,
            signals=signals,
            knowledge_base=SimpleNamespace(store=self),
            histories={"slack": self} if self.page else {},
            upload=self.upload,
            wake_delivery=lambda run_id: log.append(f"wakes {run_id}"),
        )

    async def thread_ids(self, _address: object, *, begun_by: object) -> tuple[str, ...]:
        return ("t",) if self.is_there else ()

    async def snapshot(self, _thread_id: str) -> Any:
        return self.state

    async def runs(self, _thread_id: str) -> Any:
        self.reads += 1
        return [DONE if self.reads > self.polls else self.state.last_run]

    async def open_runs(self) -> tuple[str, ...]:
        return self.shown

    async def read(self, _address: object, *, before: datetime, limit: int) -> Any:
        assert limit
        assert before > datetime.now(UTC) + timedelta(hours=23)
        if self.page == ChatPage():
            raise SurfaceError("gone")
        return self.page

    async def llm_messages(self, _thread_id: str) -> list[Message]:
        return MESSAGES

    async def entries(self, _scopes: object) -> list[object]:
        return [object()]

    async def list_schedules(self, _selection: object) -> list[Any]:
        return [replace(DAILY, thread_id="t", armed_at=NOON), *[replace(DAILY, thread_id="other")] * 2]

    async def unended_runs_of_person(self, *_arguments: object) -> tuple[str, ...]:
        return ("r",)

    async def erase_person(self, *_arguments: object) -> Any:
        return SimpleNamespace(messages=1000, names=2, usage=3)

    async def runs_of_person(self, *_arguments: object, limit: int) -> list[Any]:
        assert limit
        threads = [replace(self.state.thread, thread_id=f"t{number // 2}") for number in range(2 * NEWEST_SHOWN + 2)]
        runs = [(STATE.last_run, each, "*go*" if number else "") for number, each in enumerate(threads)]
        return runs if self.is_there else []

    async def delete_thread(self, thread_id: str, *, by: Person | None) -> None:
        self.done.append(f"deletes {thread_id} by {by.name if by else ''}")

    async def unbind(self, thread_id: str) -> None:
        self.done.append(f"unbinds {thread_id}")

    async def upload(self, _address: object, file: Any) -> None:
        if self.upload_error:
            raise SurfaceError(self.upload_error)
        content = b"".join([piece async for piece in file.pieces])
        assert (file.name, file.size_bytes) == ("conversation.json", len(content))
        assert b"\\u" not in content
        self.done += [" ".join(entry.values()) for entry in json.loads(content)]


def recording(log: list[str], verb: str) -> Any:
    async def record(value: str, by: Person | None = None) -> None:
        log.append(f"{verb} {value}" + (f" by {by.name}" if by else ""))

    return record


def called(argument: str, person: Person = ALICE, **others: Any) -> CommandCalled:
    values = {"address": SLACK, **others}
    return CommandCalled(dedupe_key="k", name="forget", argument=argument, person=person, **values)


DELETED = ["destroys t", "deletes t by {}", "destroys t"]
ENDED = replace(STATE, active_run=None, last_run=DONE)
BY_BOB, LONG = ChatPage(messages=(FIRST,)), ChatPage(messages=(REPLY,), root=FIRST)
DISCORD = replace(SLACK, platform="discord")


@pytest.mark.parametrize(
    ("command", "world", "answer", "is_private", "done"),
    [
        (called("me"), World(), "This removes your messages, your name, your schedules, your pairing and your share of"
         " the usage figures from all conversations with me in this workspace.", True, []),
        (called("me", address=DISCORD), World(), "This removes", True, []),
        (called("me yes"), World(), "Forgotten in this workspace: 1,000 of your messages, your name in 2 other places,"
         " and your share in 3 usage entries.", True, ["stops r by Alice", "signals r", "wakes r"]),
        (called("me yes", address=DISCORD), World(), "Forgotten in all servers: ", True,
         ["stops r by Alice", "signals r", "wakes r"]),
        (called("yes"), World(is_there=False), NOT_HERE, True, []),
        (called(""), World(ENDED), "This conversation holds 3 messages, 1 documents of knowledge, 1 schedules,", False,
         []),
        (called("yes"), World(ENDED), "Forgotten: this", False, DELETED),
        (called("yes", ADMIN), World(ENDED), "Forgotten: this", False, DELETED),
        (called("yes", BOB), World(ENDED), NOT_YOURS, True, []),
        (called("", BOB), World(ENDED), NOT_YOURS, True, []),
        (called("yes", BOB), World(ENDED, page=BY_BOB), "Forgotten: this", False, DELETED),
        (called("yes", BOB), World(ENDED, page=LONG), "Forgotten: this", False, DELETED),
        (called("yes", CAROL), World(ENDED, page=BY_BOB), NOT_YOURS, True, []),
        (called("yes", CAROL), World(ENDED, page=LONG), NOT_YOURS, True, []),
        (called("yes", BOB), World(ENDED, page=ChatPage()), NOT_YOURS, True, []),
    ],
)  # fmt: skip
async def test_who_may_forget_what(
    command: CommandCalled, world: World, answer: str, done: list[str], *, is_private: bool
) -> None:
    outcome = await answer_forget(command, world.deps(), POLICY)
    assert (outcome.notice[: len(answer)], outcome.is_private) == (answer, is_private)
    assert world.done == [line.format(command.person.name) for line in done]


ASKING = replace(ENDED, open_ask=Ask(ask_id="a", run_id="r0", text="Which?"))
GONE = [line.format("") for line in DELETED]


@pytest.mark.parametrize(
    ("world", "done", "seconds"),
    [
        (World(ENDED), GONE, 0),
        (World(None), GONE, 0),
        (World(ENDED, has_sandboxes=False), [GONE[1]], 0),
        (World(ASKING), ["unbinds t", "wakes r0", *GONE], 0),
        (World(polls=2), ["stops r", "signals r", *GONE[:2], "signals r", GONE[2]], 0.2),
        (World(ENDED, shown=("r",)), GONE, 5),
    ],
)
@in_virtual_time
async def test_a_conversation_is_closed_before_it_is_deleted(world: World, done: list[str], seconds: float) -> None:
    began = asyncio.get_running_loop().time()
    await delete_conversation("t", world.deps())
    assert (world.done, round(asyncio.get_running_loop().time() - began, 1)) == (done, seconds)


@pytest.mark.parametrize(
    ("command", "is_there", "answer"),
    [
        (called(""), True, ""),
        (called("", address=DISCORD), True, NOT_HERE),
        (called("", address=DISCORD, actor=ActorContext(is_direct=True)), True, ""),
        (called(""), False, NOT_HERE),
    ],
)
async def test_without_a_conversation_the_newest_are_offered(
    command: CommandCalled, answer: str, *, is_there: bool
) -> None:
    async def find(_address: object) -> None:
        return None

    async def answer_there(*_arguments: object) -> Outcome:
        raise NotImplementedError

    conversations = SimpleNamespace(find=find, runs_of_person=World(is_there=is_there).runs_of_person)
    deps: Any = SimpleNamespace(conversations=conversations)
    notice = (await require_conversation(answer_there)(command, deps)).notice
    assert notice == answer if answer else notice.count("\n- [") == NEWEST_SHOWN
    assert ("): …\n" in notice, r"\*go\*" in notice) == (not answer, not answer)


async def test_a_file_holds_what_was_said_and_is_scheduled() -> None:
    world = World()
    outcome = await answer_export(called(""), STATE, world.deps())
    assert (outcome.notice, outcome.is_private) == ("The conversation is in `conversation.json`.", False)
    at = NOON.isoformat()
    assert world.done == [
        f"{at} user alice né",
        f"{at} assistant  né",
        f"{at} schedule alice {DAILY.task} ({DAILY.headline})",
    ]
    refused = await answer_export(called(""), STATE, World(upload_error="too large").deps())
    assert refused == Outcome(notice="The export could not be posted: too large")
