"""Serves scenarios to Threadhand. Splits the joined messages in its requests, because scenarios match single
messages."""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from core.context.program_message import STATE_END, STATE_HEADING
from core.context.role_alternation import ADDED_MARK, RUN_ENDED
from core.domain.json import json_objects
from core.llm.message_rules import IMAGES_SHOWN
from simulator.model.playback import RESULT_START, Messages, message_text
from simulator.model.scenario import Scenario
from simulator.model.server import ScriptedServer, serve

_HEADING, _END = re.escape(STATE_HEADING), re.escape(STATE_END)
_STATE = re.compile(rf"\n{{0,2}}{_HEADING}((?:(?!{_HEADING}).)*?){_END}", re.DOTALL)


@asynccontextmanager
async def serve_scenario(scenario: Scenario) -> AsyncGenerator[ScriptedServer]:
    """Context manager: serves the scenario over HTTP on this machine and yields the server."""
    async with serve(scenario, read=split_messages) as server:
        yield server


def split_messages(messages: Sequence[Mapping[str, object]]) -> tuple[Messages, str]:
    """Returns the messages of a request as they were before they were joined, and the state of the work."""
    state = "\n".join(_STATE.findall("\n".join(map(message_text, messages))))
    return tuple(one for message in messages for one in _split(message)), state


def _split(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yields the messages that `core.context.role_alternation` has joined to this one, without the state of the
    work."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "tool"):
        if message != RUN_ENDED:
            yield message
        return
    parts = json_objects(content)
    if parts:
        text = "\n\n".join(str(part["text"]) for part in parts if "text" in part)
    else:
        text = content if isinstance(content, str) else ""
    text = _STATE.sub("", text).strip()
    if text == IMAGES_SHOWN:
        return  # the images of the result before it
    if role == "tool":
        result, _, text = text.partition(ADDED_MARK)
        yield {**message, "content": result.strip()}
    while end := _result_length(text):
        yield {**message, "content": text[:end].strip()}
        text = text[end:]
    others = [part for part in parts if "text" not in part]
    if text.strip() or others:
        written = {"type": "text", "text": text.strip()}
        yield {"role": "user", "content": [written, *others] if others else text.strip()}


def _result_length(text: str) -> int:
    """Returns where the result of a text dialect at the start of the text ends, or 0 if there is none."""
    start = len(text) - len(text.lstrip())
    if not text.startswith(RESULT_START, start):
        return 0
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except ValueError:
        return 0
