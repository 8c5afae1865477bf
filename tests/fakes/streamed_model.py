"""A fake model that streams prepared deltas and records the requests that it receives."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from core.domain.threads import Usage
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta, ToolCallDelta

Step = ModelDelta | Exception | Callable[[], asyncio.Event]
Played = list[ModelDelta | Exception | asyncio.Event]
"""The steps of one turn: deltas to yield, exceptions to raise, and events to wait for."""
USAGE = Usage(input_tokens=10, output_tokens=5, cost_usd=0.001)


@dataclass
class StreamedModel:
    """Plays one turn per call: yields its deltas, raises its exceptions, and waits for its events.

    `tails` are the last messages of the requests, as JSON.
    """

    turns: list[list[ModelDelta | Exception | asyncio.Event]]
    requests: list[ModelRequest] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.requests.append(request)
        self.tails.append(json.dumps(request.messages[-1], ensure_ascii=False))
        assert self.turns, f"the model was called more often than planned: {request.messages[-1]}"
        for step in self.turns.pop(0):
            await asyncio.sleep(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            yield step


def text(*pieces: str, finish: str = "stop") -> list[ModelDelta | Exception | asyncio.Event]:
    return [*(TextDelta(text=piece) for piece in pieces), ended(finish)]


def ended(finish: str = "stop") -> ModelFinished:
    return ModelFinished(finish_reason=finish, usage=USAGE)


def calls(*named: tuple[str, str], said: str = "") -> list[ModelDelta | Exception | asyncio.Event]:
    """Returns deltas with native tool calls, given as (name, JSON arguments)."""
    deltas: list[ModelDelta | Exception | asyncio.Event] = [TextDelta(text=said)] if said else []
    for index, (name, arguments) in enumerate(named):
        half = len(arguments) // 2
        deltas.append(ToolCallDelta(index=index, call_id=f"call_{index}", name=name))
        deltas.append(ToolCallDelta(index=index, arguments=arguments[:half]))
        deltas.append(ToolCallDelta(index=index, arguments=arguments[half:]))
    return [*deltas, ended("tool_calls")]


def invokes(*named: tuple[str, dict[str, str]], said: str = "") -> str:
    """Returns the text of tool calls in the XML dialect."""
    body = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items())
        + "</invoke>\n"
        for name, values in named
    )
    return f"{said}<function_calls>\n{body}</function_calls>"


def pieces(whole: str, size: int = 7) -> Sequence[str]:
    return [whole[at : at + size] for at in range(0, len(whole), size)]
