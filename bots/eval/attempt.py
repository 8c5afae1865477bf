"""Plays the users of a task on a simulated platform, and reads what the agent has left behind."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import aiohttp
from yarl import URL

from bots.demo.environment import DemoEnvironment
from bots.demo.thread_reader import ThreadReader, buttons_of, format_transcript, text_of
from bots.eval.scripted_models import MENTION
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.threads import Address, Run, ThreadSnapshot
from core.stores import Conversations
from core.tasks import cancel, spawn
from simulator.threadbench.checks import FinalState, HandedFile, Post, ToolUse, checked_paths, find_problems
from simulator.threadbench.results import Attempt
from simulator.threadbench.task import Act, Task
from simulator.view import SeenChannel, SeenMessage, SimulatedPlatform

POLL_SECONDS = 0.05
NOTICE_SECONDS = 5.0
"""How long the program may take to react to what a person does. After that, the program has ignored it."""
BUTTON_SECONDS = 15.0
"""How long a button may take to appear while the agent works."""
_QUIET = frozenset(("completed", "failed", "stopped", "waiting"))
_Noticed = tuple[tuple[tuple[str, str], ...], int, int]


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """A running attempt at a task. `acted_at` holds the times at which simulated users acted."""

    task: Task
    stage: DemoEnvironment
    platform: SimulatedPlatform
    channel_id: str
    thread_id: str = ""
    message_ids: list[str] = field(default_factory=list[str])
    acted_at: list[float] = field(default_factory=list[float])
    status_ids: set[str] = field(default_factory=set[str])
    watch: asyncio.Task[None] | None = None

    @property
    def conversations(self) -> Conversations:
        return self.stage.program.parts.stores.conversations

    async def snapshot(self) -> ThreadSnapshot | None:
        if self.task.platform == "slack":
            workspace = self.stage.slack.workspace.team_id
        else:
            workspace = next(iter(self.stage.discord.world.guilds))
        address = Address(
            platform=self.task.platform, workspace_id=workspace, channel_id=self.channel_id, thread_key=self.thread_id
        )
        return await self.conversations.find(address)

    async def runs(self) -> tuple[Run, ...]:
        found = await self.snapshot()
        return await self.conversations.runs(found.thread.thread_id) if found else ()

    async def messages(self) -> tuple[Message, ...]:
        found = await self.snapshot()
        return await self.conversations.messages(found.thread.thread_id) if found else ()

    async def progress_marker(self) -> _Noticed:
        """Returns a value that changes when the program has received an act."""
        found = await self.snapshot()
        if found is None:
            return (), 0, 0
        thread_id = found.thread.thread_id
        runs = await self.conversations.runs(thread_id)
        said = [one for one in await self.conversations.messages(thread_id) if one.type == "user"]
        waiting = await self.conversations.unread_inputs(thread_id)
        return tuple((run.run_id, run.status) for run in runs), len(said), len(waiting)

    async def is_finished_or_waiting(self) -> bool:
        """Whether all runs have ended or wait for users, and everything is delivered."""
        found = await self.snapshot()
        if found is None:
            return True
        thread_id = found.thread.thread_id
        runs = {run.run_id: run.status for run in await self.conversations.runs(thread_id)}
        is_asking = "waiting" in runs.values()
        if is_asking:
            buttons = [button for one in self.thread_messages() for button in buttons_of(one)]
            return any("Stop" not in one.label and not one.is_disabled for one in buttons)
        if not set(runs.values()) <= _QUIET or await self.conversations.unread_inputs(thread_id):
            return False
        return not set(runs) & set(await self.stage.program.parts.stores.deliveries.open_runs())

    def thread_messages(self) -> tuple[SeenMessage, ...]:
        return ThreadReader(platform=self.platform, thread_id=self.thread_id, patience_seconds=0).messages

    def channel(self) -> SeenChannel:
        channels = self.platform.view().channels
        return next(one for one in channels if one.channel_id == self.channel_id)


class ActImpossible(Exception):
    """A person cannot do what the task says, for example because there is no such button."""


async def attempt_task(task: Task, environment: DemoEnvironment) -> Attempt:
    """Plays the task once, in the channel with the task's name, and checks the final state."""
    platform = environment.slack if task.platform == "slack" else environment.discord
    channel_id = next(one.channel_id for one in platform.view().channels if one.name.lstrip("#") == task.name)
    attempted = RunningAttempt(task=task, stage=environment, platform=platform, channel_id=channel_id)
    started = time.monotonic()
    trouble: list[str] = []
    try:
        async with asyncio.timeout(task.limits.seconds):
            for act in task.channel:
                attempted.thread_id = await _say(attempted, act, None)
            if task.starts_in == "channel":
                attempted.thread_id = ""
            for act in task.acts:
                await _act(attempted, act)
            await _until_quiet(attempted)
    except TimeoutError:
        trouble.append(f"it is not over after {task.limits.seconds:g} s")
    except (ActImpossible, ValueError) as error:
        trouble.append(str(error))
    seconds = time.monotonic() - started
    if attempted.watch is not None:
        await cancel(attempted.watch)
    return await _judge(attempted, trouble, seconds)


