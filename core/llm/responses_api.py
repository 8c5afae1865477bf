"""Encodes requests for OpenAI's Responses API and parses its answers.

The conversation is sent whole with each request and nothing is stored at OpenAI, so reasoning comes back encrypted."""

import re
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import JsonValue

from core.context.message_text import content_text
from core.domain.errors import ModelUnavailable
from core.domain.messages import JsonObject
from core.domain.threads import Usage
from core.llm import error_mapping
from core.llm.call_ids import with_usable_call_ids
from core.llm.error_mapping import to_model_error
from core.llm.openai_answer import SurrogateJoiner, parse_error_body, parse_usage, to_json
from core.llm.openai_request import RequestEncoder
from core.llm.reasoning import ReasoningOrigin, json_fields, kept_fields, snapshot
from core.ports import (
    ModelDelta,
    ModelFinished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)

LAYOUT = "output"
"""The reasoning field of this API: the answer's items in order. Only reasoning items are whole, because the text and
the calls are in the message."""
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_THINKING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_INCLUDED = re.compile("encrypted content", re.IGNORECASE)
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesEncoder(RequestEncoder):
    """Encodes requests for the Responses API. Stop sequences are left out, because the API has none."""

    __slots__ = ()
    _messages_key = b"input"

    def adapt_to_refusal(self, request: ModelRequest, refusal: str) -> bool:
        # OpenAI names the value of `include` instead of the option
        return super().adapt_to_refusal(request, _INCLUDED.sub("include", refusal))

    def _messages(self, request: ModelRequest) -> list[bytes]:
        return self._encoded(with_usable_call_ids(request.model, request.messages), request.model)

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
        yield {
            "type": "function_call_output",
            "call_id": message.get("tool_call_id"),
            "output": content_text(content),
        }
    elif role == "assistant":
        yield from _assistant_items(message, kept_fields(message, origin).get(LAYOUT))
    else:
        parts = [_input_part(part) for part in content] if isinstance(content, list) else content
        yield {"role": role, "content": parts}


def _assistant_items(message: JsonObject, layout: JsonValue) -> Iterator[JsonObject]:
    text = content_text(message.get("content"))
    calls = message.get("tool_calls")
    items = iter([_call_item(call) for call in calls] if isinstance(calls, list) else [])
    for kept in layout if isinstance(layout, list) else ():
        match kept:
            case {"type": "reasoning"}:
                yield kept
            case {"type": "message"} if text:
                phase: JsonObject = {"phase": kept["phase"]} if "phase" in kept else {}
                yield {"role": "assistant", "content": text, **phase}
                text = ""
            case {"type": "function_call"}:
                if (call := next(items, None)) is not None:
                    yield call
            case _:
                continue
    if text:
        yield {"role": "assistant", "content": text}
    yield from items


def _call_item(call: JsonValue) -> JsonObject:
    known = call if isinstance(call, dict) else {}
    function = known.get("function")
    named = function if isinstance(function, dict) else {}
    return {
        "type": "function_call",
        "call_id": known.get("id"),
        "name": named.get("name"),
        "arguments": named.get("arguments"),
    }


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
        "_argued", "_end", "_halves", "_has_calls",
        "_has_text", "_layout", "_origin", "_started", "_told", "_usage",
    )  # fmt: skip

    def __init__(self, origin: ReasoningOrigin) -> None:
        self._origin = origin
        self._halves = SurrogateJoiner()
        self._layout: list[JsonValue] = []
        self._told = 0
        self._argued: set[int] = set()
        self._started: set[int] = set()
        self._has_text = self._has_calls = False
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
        if kind in _TEXT_EVENTS:
            self._has_text = True
            text = self._halves.joined("text", str(body.get("delta") or ""))
            return (TextDelta(text=text),) if text else ()
        if kind in _THINKING_EVENTS:
            text = self._halves.joined("thought", str(body.get("delta") or ""))
            return (ThinkingDelta(text=text),) if text else ()
        place = index if isinstance(index := body.get("output_index"), int) else 0
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

    def flush(self) -> Sequence[ModelDelta]:
        """Returns the reasoning, after all events were read."""
        return self._news()

    def finished(self) -> ModelFinished:
        """Returns the last delta. Raises ModelError if the service could not complete the answer."""
        end = self._end or {}
        if end.get("status") == "failed":
            raise to_model_error(parse_error_body(end))
        if end.get("status") == "cancelled":
            raise ModelUnavailable(
                error_mapping.ANSWER_BROKE_OFF, detail="the response was cancelled"
            )
        why = json_fields(end.get("incomplete_details")).get("reason")
        if why == "max_output_tokens":
            return ModelFinished(finish_reason="length", usage=self._usage)
        if why == "content_filter":
            return ModelFinished(finish_reason="content_filter", usage=self._usage)
        reason = "tool_calls" if self._has_calls else "stop"
        return ModelFinished(finish_reason=reason, usage=self._usage)

    def _begun(self, item: dict[str, object], place: int) -> Sequence[ModelDelta]:
        if item.get("type") != "function_call":
            return ()
        self._has_calls = True
        self._started.add(place)
        call = ToolCallDelta(
            index=place,
            call_id=str(item.get("call_id") or "") or None,
            name=str(item.get("name") or ""),
        )
        return (*self._news(), call, *self._arguments(item.get("arguments"), place))

    def _arguments(self, piece: object, place: int) -> Sequence[ModelDelta]:
        if not isinstance(piece, str) or not piece:
            return ()
        self._argued.add(place)
        return (ToolCallDelta(index=place, arguments=self._halves.joined(place, piece)),)

    def _item_done(self, item: dict[str, object], place: int) -> Sequence[ModelDelta]:
        kind = item.get("type")
        if kind == "reasoning":
            kept = {key: one for key, one in item.items() if one is not None and key != "status"}
            self._layout.append(cast(JsonObject, kept))
        elif kind in ("message", "function_call"):
            shape: JsonObject = {"type": str(kind)}
            if isinstance(phase := item.get("phase"), str):
                shape["phase"] = phase
            self._layout.append(shape)
        if kind == "message" and not self._has_text:
            return [TextDelta(text=text) for text in _texts(item) if text]
        if place not in self._started:
            return self._begun(item, place)
        return () if place in self._argued else self._arguments(item.get("arguments"), place)

    def _whole(self, body: dict[str, object]) -> list[ModelDelta]:
        """Reads an answer that was not streamed, or the last event of a stream, which may be its only one."""
        self._end = body
        if usage := json_fields(body.get("usage")):
            self._usage = parse_usage(usage)
        output = body.get("output")
        if self._layout or self._has_text or self._has_calls or not isinstance(output, list):
            return []
        items = enumerate(map(json_fields, cast(list[object], output)))
        return [delta for place, item in items for delta in self._item_done(item, place)]

    def _news(self) -> Sequence[ModelDelta]:
        """Returns the items so far, if they contain reasoning and have changed since the last call."""
        has_reasoning = any(
            isinstance(one, dict) and one.get("type") == "reasoning" for one in self._layout
        )
        if len(self._layout) == self._told or not has_reasoning:
            return ()
        self._told = len(self._layout)
        return (snapshot(self._origin, {LAYOUT: list(self._layout)}),)


def _texts(item: dict[str, object]) -> Iterator[str]:
    content = item.get("content")
    for part in cast(list[object], content) if isinstance(content, list) else ():
        known = json_fields(part)
        yield str(known.get("text") or known.get("refusal") or "")
