"""How a run holds its conversation: within the window, after a refusal, over runs, and beside other people's talk."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from core.context.background_messages import BackgroundMessageReader
from core.context.limits import ContextLimit
from core.context.window import ContextPolicy
from core.domain.errors import ContextOverflow, SurfaceRateLimited
from core.domain.events import ChecklistChanged, RunFailed
from core.domain.threads import Address, ChatMessage, ChatPage, Person
from core.llm.retry import stream_with_retries
from core.prompt.system_prompt import RunPrompt
from core.run.execute import execute
from core.tools.catalogue import all_tools
from core.tools.tool import ToolContext, ToolSet
from tests.fakes.sandbox_memory import MemorySandboxes, Terminal, printing
from tests.fakes.streamed_model import USAGE, calls, text
from tests.integration.core.conftest import EchoParams, World
from tests.support.conversations import thread_input, words
from tests.support.narrow import require


def policy(room: int, **changes: Any) -> ContextPolicy:
    limits = {"test": ContextLimit(window=room + 1000, reserved=1000)}
    return ContextPolicy(limits=limits, **changes)


def sent(world: World, number: int) -> list[str]:
    return [json.dumps(one, ensure_ascii=False) for one in world.model.requests[number].messages]


def echo(count: int, *, seed: int = 1) -> Any:
    return calls(("echo", json.dumps({"text": words(count, seed=seed)})))


async def test_messages_are_stored_with_their_tokens(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}'), said="I will."), text("done")]
    run_id = await world.run("go")
    assert all(one.token_count > 0 for one in await world.history(run_id))


async def test_a_long_result_is_shortened_before_the_next_call_and_can_be_expanded(world: World) -> None:
    world.with_deps(context_policy=policy(6000))
    world.model.turns = [echo(5000), text("done")]
    run_id = await world.run("go")
    result = sent(world, 1)[-1]
    assert len(result) < 20_000
    stored = next(one for one in await world.history(run_id) if one.type == "tool")
    assert stored.message_id in result
    assert len(str(stored.content["content"])) > 25_000

    tools = {**world.bench.toolbox().tools, "expand_message": all_tools()["expand_message"]}
    world.with_deps(toolbox=ToolSet(tools), context_policy=policy(90_000))
    wanted = json.dumps({"message_id": stored.message_id, "page": 2})
    world.model.turns = [calls(("expand_message", wanted)), text("done")]
    await world.run("look again")
    assert "page 2 of" in sent(world, 3)[-1]


async def test_a_third_refusal_ends_the_run_with_one_sentence(world: World) -> None:
    refusal = ContextOverflow("The conversation is too long for this model.")
    world.model.turns = [echo(5000), [refusal], [refusal], text("a summary"), [refusal]]
    run_id = await world.run("go")
    (failed,) = [one for one in await world.events(run_id) if isinstance(one, RunFailed)]
    assert "test refuses the conversation as too long" in failed.public_message
    assert len(world.model.requests) == 5


async def test_a_refused_conversation_is_shortened_before_a_fallback_is_asked(world: World) -> None:
    world.model.turns = [echo(5000), [ContextOverflow("The conversation is too long.")], text("done")]
    world.with_deps(ask_model=partial(stream_with_retries, world.model, fallbacks=("other",)))
    assert await world.replies(await world.run("go")) == ["done"]
    assert [one.model for one in world.model.requests] == ["test"] * 3


async def test_a_system_prompt_that_leaves_no_room_is_told_before_any_call(world: World) -> None:
    world.with_deps(prompt=lambda *_: RunPrompt(system=words(5000)), context_policy=policy(3000))
    run_id = await world.run("go")
    (failed,) = [one for one in await world.events(run_id) if isinstance(one, RunFailed)]
    assert "no room for a conversation" in failed.public_message
    assert not world.model.requests


async def test_a_long_history_is_summed_up_and_its_originals_stay(world: World) -> None:
    world.with_deps(context_policy=policy(30_000, summary_tokens=9500, kept_tokens=2300))
    world.model.turns = [
        echo(900),
        echo(900, seed=2),
        echo(900, seed=3),
        text("# Decisions\nalice wants it blue."),
        text("done"),
    ]
    run_id = await world.run("make it blue")
    summing, last = world.model.requests[3], sent(world, 4)
    assert "make it blue" in str(summing.messages[1]["content"])
    assert not summing.tools
    assert "alice wants it blue" in last[1]
    assert "make it blue" in last[1]
    assert sum(map(len, last)) < 30_000
    stored = await world.messages(run_id)
    assert [one.type for one in stored].count("summary") == 1
    assert sum(one.type == "tool" for one in stored) == 3
    assert (await world.deps.stores.conversations.usage(run_id=run_id)).input_tokens == 5 * USAGE.input_tokens

    world.model.turns = [text("green then")]
    await world.run("or green")
    again = sent(world, 5)
    assert again[1] == last[1]
    assert len(again) == len(last) + 2


async def test_what_a_summary_replaces_has_still_happened(world: World) -> None:
    """The next run neither reads the thread again nor forgets a command that an earlier run left running."""
    read_after: list[datetime | None] = []

    class Chat:
        async def read(
            self, address: Address, *, before: datetime, limit: int, after: datetime | None = None
        ) -> ChatPage:
            read_after.append(after)
            return ChatPage()

    running = "building\n[session build, in /workspace: still running after 20.0 s]"
    tools = world.bench.toolbox().tools

    async def run_command(params: EchoParams, context: ToolContext) -> str:
        return running

    command = replace(tools["echo"], name="execute_command", run=run_command)
    world.with_deps(
        histories={"api": Chat()},
        toolbox=ToolSet({**tools, "execute_command": command}),
        context_policy=policy(30_000, summary_tokens=5000, kept_tokens=2300),
    )
    left = calls(("execute_command", '{"text": "make"}'))
    world.model.turns = [left, echo(900), echo(900, seed=2), text("# Notes"), text("it is under way"), text("yes")]
    run_id = await world.run("build it")
    assert [one.type for one in await world.messages(run_id)].count("summary") == 1
    await world.run("and?")
    assert read_after[0] is None
    assert read_after[1] is not None
    assert "Commands were left in the background" in sent(world, -1)[-1]


async def test_the_checklist_of_todo_md_is_told_while_the_agent_works(world: World) -> None:
    """Also when a command ticks an item, as with `sed`. Commands beside it cost no further event."""

    async def tick(terminal: Terminal) -> int:
        terminal.files["todo.md"] = terminal.files["todo.md"].replace(b"[ ] b", b"[x] b")
        return 1

    tools = {name: all_tools()[name] for name in ("create_file", "str_replace", "execute_command", "complete")}
    sandboxes = MemorySandboxes({"sed": tick, "echo beside": printing("beside")})
    world.with_deps(toolbox=ToolSet(tools), sandboxes=sandboxes)
    made = json.dumps({"file_path": "todo.md", "file_contents": "# Trip\n- [ ] a\n- [ ] b\n- [ ] c\n"})
    ticked = json.dumps({"file_path": "todo.md", "old_str": "[ ] a", "new_str": "[x] a"})
    commands = [("execute_command", json.dumps({"command": one})) for one in ("echo beside", "sed", "echo beside")]
    turns = [("create_file", made), ("str_replace", ticked), *commands]
    world.model.turns = [*(calls(one) for one in turns), text("ok")]
    run_id = await world.run("go")
    told = [one for one in await world.events(run_id) if isinstance(one, ChecklistChanged)]
    assert [(one.title, [item.state for item in one.items]) for one in told] == [
        ("Trip", ["active", "pending", "pending"]),
        ("Trip", ["done", "active", "pending"]),
        ("Trip", ["done", "done", "active"]),
    ]
    assert str(world.model.requests[-1].messages).count("[ ] c") == 1, "its own call tells the list"


class Chat:
    """A `ChatHistory` with given messages."""

    def __init__(self, *said: ChatMessage, error: Exception | None = None, page: ChatPage | None = None) -> None:
        self.said = said
        self.error = error
        self.page = page

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        if self.error is not None:
            raise self.error
        if self.page is not None:
            return self.page
        found = [one for one in self.said if one.sent_at < before]
        new = tuple(one for one in found if after is None or one.sent_at > after)
        return ChatPage(messages=new[-limit:], omitted=max(0, len(new) - limit))

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        return {}

    def parse_sent_at(self, message_ref: str) -> datetime:
        found = [one.sent_at for one in self.said if one.message_ref == message_ref]
        if not found:
            raise ValueError(message_ref)
        return found[0]


def heard(words_said: str, moment: datetime, ref: str) -> ChatMessage:
    return ChatMessage(author=Person(person_id="U2", name="bob"), text=words_said, sent_at=moment, message_ref=ref)


async def test_what_came_as_events_stands_for_what_cannot_be_read() -> None:
    noon = datetime.fromisoformat("2026-01-02T12:00:00+00:00")
    stored = [heard(f"event {n}", noon + timedelta(minutes=n), f"r{n}") for n in range(3)]

    async def read_unread(before: datetime) -> Sequence[ChatMessage]:
        return [one for one in stored if one.sent_at < before]

    request = thread_input("so?", message_ref="r9", sent_at=noon + timedelta(minutes=9))
    address = Address(platform="api", workspace_id="", channel_id="", thread_key="t")
    limited = Chat(error=SurfaceRateLimited("later", retry_after_seconds=60))
    part = Chat(page=ChatPage(messages=tuple(stored[:1]), omitted=7, is_partial=True))
    for chat, omitted, note in ((limited, 0, "could not be read just now"), (part, 5, "only a part")):
        found = require(await BackgroundMessageReader({"api": chat}, read_unread).read(address, [request]))
        assert [one.message_ref for one in found.page.messages] == ["r0", "r1", "r2"]
        assert (found.page.omitted, note in found.note) == (omitted, True)


async def test_the_model_reads_further_back_in_a_long_thread(world: World) -> None:
    noon = datetime.fromisoformat("2026-01-02T12:00:00+00:00")
    said = [heard(f"word {n}", noon + timedelta(minutes=n), f"r{n}") for n in range(120)]
    world.with_deps(histories={"api": Chat(*said)}, toolbox=ToolSet({"read_chat": all_tools()["read_chat"]}))
    world.model.turns = [
        calls(("read_chat", '{"before": "r70"}')),
        calls(("read_chat", '{"before": "nope"}'), ("read_chat", '{"file": "r1/1"}')),
        text("ok"),
    ]
    run_id = await world.run("what was said?")
    first = sent(world, 0)[1]
    assert "word 119" in first
    assert "word 70" in first
    assert "word 69" not in first
    assert "70 older messages are not shown; read_chat shows them." in first
    further = sent(world, 1)[-1]
    assert "word 69" in further
    assert "word 20" in further
    assert "word 19" not in further
    assert "20 messages before these are not shown" in further
    address = Address(platform="api", workspace_id="api", channel_id="", thread_key="")
    await world.deps.stores.conversations.erase_person(address, "U2")
    stored = await world.history(run_id), await world.deps.stores.journal.tool_call_records(run_id)
    assert "word 60" not in str(stored)
    refusals = " ".join(sent(world, 2))
    assert "'nope' is no message id" in refusals
    assert "There is no file 'r1/1'" in refusals


async def test_a_stop_while_the_conversation_is_summed_up_ends_the_run(world: World) -> None:
    world.with_deps(context_policy=policy(30_000, summary_tokens=9500, kept_tokens=2300))
    summing, held = asyncio.Event(), asyncio.Event()
    plan = [echo(900), echo(900, seed=2), echo(900, seed=3)]

    async def play(request: Any) -> Any:
        if plan:
            world.model.turns = [plan.pop(0)]
            async for delta in world.model.stream(request):
                yield delta
            return
        summing.set()
        await held.wait()

    world.with_deps(ask_model=play)
    run_id = await world.say("go")
    async with asyncio.TaskGroup() as group:
        group.create_task(execute(run_id, world.deps))
        await summing.wait()
        await world.stop(run_id)
    assert (await world.read_run(run_id)).status == "stopped"
    kinds = [one.kind for one in await world.events(run_id)]
    assert kinds.count("turn_started") == kinds.count("turn_finished") == 3