async def _act(attempted: RunningAttempt, act: Act) -> None:
    if attempted.acted_at:
        await (_until_working if act.after == "working" else _until_quiet)(attempted)
    before = await attempted.progress_marker() if attempted.thread_id else ((), 0, 0)
    platform, place = attempted.platform, (act.by, attempted.channel_id)
    if act.say:
        thread_id = attempted.thread_id if act.place == "thread" else None
        said = await _say(attempted, act, thread_id or None)
        attempted.thread_id = attempted.thread_id or said
    elif act.press:
        message_id, control_id = await _require_button(attempted, act.press)
        await platform.press(*place, message_id, control_id)
    elif act.edit:
        if not attempted.message_ids:
            raise ActImpossible("there is no message to edit")
        await platform.edit(*place, attempted.message_ids[-1], _addressed(attempted, act.edit))
    else:
        ours = [one for one in attempted.thread_messages() if one.is_bot]
        if not ours:
            raise ActImpossible("there is no message to react to")
        await platform.react(*place, ours[-1].message_id, act.react)
    attempted.acted_at.append(time.time())
    if attempted.watch is None:  # status messages can only be recognised while the agent works
        reader = ThreadReader(
            platform=attempted.platform,
            thread_id=attempted.thread_id,
            patience_seconds=attempted.task.limits.seconds + 60,
            status_ids=attempted.status_ids,
        )
        until_end = reader.wait_until(lambda: False, "the attempt ends")
        attempted.watch = spawn(until_end, name=f"watch {attempted.task.name}")
    deadline = time.monotonic() + NOTICE_SECONDS
    while True:
        await asyncio.sleep(POLL_SECONDS)
        if await attempted.progress_marker() != before or time.monotonic() > deadline:
            return


async def _require_button(attempted: RunningAttempt, label: str) -> tuple[str, str]:
    """Waits for a message with a button that has this label, because the buttons of a status message appear only after
    a while. Returns the ids of the newest such message and of its button.

    Raises ActImpossible if no such button appears."""
    deadline = time.monotonic() + BUTTON_SECONDS
    while True:
        found = [
            (one.message_id, button.control_id)
            for one in attempted.thread_messages()
            for button in buttons_of(one)
            if label.casefold() in button.label.casefold()
        ]
        if found:
            return found[-1]
        if time.monotonic() > deadline or await attempted.is_finished_or_waiting():
            raise ActImpossible(f"there is no button {label!r}")
        await asyncio.sleep(POLL_SECONDS)


async def _say(attempted: RunningAttempt, act: Act, thread_id: str | None) -> str:
    said = await attempted.platform.say(
        act.by,
        attempted.channel_id,
        _addressed(attempted, act.say),
        thread_id=thread_id,
        files=attempted.task.sent_files(act),
    )
    attempted.message_ids.append(said)
    return said


def _addressed(attempted: RunningAttempt, text: str) -> str:
    return text.replace(MENTION, f"@{attempted.platform.view().bot_name}")


async def _until_quiet(attempted: RunningAttempt) -> None:
    while True:
        if await attempted.is_finished_or_waiting():
            return
        await asyncio.sleep(POLL_SECONDS)


