"""Chat templates in Python with the rules of model families: which messages they refuse, and what they leave out."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

Messages = Sequence[dict[str, Any]]
Template = Callable[[Messages], str]


class TemplateError(Exception):
    """The template refuses the messages."""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "<image>") for part in content)
    return content or ""


def _only_text(message: dict[str, Any]) -> str:
    if isinstance(message.get("content"), list):
        raise TemplateError(f"a {message['role']} message is no text")
    return message.get("content") or ""


def _without_system(messages: Messages) -> list[dict[str, Any]]:
    rest = list(messages[1:] if messages[0]["role"] == "system" else messages)
    if any(one["role"] == "system" for one in rest):
        raise TemplateError("the system message must come first")
    return rest


def _check_results(messages: Messages) -> None:
    """Each result follows a call with its id, and each call has one result before anything else is said."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise TemplateError("a result without a call")
            waiting.remove(message["tool_call_id"])
        elif waiting:
            raise TemplateError(f"a {message['role']} message before the results")
        waiting += [call["id"] for call in message.get("tool_calls") or ()]


def mistral(messages: Messages) -> str:
    rest, is_user_next, before = _without_system(messages), True, ""
    for message in rest:
        role, calls = message["role"], message.get("tool_calls")
        if role == "user" and before == "tool":
            raise TemplateError("Unexpected role 'user' after role 'tool'")
        if role != "tool" and not calls:
            if (role == "user") is not is_user_next:
                raise TemplateError("conversation roles must alternate user/assistant")
            is_user_next = not is_user_next
        if role == "tool":
            _only_text(message)
        for call in calls or ():
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                raise TemplateError("tool call ids have nine characters")
        before = role
    _check_results(rest)
    return _whole(messages, keeps=lambda _: False)


def gemma(messages: Messages) -> str:
    for number, message in enumerate(messages):
        if message["role"] != ("assistant" if number % 2 else "user"):
            raise TemplateError("conversation roles must alternate user/assistant, without system")
    return _whole(messages, keeps=lambda _: False)


def newest_user(messages: Messages) -> str:
    """GLM-4.6, MiniMax-M2, DeepSeek-V3.2: keep the reasoning after the newest user message."""
    _check_results(_without_system(messages))
    last = max(at for at, one in enumerate(messages) if one["role"] == "user")
    return _whole(messages, keeps=lambda at: at > last)


def text_only(messages: Messages) -> str:
    """The same for models that see no images."""
    for message in messages:
        _only_text(message)
    return newest_user(messages)


def qwen(messages: Messages) -> str:
    """Keeps the reasoning after the newest user message that is no tool response."""
    said = [at for at, one in enumerate(messages) if one["role"] == "user"]
    asked = [at for at in said if not _text(messages[at]["content"]).startswith("<tool_response>")]
    if not asked:
        raise TemplateError("No user query found in messages.")
    _check_results(_without_system(messages))
    return _whole(messages, keeps=lambda at: at > asked[-1])


def kimi(messages: Messages) -> str:
    """Prints a call's id instead of its name. Keeps the reasoning after the newest assistant message without calls."""
    rest = _without_system(messages)
    _check_results(rest)
    for message in rest:
        for call in message.get("tool_calls") or ():
            if not re.fullmatch(r"functions\.\w+:\d+", call["id"]):
                raise TemplateError(f"the call {call['id']} names no tool")
    plain = (at for at, one in enumerate(messages) if one["role"] == "assistant" and not one.get("tool_calls"))
    last = max(plain, default=-1)
    return _whole(messages, keeps=lambda at: at > last, call_name=lambda call: call["id"])


def _whole(
    messages: Messages,
    *,
    keeps: Callable[[int], bool],
    call_name: Callable[[Any], str] = lambda call: call["function"]["name"],
) -> str:
    lines: list[str] = []
    for at, message in enumerate(messages):
        lines.append(f"<|{message['role']}|>")
        if message.get("reasoning_content") and keeps(at):
            lines.append(f"<think>{message['reasoning_content']}</think>")
        lines.append(_text(message.get("content")))
        lines += [
            f"<call>{call_name(call)} {json.dumps(call['function']['arguments'])}"
            for call in message.get("tool_calls") or ()
        ]
    return "\n".join(lines)
