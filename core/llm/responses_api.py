"""Encodes requests for OpenAI's Responses API and parses its answers.

The conversation is sent whole with each request and nothing is stored at OpenAI, so reasoning comes back encrypted."""

import re
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import JsonValue

from core.context.message_text import content_text
from core.domain.errors import ModelUnavailable
from core.domain.json import JsonObject, json_fields, json_objects
from core.domain.threads import Usage
from core.llm import error_mapping
from core.llm.error_mapping import to_model_error
from core.llm.message_rules import adapt_messages
from core.llm.openai_answer import FinishReason, SurrogateJoiner, arguments_text, parse_error_body, parse_usage, to_json
from core.llm.openai_request import RequestEncoder
from core.llm.reasoning import ReasoningOrigin, build_snapshot, find_kept_fields
from core.ports import ModelDelta, ModelFinished, ModelRequest, TextDelta, ThinkingDelta, ToolCallDelta

LAYOUT = "output"
"""The reasoning field of this API: the answer's items in order. Only reasoning items are whole, because the text and
the calls are in the message."""
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_THINKING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_INCLUDED = re.compile("encrypted content", re.IGNORECASE)
_CUTS: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesEncoder(RequestEncoder):
    """Encodes requests for the Responses API. Stop sequences are left out, because the API has none."""

    __slots__ = ()
    _messages_key = b"input"

    def adapt_to_refusal(self, request: ModelRequest, refusal: str) -> bool:
        # OpenAI names the value of `include` instead of the option
        return super().adapt_to_refusal(request, _INCLUDED.sub("include", refusal))

    def _messages(self, request: ModelRequest) -> list[bytes]:
        return self._encoded(adapt_messages(request.model, request.messages), request.model)

    def _options(self, request: ModelRequest) -> dict[str, object]:
        options = super()._options(request)
        for name in ("stream_options", "stop"):
            options.pop(name, None)
        added: dict[str, object] = {"store": False, "include": ["reasoning.encrypted_content"]}
        if effort := options.pop("reasoning_effort", None):
            added["reasoning"] = {"effort": effort}
        refused = self._not_taken.get(request.model, set())
        return {**options, **{key: value for key, value in added.items() if key not in refused}}

    def _json(self, value: JsonObject, model: str) -> bytes:
        if value.get("type") == "function" and isinstance(function := value.get("function"), dict):
            return to_json({"type": "function", "strict": False, **function})
        items = input_items(value, ReasoningOrigin(self._provider, model))
        return b",".join(to_json(item) for item in items)


