"""The model and the tool of the histories. The model answers from the messages of the request alone, as models do."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import BaseModel

from core.domain.call_consent import STAYS
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.domain.threads import Usage
from core.observability import get_log_context
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta, ToolCallDelta
from core.tools.catalogue import all_tools
from core.tools.tool import Tool, ToolContext, ToolSet
from tests.histories.servers import Chance
from tests.histories.virtual_time import VirtualTimeLoop

TOKEN = re.compile(r"\b(?:hello|work|ask|fail|pay|bad|edit|much|long|story)-\d+\b")
DONE = re.compile(r"Done [^.]*\.")
_SAID = re.compile(r'<message from="[^"]*" mark="(?:[^"]*)">\n(.*?)\n</message mark="', re.DOTALL)
CONTEXT = "not said to you"
"""Marks a message that shows the model what people said to each other."""
TURNS_MAX = 6
FILES = 3
"""How many files come with a long answer."""
DELTAS = 10
"""In how many pieces the model says a text."""
NO_MODEL = "The model refused this request."
_USAGE = Usage(input_tokens=10, output_tokens=5, cost_usd=0.001)
CALL_TOKENS = 15


class NoteParams(BaseModel):
    """Write something down. Each call leaves a new line."""

    text: str


class Notebook:
    """Counts how often each line was written, and by whom people would have to be told twice."""

    def __init__(self, loop: VirtualTimeLoop, chance: Chance, note: Callable[[str], None]) -> None:
        self.lines: Counter[str] = Counter()
        self._loop = loop
        self._chance = chance
        self._note = note

    def toolbox(self) -> ToolSet:
        note = Tool(
            name="note",
            effect="acts",
            reach=STAYS,
            params=NoteParams,
            run=self._write,
            title=lambda params: f"Noting {params.text}",
        )
        pay = replace(note, name="pay", needs_approval=lambda params: f"Pay {params.text}")
        return ToolSet({"note": note, "pay": pay, **{name: all_tools()[name] for name in ("ask", "complete")}})

    async def _write(self, params: NoteParams, context: ToolContext) -> str:
        del context
        self.lines[params.text] += 1
        self._note(f"tool: note {params.text}")
        await asyncio.sleep(self._chance.delay(0.3))
        return f"noted {params.text}"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """What a run sent to the model at a time, without the state of the work. `attempt` names the run and the worker."""

    run_id: str
    attempt: str
    sent_at: datetime
    messages: Sequence[JsonObject]


class ScriptedModel:
    """Says which tokens it has dealt with. A `work` token needs two tool calls before, a `much` token more turns than
    a run has, a `pay` token a call that people approve, an `ask` token an answer, and a `fail` token is refused. For a
    `story` token it writes many paragraphs, and for a `long` token it also attaches files."""

    def __init__(self, chance: Chance) -> None:
        self.requests: list[SentRequest] = []
        self._chance = chance

    async def ask_model(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        messages = request.messages[: request.stable_messages or None]
        run_id, worker = (get_log_context().get(name, "") for name in ("run_id", "worker"))
        self.requests.append(SentRequest(run_id, f"{run_id} {worker}", datetime.now(UTC), messages))
        await asyncio.sleep(self._chance.delay(0.5))
        for delta in _answer(list(messages)):
            yield delta
            await asyncio.sleep(self._chance.delay(0.05))


def said_in(message: JsonObject) -> str:
    """Returns what people said to the agent in a message of a request, which may be joined to other texts."""
    return "\n".join(_SAID.findall(str(message.get("content"))))


class _Conversation:
    """What a request shows: which tokens people wrote, and what was called, asked and answered for them."""

    def __init__(self, messages: list[JsonObject]) -> None:
        self.requested: dict[str, None] = {}
        self.done: set[str] = set()
        self.called: Counter[str] = Counter()
        self.asked_at: dict[str, int] = {}
        self.last_said_at = 0
        self.newest = ""
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                self._read_own(at, message, TOKEN.findall(json.dumps(message)))
            elif said := said_in(message):
                tokens = TOKEN.findall(said)
                self.last_said_at = at
                self.requested.update(dict.fromkeys(tokens))
                self.newest = tokens[-1] if tokens else self.newest

    def _read_own(self, at: int, message: JsonObject, tokens: list[str]) -> None:
        if "Done " in json.dumps(message):
            self.done.update(tokens)
        elif "Which colour" in json.dumps(message):
            self.asked_at.update(dict.fromkeys(tokens, at))
        else:
            self.called.update(tokens)

    def is_answered(self, token: str) -> bool:
        return 0 <= self.asked_at.get(token, -1) < self.last_said_at


def _answer(messages: list[JsonObject]) -> list[ModelDelta]:
    seen = _Conversation(messages)
    if seen.newest.startswith("fail"):
        raise ModelRejected(NO_MODEL)
    tokens = [one for one in seen.requested if one not in seen.done and not one.startswith("fail")]
    for token in tokens:
        if token.startswith("work") and token not in seen.called:
            return _calls([("note", {"text": f"{token} a"}), ("note", {"text": f"{token} b"})])
    for token in tokens:
        if token.startswith("much") and seen.called[token] <= TURNS_MAX:
            return _calls([("note", {"text": f"{token} {seen.called[token]}"})])
    for token in tokens:
        if token.startswith("pay") and token not in seen.called:
            return _calls([("pay", {"text": f"{token} c"})])
    for token in tokens:
        if token.startswith("ask") and not seen.is_answered(token):
            options = [f"red {token}", f"blue {token}"]
            question = {"text": f"Which colour for {token}?", "options": options}
            return _calls([("ask", question)])
    text = f"Done {', '.join(tokens) or 'nothing'}."
    text = "\n\n".join([text, *(line for token in tokens for line in paragraphs(token))])
    files = [f"{token}-{at}.txt" for token in tokens if token.startswith("long") for at in range(FILES)]
    if files:
        return _calls([("complete", {"text": text, "attachments": files})])
    size = max(len(text) // DELTAS, 1)
    deltas = [TextDelta(text=text[at : at + size]) for at in range(0, len(text), size)]
    return [*deltas, ModelFinished(finish_reason="stop", usage=_USAGE)]


def paragraphs(token: str) -> list[str]:
    """Returns the paragraphs that the model writes for a `long` or `story` token, more for later ones."""
    if not token.startswith(("long", "story")):
        return []
    count = 2 + int(token.partition("-")[2]) % 6 * 2
    return [f"Paragraph {at} for {token}: {'word ' * 20}".strip() for at in range(count)]


def _calls(named: list[tuple[str, JsonObject]]) -> list[ModelDelta]:
    calls: list[ModelDelta] = [
        ToolCallDelta(index=at, call_id=f"call_{at}", name=name, arguments=json.dumps(arguments))
        for at, (name, arguments) in enumerate(named)
    ]
    return [*calls, ModelFinished(finish_reason="tool_calls", usage=_USAGE)]
