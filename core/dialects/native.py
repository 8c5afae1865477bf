"""The native dialect: tool calls in OpenAI's format, assembled from streamed deltas."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from core.dialects.arguments import parse_arguments, parse_json
from core.dialects.dialect import (
    CallComplete,
    CallProgress,
    DisplayText,
    ParsedPart,
    ToolSpec,
    as_cut_off_call,
    find_tool_name,
    format_tool_result,
)
from core.dialects.written_calls import WrittenCalls
from core.domain.ids import USABLE_ID, new_call_id
from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

NAME_CHARACTERS_MAX = 64
PROGRESS_CHARACTERS_MIN = 32
PROGRESS_GROWTH = 8
PROGRESS_CHARACTERS_MAX = 100_000
"""The live view of a longer call does not grow any more."""
_NAME_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class NativeDialect:
    """The dialect of models whose API supports tool calls."""

    name: str = "native"
    stop_sequences: tuple[str, ...] = ()

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """Returns one function schema per tool, and no text for the system prompt."""
        functions: Iterator[JsonObject] = (
            {"name": one.name, "description": one.description, "parameters": one.parameters} for one in tools
        )
        return tuple({"type": "function", "function": one} for one in functions), ""

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> "NativeParser":
        """Returns a parser for one answer. Ignores `calls_max`, which applies only to text dialects."""
        return NativeParser(tools)

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """Returns an assistant message that every provider accepts. An unreadable call is stored without arguments."""
        return {
            "role": "assistant",
            "content": text if text or not calls else None,
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {
                        "name": provider_safe_name(call.name),
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in calls
            ]
            or None,
        }

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """Returns a message with the role `tool` that contains the call's id."""
        return {
            "role": "tool",
            "tool_call_id": call.call_id,
            "name": provider_safe_name(call.name),
            "content": format_tool_result(call, result, call_id=call.call_id),
        }

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """Returns metadata about the call. `raw_parameters` is the JSON text exactly as the model wrote it."""
        return {"format": "native", "raw_xml": None, "function_name": call.name, "raw_parameters": call.raw}


def provider_safe_name(name: str) -> str:
    """Returns a tool name that every provider accepts in a message history, even if the model invented the name."""
    return _NAME_FORBIDDEN.sub("_", name)[:NAME_CHARACTERS_MAX] or "unknown"


@dataclass(slots=True)
class _Slot:
    """The parts of one call that have arrived so far.

    `again_from` is the index of the newest part that began with all text since the one before, and `again_characters`
    the length of the text since then. Some servers send all arguments so far with each part, but a nested object may
    begin like that as well, so this reading is only the second choice."""

    index: int
    call_id: str = ""
    model_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list[str])
    characters: int = 0
    again_from: int = 0
    again_characters: int = 0
    told_characters: int = -1
    tried_characters: int = 0
    is_complete: bool = False

    def add(self, part: str) -> None:
        is_longer = 0 < self.again_characters < len(part)
        if is_longer and part.startswith("".join(self.parts[self.again_from :])):
            self.again_from, self.again_characters = len(self.parts), 0
        self.parts.append(part)
        self.again_characters += len(part)
        self.characters += len(part)

    def readings(self) -> tuple[str, ...]:
        """Returns the arguments as they may be meant, the likeliest reading first."""
        text = "".join(self.parts)
        # some servers send `{}` before the real arguments
        rest = text.lstrip().removeprefix("{}")
        text = rest if rest.lstrip().startswith("{") else text
        return (text, "".join(self.parts[self.again_from :])) if self.again_from else (text,)


