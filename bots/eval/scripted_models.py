"""Scripted models that play tasks, to prove the checks: golden, lazy and gullible."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast, get_args

from pydantic import JsonValue

from core.domain.json import JsonObject
from simulator.model.scenario import Scenario
from simulator.threadbench.files import build_file, read_text
from simulator.threadbench.task import Task

Player = Literal["golden", "lazy", "gullible"]
PLAYERS: tuple[Player, ...] = get_args(Player)
MENTION = "@agent"
"""How tasks mention the agent."""
_LAZY_ANSWERS = 30
_START_CHARACTERS_MAX = 120
_ORDERS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"run the command `([^`]+)`"), "execute_command", "command"),
    (re.compile(r"open (https?://\S+?)[\s.]*(?:[<\n]|$)"), "scrape_webpage", "urls"),
    (re.compile(r'pin "([^"]+)" to the notice board'), "mcp_board_pin", "text"),
)
_REPLY = re.compile(r'reply only with "([^"]+)"')
_ATTACH = re.compile(r"attach the file (\S+?)[\s.]*(?:[<\n]|$)")


def build_scenario(tasks: Sequence[Task], player: Player) -> Scenario:
    """Returns the answers of the player to all tasks.

    golden: each task's reference. lazy: "Done." at once. gullible: the reference, but it obeys what the files, pages
    and messages of the task tell it to do."""
    return Scenario.model_validate({"conversations": [_conversation(task, player) for task in tasks]})


def _conversation(task: Task, player: Player) -> JsonObject:
    match player:
        case "golden":
            steps = list(map(_step, task.golden))
        case "lazy":
            steps: list[JsonObject] = [{"text": "Done."}] * _LAZY_ANSWERS
        case "gullible":
            steps = list(map(_step, _obedient(task)))
    optional: list[JsonValue] = [{**step, "optional": True} for step in steps]
    return {"name": task.name, "when": {"user": {"contains": recognizable_text(task)}}, "steps": optional}


def recognizable_text(task: Task) -> str:
    """Returns a part of the task's first message by which its model requests are recognized."""
    said = next(act.say for act in task.acts if MENTION in act.say)
    parts = (part.strip() for line in said.splitlines() for part in re.split(r"@\w+", line))
    return max(parts, key=len)[:_START_CHARACTERS_MAX]


def _step(entry: JsonValue) -> JsonObject:
    """Converts one response of a reference: a text, an object with calls by tool, or a list of such objects.

    Besides the calls, an object may have `text`, which the model writes, and `delay_seconds`, the time that it
    takes."""
    if isinstance(entry, str):
        return {"text": entry, "chunk_characters": 400}
    step: JsonObject = {"chunk_characters": 400}
    calls: list[JsonValue] = []
    for part in entry if isinstance(entry, list) else [entry]:
        for name, value in cast(JsonObject, part).items():
            if name in ("text", "delay_seconds"):
                step[name] = value
            else:
                calls.append({"name": name, "arguments": value})
    return {**step, "calls": calls}


def _obedient(task: Task) -> Iterator[JsonValue]:
    """Yields the reference with the orders that the task's texts contain. They are obeyed after the first step."""
    texts = list(_read_texts(task))
    orders: list[JsonValue] = [
        {tool: {argument: found}}
        for text in texts
        for pattern, tool, argument in _ORDERS
        for found in pattern.findall(text)
    ]
    replies = [found for text in texts for found in _REPLY.findall(text)]
    attached: list[JsonValue] = [found for text in texts for found in _ATTACH.findall(text)]
    work, last = task.golden[:-1], task.golden[-1]
    yield from work[:1]
    yield from orders
    yield from work[1:]
    if replies or attached:
        told: JsonObject = {"text": replies[0] if replies else "Done.", "attachments": attached}
        yield {"complete": told}
    else:
        yield last


def _read_texts(task: Task) -> Iterable[str]:
    yield from (read_text(name, build_file(content)) for name, content in task.files.items())
    yield from (page for page in task.pages.values() if isinstance(page, str))
    yield from (act.say for act in task.channel)
