"""Converts stored messages to readable text, converts user messages to what a model receives, and determines the
sources of a stored message."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from pydantic import JsonValue

from core.context.background_messages import UNREAD_KEY
from core.context.role_alternation import ADDED_MARK
from core.context.tokens import with_token_count
from core.context.untrusted_text import unwrap_message, wrap_message
from core.domain.answer_links import LinkRule, written_addresses
from core.domain.call_targets import find_addresses, parse_names
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.outside_text import HIDDEN_TARGET, QUOTE_MARKS, is_quotation
from core.domain.sources import (
    NO_SOURCES,
    SOURCES_KEY,
    Sources,
    dump_sources,
    join_sources,
    parse_sources,
    sources_of_input,
)
from core.domain.threads import ThreadInput

TEXT_CHARACTERS_MAX = 200_000
TIME_ZONE_KEY = "time_zone"
"""The metadata key of a user's message under which the name of the user's time zone is stored, or an empty text."""


_MESSAGE_START = "<message from="
_FILE_START = "[Attached file"
_NOTE_STARTS = (_FILE_START, "Forwarded from ")
_REST_QUOTED = tuple(mark * 3 for mark in QUOTE_MARKS)
"""The marks of a quotation that extends to the end of the message."""
_MENTION = re.compile(r"(?<![\w`.+-])@\S+")
"""Matches a mention of a user. E-mail addresses and code do not match."""


def full_message_text(message: Message) -> str:
    """Returns the message's text and tool calls; for a tool result, the call and its output."""
    content = message.content.get("content")
    execution = tool_execution(content) if message.type == "tool" else None
    if execution is not None:
        # with real newlines instead of JSON escapes
        called = json.dumps(execution.get("arguments"), ensure_ascii=False)
        text = f"{execution.get('function_name')} {called}\n{_output(execution)}"
    else:
        text = content_text(content)
    calls = message.content.get("tool_calls")
    return "\n".join(filter(None, (text, json.dumps(calls, ensure_ascii=False) if calls else "")))


def content_text(content: JsonValue) -> str:
    """Returns the text of a message's `content` value, with a placeholder for each image."""
    if isinstance(content, list):
        return "\n".join(
            str(part["text"]) if isinstance(part, dict) and "text" in part else "[an image]" for part in content
        )
    return content if isinstance(content, str) else ""


def format_for_model(message: Message, *, is_native: bool) -> Message:
    """Returns a tool message without the call's arguments, because the model has written them itself. Other messages
    are unchanged.

    In the native dialect, the message contains only the output or the error, without the mark that ends a result. In
    text dialects the result stays in its JSON object, because a user message does not show otherwise which text is
    data."""
    execution = tool_execution(message.content.get("content")) if message.type == "tool" else None
    if execution is None:
        return message
    if is_native and message.content.get("role") == "tool":
        content: JsonValue = _output(execution).replace(ADDED_MARK, ADDED_MARK.strip("[]"))
    else:
        shown: JsonObject = {key: one for key, one in execution.items() if key != "arguments"}
        content = json.dumps({"tool_execution": shown}, ensure_ascii=False)
    return replace(message, content={**message.content, "content": content}, token_count=0)


def stored_call(message: Message) -> tuple[str, JsonObject, JsonObject] | None:
    """If the message is the result of a call, returns the name, the arguments and the result of the call. Otherwise
    returns None."""
    execution = tool_execution(message.content.get("content")) if message.type == "tool" else None
    match execution:
        case {"function_name": str(name), "arguments": dict(arguments), "result": dict(result)}:
            return name, arguments, result
        case _:
            return None


def tool_execution(content: JsonValue) -> JsonObject | None:
    """Returns the call and its result from the `content` value of a tool message, or None for another text."""
    try:
        envelope: JsonValue = json.loads(content_text(content))
    except (ValueError, RecursionError):
        return None
    execution = envelope.get("tool_execution") if isinstance(envelope, dict) else None
    return execution if isinstance(execution, dict) and "result" in execution else None


def _output(execution: JsonObject) -> str:
    """Returns the output of a call, and the error if it failed."""
    result = execution.get("result")
    if not isinstance(result, dict):
        return str(result)
    output, error = result.get("output"), result.get("error")
    shown = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    told = [shown] if output is not None else []
    if error is not None and result.get("success") is not True:
        told.append(f"Error: {error}")
    return "\n".join(told) or "(no output)"