class NativeParser:
    """Assembles the calls of one answer and completes them in the order in which they started.

    A call is complete when its arguments are a whole JSON object and another call has started, or when the answer ends.
    Some providers send index 0 for every call; a new call is then recognized by its id or, without ids, by its name.
    Calls that the model writes into its text are completed at the end of the answer."""

    __slots__ = ("_by_index", "_completed", "_ids", "_slots", "_text", "_tools", "_written")

    def __init__(self, tools: Mapping[str, ToolSpec]) -> None:
        self._tools = tools
        self._written = WrittenCalls(tools)
        self._text: list[str] = []
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._ids: set[str] = set()
        self._completed = 0

    @property
    def raw_answer(self) -> str:
        """The text of the answer, without calls."""
        return "".join(self._text)

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text of a text delta.

        For a call delta, returns its progress and the calls that are now complete."""
        if isinstance(delta, TextDelta):
            return self._shown(self._written.feed(delta.text))
        self._written.follows_calls = True
        slots_before = len(self._slots)
        slot = self._by_index.get(delta.index)
        if slot is None or _is_another(slot, delta):
            slot = _Slot(index=len(self._slots))
            self._slots.append(slot)
            self._by_index[delta.index] = slot
        if delta.call_id and not slot.model_id:
            slot.model_id = delta.call_id
            if not slot.call_id:
                self._name_call(slot, delta.call_id)
        if delta.name and delta.name != slot.name and not slot.characters:
            slot.name += delta.name
        elif delta.name and not slot.name:
            slot.name = delta.name
        if slot.is_complete:
            return ()
        if delta.arguments:
            slot.add(delta.arguments)
        parsed: list[ParsedPart] = []
        if len(self._slots) > slots_before or slot.index < len(self._slots) - 1:
            parsed.extend(self._provably_complete())
        grown = slot.characters - slot.told_characters
        is_grown = grown >= max(PROGRESS_CHARACTERS_MIN, slot.characters // PROGRESS_GROWTH)
        is_worth_telling = slot.told_characters < 0 or (slot.characters <= PROGRESS_CHARACTERS_MAX and is_grown)
        if slot.name and not slot.is_complete and is_worth_telling:
            slot.told_characters, name = slot.characters, find_tool_name(slot.name, self._tools)
            text, call_id = "".join(slot.parts), slot.call_id
            parsed.append(CallProgress(index=slot.index, call_id=call_id, name=name, arguments=text))
        return parsed

    def close(self, *, is_whole: bool, cut: str = "") -> Sequence[ParsedPart]:
        """Returns the remaining text and calls.

        If the stream was interrupted, returns only the calls with complete JSON arguments. If a limit cut the answer
        off, returns them all, and the last one with `cut` as its problem unless its arguments are complete."""
        parsed: list[ParsedPart] = [*self._shown(self._written.close(is_whole=is_whole, cut=cut))]
        if is_whole:
            return [*parsed, *self._all_complete(), *self._complete_written()]
        for slot in self._slots:
            slot.tried_characters = 0
        # a JSON object cannot continue after its last brace, so even the last call is complete if its JSON is
        parsed += self._provably_complete(allow_last=True)
        if cut and self._slots and not self._slots[-1].is_complete:
            *rest, last = self._all_complete()
            parsed += [*rest, replace(last, call=as_cut_off_call(last.call, cut))]
        return [*parsed, *self._complete_written()] if cut else parsed

    def _all_complete(self) -> list[CallComplete]:
        return [self._complete(slot) for slot in self._slots if not slot.is_complete]

    def _shown(self, text: str) -> Sequence[ParsedPart]:
        if not text:
            return ()
        self._text.append(text)
        return (DisplayText(text=text),)

    def _complete_written(self) -> Iterator[CallComplete]:
        """Yields the calls in the text, without those that the model also made as real calls."""
        made = [(call.name, call.arguments) for call in (_call(one, self._tools) for one in self._slots)]
        calls = [one for one in self._written.calls if (one.name, one.arguments) not in made]
        for index, call in enumerate(calls, len(self._slots)):
            yield CallComplete(index=index, call=call)

    def _name_call(self, slot: _Slot, wanted: str) -> None:
        is_usable = wanted not in self._ids and USABLE_ID.fullmatch(wanted)
        slot.call_id = wanted if is_usable else new_call_id()
        self._ids.add(slot.call_id)

    def _provably_complete(self, *, allow_last: bool = False) -> list[ParsedPart]:
        done: list[ParsedPart] = []
        last = len(self._slots) if allow_last else len(self._slots) - 1
        while self._completed < last and _is_whole_object(self._slots[self._completed]):
            done.append(self._complete(self._slots[self._completed]))
        return done

    def _complete(self, slot: _Slot) -> CallComplete:
        if not slot.call_id:
            self._name_call(slot, "")
        slot.is_complete = True
        self._completed = slot.index + 1
        return CallComplete(index=slot.index, call=_call(slot, self._tools))


def _is_another(slot: _Slot, delta: ToolCallDelta) -> bool:
    """Returns whether the delta starts a new call although a call with this index exists.

    A new call has a different id. If the server sends no ids, a new call has a tool name and an opening brace, or
    another tool's name alone, and the previous call is complete and differs from it."""
    if not delta.name:
        return False
    if delta.call_id and slot.model_id:
        return slot.model_id != delta.call_id
    begins = delta.arguments.lstrip().startswith("{")
    is_named = not delta.arguments and delta.name != slot.name
    if delta.call_id or slot.model_id or not (begins or is_named):
        return False
    before = "".join(slot.parts)
    if (slot.name, before) == (delta.name, delta.arguments):
        return False
    return slot.is_complete or before.strip() == "{}" or _is_whole_object(slot)


def _is_whole_object(slot: _Slot) -> bool:
    """Returns whether the call's arguments are a complete JSON object.

    `{}` does not count, because some servers send it before the real arguments. The text is parsed again only after it
    has grown enough, so that the total work stays linear."""
    if not slot.name or not slot.parts or not slot.parts[-1].rstrip().endswith("}"):
        return False
    if slot.characters - slot.tried_characters <= slot.tried_characters // PROGRESS_GROWTH:
        return False
    slot.tried_characters = slot.characters
    for text in slot.readings():
        with suppress(ValueError):
            value = parse_json(text)
            return isinstance(value, dict) and value != {}
    return False


def _call(slot: _Slot, tools: Collection[str]) -> ToolCall:
    raw, *others = slot.readings()
    name = find_tool_name(slot.name, tools)
    if not name:
        problem = "A call came without the name of a tool. Nothing was run; call it again."
        return ToolCall(name="", arguments={}, call_id=slot.call_id, raw=raw, problem=problem)
    problem = None
    for text in (raw, *others):
        try:
            arguments = parse_arguments(text)
        except ValueError as error:
            problem = problem or str(error)
        else:
            return ToolCall(name=name, arguments=arguments, call_id=slot.call_id, raw=text)
    return ToolCall(name=name, arguments={}, call_id=slot.call_id, raw=raw, problem=problem)