async def _until_working(attempted: RunningAttempt) -> None:
    """Waits until the model has answered once in the newest run, or until nothing is left to wait for."""
    while True:
        runs, messages = await attempted.runs(), await attempted.messages()
        newest = runs[-1].run_id if runs else ""
        if any(one.type == "assistant" and one.run_id == newest for one in messages):
            return
        if runs and runs[-1].status in _QUIET:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _judge(attempted: RunningAttempt, trouble: Sequence[str], seconds: float) -> Attempt:
    task, found = attempted.task, await attempted.snapshot()
    thread_id = found.thread.thread_id if found else ""
    messages, runs = await attempted.messages(), await attempted.runs()
    usage = await attempted.conversations.usage(thread_id=thread_id or "-")
    turns = sum(one.type == "assistant" and one.is_llm_message for one in messages)
    async with aiohttp.ClientSession() as http:
        state = FinalState(
            acts=len(attempted.acted_at),
            posts=tuple(
                [
                    await _read_post(attempted, one, http)
                    for one in attempted.thread_messages()
                    if one.is_bot and one.message_id not in attempted.status_ids and one.visible_to is None
                ]
            ),
            elsewhere=_posts_elsewhere(attempted),
            calls=tuple(call for one in messages if one.type == "tool" for call in _calls(one)),
            run_statuses=tuple(run.status for run in runs),
            files=await _workspace_files(attempted, thread_id, http),
        )
    limits = task.limits
    over = (
        (turns > limits.turns, f"it took {turns} turns, more than {limits.turns}"),
        (usage.cost_usd > limits.usd, f"it cost {usage.cost_usd:.2f} US dollars"),
    )
    problems = (*trouble, *find_problems(task.checks, state), *(text for is_over, text in over if is_over))
    return Attempt(
        problems=problems,
        turns=turns,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        usd=round(usage.cost_usd, 6),
        seconds=round(seconds, 2),
        transcript=format_transcript(attempted.thread_messages()),
    )


async def _read_post(attempted: RunningAttempt, message: SeenMessage, http: aiohttp.ClientSession) -> Post:
    files: list[HandedFile] = []
    for file in message.files:
        async with http.get(file.url) as response:
            files.append(HandedFile(name=file.name, content=await response.read()))
    return Post(
        text=text_of(message),
        after_act=sum(at <= message.sent_at + 0.001 for at in attempted.acted_at),
        files=tuple(files),
    )


def _posts_elsewhere(attempted: RunningAttempt) -> tuple[str, ...]:
    channel = attempted.channel()
    others = (one for one in channel.threads if one.thread_id != attempted.thread_id)
    inside = {one.message_id for one in attempted.thread_messages()}
    seen = (*channel.messages, *(message for thread in others for message in thread.messages))
    return tuple(text_of(one) for one in seen if one.is_bot and one.message_id not in inside)


def _calls(message: Message) -> list[ToolUse]:
    try:
        envelope = cast(JsonObject, json.loads(cast(str, message.content["content"])))
        told = cast(JsonObject, envelope["tool_execution"])
        result = cast(JsonObject, told["result"])
    except (KeyError, TypeError, ValueError):
        return []
    output = result.get("output") or result.get("error") or ""
    return [
        ToolUse(
            name=str(told["function_name"]),
            arguments=told.get("arguments"),
            succeeded=result.get("success") is True,
            output=output if isinstance(output, str) else json.dumps(output, ensure_ascii=False),
        )
    ]


async def _workspace_files(attempted: RunningAttempt, thread_id: str, http: aiohttp.ClientSession) -> dict[str, bytes]:
    settings = attempted.stage.settings
    base = f"http://127.0.0.1:{attempted.stage.program.http_port}/api/sandboxes/{thread_id}"
    token = settings.api_token.get_secret_value()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    read: dict[str, bytes] = {}
    for path in checked_paths(attempted.task.checks) if thread_id else ():
        async with http.get(URL(f"{base}/files/content").with_query(path=path), headers=headers) as response:
            if response.status == 200:
                read[path] = await response.read()
    return read
