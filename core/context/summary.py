"""Replaces the older part of a conversation with a summary that a model writes. The original messages stay stored."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from core.context.background_messages import is_from_person
from core.context.message_text import content_text, sources_of_message
from core.context.program_message import read_template
from core.context.todo_file import TODO_KEY
from core.context.tokens import first_tokens, message_tokens, with_token_count
from core.context.truncation import EXPAND_TOOL, Cut, fit_messages, truncate_message
from core.context.untrusted_text import wrap_untrusted
from core.domain.messages import Message
from core.domain.sources import SOURCES_KEY, dump_sources, join_sources
from core.ports import ModelRequest, ResponseText

Complete = Callable[[ModelRequest], Awaitable[ResponseText]]
"""Sends one request to the model and returns the text of the response. Raises ModelError."""

OUTPUT_TOKENS_MAX = 8_000
REQUEST_TOKENS_MAX = 2_000
TODO_CHARACTERS_MAX = 4_000
ROOM_SHARE = 4
"""A summary gets a quarter of the room, and so does the newest request, because neither is truncated later."""
NAMED_FROM_TOKENS = 500
PROMPT_TOKENS = 2_000
REPLACES_UP_TO = "replaces_up_to"
REQUEST = "request"
REQUEST_ID = "request_id"
_NOTE = (
    "[Notes of the program on the {count} messages that came before; no person wrote them. {expand} shows any message"
    " whose id they name as it was.]"
)
_LOST = (
    "[The {count} messages that came before are left out because the conversation is too long for the model. No person"
    " wrote this. {expand} shows them one by one; the last of them are: {ids}]"
)
_TODO = "# todo.md as the file tools last wrote it; what commands have changed in it since is not shown"
_CUT_OFF = "[The notes reached their length limit here. What should follow is missing.]"


class UnusableSummary(Exception):
    """The model's summary is empty or was cut off."""


def find_summary_boundary(messages: Sequence[Message], kept_tokens: int, sizes: Mapping[str, int]) -> int:
    """Returns the number of older messages that a summary can replace, or 0 if there are none.

    The remaining messages have at most `kept_tokens` tokens, but there is at least one. A tool call is never separated
    from its results or from the state that follows them. `sizes` maps the ids of truncated messages to their token
    counts."""
    last = left = len(messages)
    room = kept_tokens
    for index in range(len(messages) - 1, -1, -1):
        room -= sizes.get(messages[index].message_id) or message_tokens(messages[index])
        if messages[index].type in ("tool", "status"):
            continue
        if room < 0 and left < last:
            break
        left = index
        if room < 0:
            break
    return left if any(one.type != "summary" for one in messages[:left]) else 0