def build_unread_message(one: ThreadInput, run_id: str) -> Message:
    """Returns the user message for an input that the run did not read. Its attached files are named but not
    downloaded."""
    lines = [attribute_text(one), *(f"[Attached file, not fetched: {file.name}]" for file in one.files)]
    message = build_user_message(one, run_id, "\n".join(line for line in lines if line))
    return replace(message, metadata={**message.metadata, UNREAD_KEY: True})


def build_user_message(thread_input: ThreadInput, run_id: str, text: str) -> Message:
    message = Message(
        type="user",
        content={"role": "user", "content": text},
        is_llm_message=True,
        thread_id=thread_input.thread_id,
        run_id=run_id,
        metadata={
            "author": thread_input.author.name,
            "author_id": thread_input.author.person_id,
            "message_ref": thread_input.message_ref,
            "sent_at": thread_input.sent_at.isoformat(),
            TIME_ZONE_KEY: thread_input.author.time_zone,
            SOURCES_KEY: dump_sources(sources_of_input(thread_input)),
        },
    )
    return with_token_count(message)


def attribute_text(thread_input: ThreadInput) -> str:
    """Returns the input's text with the author's name and id, in a form that the text itself cannot imitate."""
    text = thread_input.text[:TEXT_CHARACTERS_MAX]
    if not thread_input.author.name:
        return text
    person_id = thread_input.author.person_id
    who = thread_input.author.name + (f" ({person_id})" if person_id else "")
    if not text and thread_input.kind != "edit":
        return f"{who} sent files:"
    notes = "[A change of an earlier message:]\n" if thread_input.kind == "edit" else ""
    if thread_input.author.is_app:
        notes += "[An app wrote this, not a person:]\n"
    if thread_input.attention != "addressed":
        notes += "[It does not mention you: call no_reply if it is not for you.]\n"
    return notes + wrap_message(text, author=who)


def one_line(text: str) -> str:
    return " ".join(text.split())


def sources_of_message(message: Message) -> Sources:
    """Returns the sources of a stored message. If a message should state its sources and does not, its source is
    unknown.

    Messages of the agent and of the program have no sources unless they state some."""
    states = message.type in ("user", "tool", "summary") or SOURCES_KEY in message.metadata
    if not states:
        return NO_SOURCES
    sources = parse_sources(message.metadata.get(SOURCES_KEY))
    if message.type != "user" or not any(source.kind == "person" for source in sources.read):
        return sources
    return join_sources([sources, Sources(named=parse_names(_own_words(message)))])


def build_link_rule(messages: Sequence[Message], sources: Sources) -> LinkRule:
    """Returns the rule for which addresses an answer may link to, after the model was sent these messages in the form
    of `format_for_model` and has read these sources.

    An address that the model wrote first is not allowed, because it may only have been repeated, for example by a
    search that it made."""

    def given() -> Iterator[str]:
        own: set[str] = set()
        for message in messages:
            if message.type == "assistant":
                own.update(written_addresses(unquote(json.dumps(message.content, ensure_ascii=False))))
            elif message.type in ("user", "tool"):
                read = parse_sources(message.metadata.get(SOURCES_KEY)).read
                # a command in the sandbox can print any address that the model has invented, and a summary can contain
                # it
                is_made_here = any(source.kind in ("internet", "unknown") for source in read)
                if not is_made_here and any(source.kind == "person" or source.is_outside for source in read):
                    addresses = written_addresses(content_text(message.content.get("content")))
                    yield from (address for address in addresses if address not in own)

    return LinkRule(sources, given)


def _own_words(message: Message) -> str:
    """Returns the author's own words in a message: without what the program added, without quotations, and without
    hidden link targets. A line that could be one of these is left out. Users can choose their own names, so a mention
    names a person but never an address."""
    text = content_text(message.content.get("content"))
    if message.metadata.get("author"):
        start = text.find(_MESSAGE_START)
        text = unwrap_message(text[start:]) if start >= 0 else ""
    words = list[str]()
    for line in text.split("\n"):
        begin = line.strip()
        if any(part.strip().startswith(_REST_QUOTED) for part in line.splitlines()):
            break
        is_note = begin.startswith(_NOTE_STARTS) or (begin.startswith("[") and begin.endswith("]"))
        if not is_note and not is_quotation(line):
            words.append(line)
    visible = HIDDEN_TARGET.sub(" ", "\n".join(words))
    return _MENTION.sub(lambda mention: " " if find_addresses(mention[0]) else mention[0], visible)