def input_items(message: JsonObject, origin: ReasoningOrigin) -> Iterator[JsonObject]:
    """Yields the input items of a message in OpenAI's chat format, with the reasoning that `origin` has written."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": content_text(content)}
    elif role == "assistant":
        yield from _assistant_items(message, find_kept_fields(message, origin).get(LAYOUT))
    else:
        parts = [_input_part(part) for part in content] if isinstance(content, list) else content
        yield {"role": role, "content": parts}


def _assistant_items(message: JsonObject, layout: JsonValue) -> Iterator[JsonObject]:
    text = content_text(message.get("content"))
    calls = message.get("tool_calls")
    items = list[JsonObject]()
    for call in calls if isinstance(calls, list) else ():
        known = json_fields(call)
        function = json_fields(known.get("function"))
        called = {"call_id": known.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
        items.append(cast(JsonObject, {"type": "function_call", **called}))
    for kept in layout if isinstance(layout, list) else ():
        match kept:
            case {"type": "reasoning"}:
                yield kept
            case {"type": "message"} if text:
                phase: JsonObject = {"phase": kept["phase"]} if "phase" in kept else {}
                yield {"role": "assistant", "content": text, **phase}
                text = ""
            case {"type": "function_call"}:
                if items:
                    yield items.pop(0)
            case _:
                continue
    if text:
        yield {"role": "assistant", "content": text}
    yield from items


def _input_part(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    image = part.get("image_url")
    if image is None:
        return {"type": "input_text", "text": part.get("text")}
    url = image.get("url") if isinstance(image, dict) else image
    return {"type": "input_image", "image_url": url}


class ResponsesReader:
    """Reads the events of one answer, or a whole answer."""

    __slots__ = (
        "_argued", "_end", "_halves", "_layout", "_origin", "_places", "_speaker", "_told",
        "_usage",
    )  # fmt: skip

    def __init__(self, origin: ReasoningOrigin) -> None:
        self._origin = origin
        self._halves = SurrogateJoiner()
        self._layout: list[JsonValue] = []
        self._told = 0
        self._argued: set[int] = set()
        self._speaker: int | None = None
        self._places: dict[str, list[int]] = {"reasoning": [], "message": [], "function_call": []}
        self._end: dict[str, object] | None = None
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the service has reported the end of the answer."""
        return self._end is not None

    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]:
        """Returns the deltas of an event or of a whole answer. Raises ModelError if the body reports an error."""
        kind = body.get("type")
        if kind == "error" or body.get("error"):
            raise to_model_error(parse_error_body(body))
        if kind in _FINAL_EVENTS:
            return self._whole(json_fields(body.get("response")))
        index = body.get("output_index")
        place = index if isinstance(index, int) else len(self._layout)
        if kind in _TEXT_EVENTS:
            return self._text(str(body.get("delta") or ""), place)
        if kind in _THINKING_EVENTS:
            text = self._halves.join("thought", str(body.get("delta") or ""))
            return (ThinkingDelta(text=text),) if text else ()
        if kind == "response.output_item.added":
            return self._begun(json_fields(body.get("item")), place)
        if kind == "response.function_call_arguments.delta":
            return self._arguments(body.get("delta"), place)
        if kind == "response.output_item.done":
            return self._item_done(json_fields(body.get("item")), place)
        return self._whole(body) if kind is None and "output" in body else ()

    def cut_off(self) -> None:
        """Ends the answer as if it had reached its length limit."""
        self._end = {"incomplete_details": {"reason": "max_output_tokens"}}

    def build_last_delta(self) -> ModelFinished:
        """Returns the last delta. Raises ModelError if the service could not complete the answer."""
        end = self._end or {}
        if end.get("status") == "failed":
            raise to_model_error(parse_error_body(end))
        if end.get("status") == "cancelled":
            raise ModelUnavailable(error_mapping.ANSWER_BROKE_OFF, detail="it was cancelled")
        why = str(json_fields(end.get("incomplete_details")).get("reason"))
        reason = _CUTS.get(why, "tool_calls" if self._places["function_call"] else "stop")
        return ModelFinished(finish_reason=reason, usage=self._usage)

    def _text(self, piece: str, place: int) -> Sequence[ModelDelta]:
        """Returns the next piece of a message, with a blank line before the second message and later ones."""
        text, messages = self._halves.join("text", piece), self._places["message"]
        if place not in messages:
            messages.append(place)
        if not text:
            return ()
        is_next, self._speaker = self._speaker not in (None, place), place
        return (TextDelta(text=f"\n\n{text}" if is_next else text),)

    def _begun(self, item: dict[str, object], place: int) -> Sequence[ModelDelta]:
        if item.get("type") != "function_call":
            return ()
        self._places["function_call"].append(place)
        self._argued.discard(place)
        name, call_id = str(item.get("name") or ""), str(item.get("call_id") or "")
        call = ToolCallDelta(index=place, call_id=call_id or None, name=name)
        return (*self.flush(), call, *self._arguments(item.get("arguments"), place))

    def _arguments(self, piece: object, place: int) -> Sequence[ModelDelta]:
        if not (text := arguments_text(piece)):
            return ()
        self._argued.add(place)
        return (ToolCallDelta(index=place, arguments=self._halves.join(place, text)),)

    def _item_done(self, item: dict[str, object], place: int) -> Sequence[ModelDelta]:
        """Stores the layout of the item. Returns the deltas that no earlier event has contained."""
        kind = str(item.get("type"))
        if kind not in self._places:
            return ()
        names = item.keys() - {"status"} if kind == "reasoning" else ("type", "phase")
        kept = {key: one for key, one in item.items() if one is not None and key in names}
        self._layout.append(cast(JsonObject, kept))
        is_new = place not in self._places[kind]
        if kind == "reasoning":
            self._places[kind].append(place)
        if kind == "message" and is_new:
            parts = json_objects(item.get("content"))
            return self._text("".join(str(one.get("text") or one.get("refusal") or "") for one in parts), place)
        if is_new or place in self._argued:
            return self._begun(item, place) if is_new else ()
        return self._arguments(item.get("arguments"), place)

    def _whole(self, body: dict[str, object]) -> list[ModelDelta]:
        """Reads an answer that was not streamed, or the last event of a stream, which repeats the whole answer or is
        the only event. Matches items by their order, because services number them differently in events."""
        self._end = body
        if usage := json_fields(body.get("usage")):
            self._usage = parse_usage(usage)
        output = body.get("output")
        known = {kind: [*places] for kind, places in self._places.items()}
        new = 1 + max((one for places in known.values() for one in places), default=-1)
        deltas: list[ModelDelta] = []
        for item in cast(list[object], output) if isinstance(output, list) else ():
            item, new = json_fields(item), new + 1
            if not (places := known.get(str(item.get("type")))):
                deltas += self._item_done(item, new)
            elif (place := places.pop(0)) not in self._argued:
                deltas += self._arguments(item.get("arguments"), place)
        return deltas

    def flush(self) -> Sequence[ModelDelta]:
        """Returns the items so far, if they contain reasoning and have changed since the last call."""
        if len(self._layout) == self._told or not self._places["reasoning"]:
            return ()
        self._told = len(self._layout)
        return (build_snapshot(self._origin, {LAYOUT: list(self._layout)}),)