async def summarise(
    older: Sequence[Message],
    *,
    complete: Complete,
    model: str,
    room: int,
    answer_tokens: int,
    run_id: str,
    is_last_attempt: bool,
    todo: str | None = None,
) -> Message:
    """Returns a `summary` message that replaces the older messages. `todo` is the content of todo.md after these
    messages. `room` is the number of tokens that a conversation may have, and `answer_tokens` is the most that the
    model may write, or 0 if that is unknown.

    The last attempt asks for a shorter text and lets the model write more, because thinking may have used up the limit.
    If the text is still truncated, it is used up to its last complete paragraph. Raises ModelError if the model call
    fails, and UnusableSummary if the text is empty or truncated."""
    own = min(OUTPUT_TOKENS_MAX, room // ROOM_SHARE, answer_tokens or room)
    words = own // (4 if is_last_attempt else 2)
    prompt = f"{read_template('summary')}\n\nWrite {words:,} words at most, because a longer text would be cut off."
    left = max(1, room - own - PROMPT_TOKENS)
    text = await asyncio.to_thread(
        lambda: wrap_untrusted(
            write_transcript([one for one in older if one.is_dialogue], left), source="the conversation"
        )
    )
    request = ModelRequest(
        model=model,
        messages=({"role": "system", "content": prompt}, {"role": "user", "content": text}),
        output_tokens_max=min(2 * own, answer_tokens or own) if is_last_attempt else own,
    )
    response = await complete(request)
    text = first_tokens(response.text.strip(), own)
    if response.is_cut_off or len(text) < len(response.text.strip()):
        # without its last paragraph, and without headings that nothing follows
        paragraphs = text.split("\n\n")[:-1] if is_last_attempt else []
        while paragraphs and paragraphs[-1].lstrip().startswith("#") and "\n" not in paragraphs[-1]:
            paragraphs.pop()
        text = "\n\n".join((*paragraphs, _CUT_OFF)) if paragraphs else ""
    if not text:
        raise UnusableSummary
    note = _NOTE.format(count=len(older), expand=EXPAND_TOOL)
    return _standing_for(older, f"{note}\n\n{text}", run_id, room, todo)


def build_omission_note(older: Sequence[Message], *, run_id: str, room: int, todo: str | None = None) -> Message:
    """Returns a note that replaces the older messages if no summary could be made."""
    ids = ", ".join(one.message_id for one in older[-5:])
    text = _LOST.format(count=len(older), expand=EXPAND_TOOL, ids=ids)
    return _standing_for(older, text, run_id, room, todo)


def newest_summary_and_later(messages: Sequence[Message]) -> list[Message]:
    """Returns the newest summary and the messages that it does not replace. Returns all messages if there is no
    summary. A summary replaces only messages to the model: what pictures and pages show is not part of it."""
    newest = next((one for one in reversed(messages) if one.type == "summary"), None)
    if newest is None:
        return list(messages)
    last_id = newest.metadata.get(REPLACES_UP_TO)
    place = next((i for i, one in enumerate(messages) if one.message_id == last_id), -1)
    left = (one for i, one in enumerate(messages) if one.type != "summary" and (i > place or not one.is_llm_message))
    return [newest, *left]


def write_transcript(older: Sequence[Message], room: int) -> str:
    """Returns the messages as one text of about `room` tokens at most.

    Long messages are truncated; if that is not enough, the oldest messages are left out."""
    fitted = fit_messages(older, room, {})
    lines: list[str] = []
    left = room
    pairs = list(zip(older, fitted.contents, strict=True))
    for message, content in reversed(pairs):
        short = fitted.shown.get(message.message_id)
        left -= short.tokens if short else message_tokens(message)
        if left < 0 and lines:
            lines.append("[What came before is left out: it is too long.]")
            break
        name = f" {message.message_id}" if message_tokens(message) >= NAMED_FROM_TOKENS else ""
        calls = content.get("tool_calls")
        called = "\n" + json.dumps(calls, ensure_ascii=False) if calls else ""
        lines.append(f"[{message.type}{name}]\n{content_text(content.get('content'))}{called}")
    return "\n\n".join(reversed(lines))


def _standing_for(older: Sequence[Message], text: str, run_id: str, room: int, todo: str | None) -> Message:
    request = _find_request(older)
    cut = truncate_message(request, Cut(min(REQUEST_TOKENS_MAX, room // ROOM_SHARE)))
    request_text = content_text(cut.content["content"])
    if request_text:
        text = f"{text}\n\n# The newest of those messages that a person wrote, word for word\n\n{request_text}"
    if todo and todo.strip():
        shown = todo[:TODO_CHARACTERS_MAX]
        left_out = len(todo) - len(shown)
        note = f"\n[The last {left_out} characters are left out; read_file shows them.]" if left_out else ""
        text = f"{text}\n\n{_TODO}\n\n{wrap_untrusted(shown, source='todo.md')}{note}"
    return with_token_count(
        Message(
            type="summary",
            content={"role": "user", "content": text},
            is_llm_message=True,
            thread_id=older[-1].thread_id,
            run_id=run_id,
            metadata={
                REPLACES_UP_TO: older[-1].message_id,
                TODO_KEY: todo,
                REQUEST: request_text,
                REQUEST_ID: request.message_id,
                SOURCES_KEY: dump_sources(join_sources(map(sources_of_message, older))),
            },
        )
    )


def _find_request(older: Sequence[Message]) -> Message:
    """Returns the newest message that a person wrote, as text, even if an earlier summary has already replaced it. The
    text is empty if there is none."""
    newest = next((one for one in reversed(older) if one.type == "summary" or is_from_person(one)), older[-1])
    text, message_id = "", ""
    if newest.type == "summary":
        text, message_id = (str(newest.metadata.get(key) or "") for key in (REQUEST, REQUEST_ID))
    elif is_from_person(newest):
        text, message_id = content_text(newest.content.get("content")), newest.message_id
    return replace(newest, content={"role": "user", "content": text}, message_id=message_id, token_count=0)


def count_turns(history: Sequence[Message], run_id: str) -> int:
    """Returns the number of the run's turns in the history."""
    return sum(one.type == "assistant" and one.run_id == run_id for one in history)
