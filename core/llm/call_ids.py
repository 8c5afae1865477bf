"""Gives the tool calls of a request ids that its provider accepts.

Providers limit the length and the characters of ids, and refuse ids that repeat. A history may contain ids that another
provider made up."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count

from pydantic import JsonValue

from core.domain.ids import KIMI_ID, USABLE_ID
from core.domain.json import JsonObject, json_fields

MISTRAL = re.compile(r"(?:mis|minis|magis|devs|codes|pix|vox)tral", re.IGNORECASE)
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_FORMS = (
    (MISTRAL, _MISTRAL_ID),
    (re.compile(r"kimi|moonshot", re.IGNORECASE), KIMI_ID),
    (re.compile(r"claude|anthropic|bedrock|gpt-|(?:^|/)o\d", re.IGNORECASE), re.compile(r"[a-zA-Z0-9_-]{1,40}")),
)
"""The ids that a provider accepts, by the model's name. For other models, ids are returned as they were received."""
_MISTRAL_CHARACTERS = 9
_DIGEST_BYTES = 12


def with_usable_call_ids(model: str, messages: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Returns the messages with ids that the model's provider accepts, each only once. Calls and their results still
    match. Messages that need no change are the same objects, and an id becomes the same in every later request."""
    usable = next((form for name, form in _FORMS if name.search(model)), USABLE_ID)
    if _are_usable(messages, usable):
        return messages
    used: set[str] = set()
    seen: dict[str, int] = {}
    waiting: dict[str, list[str]] = {}

    def new_id(given: str, name: str) -> str:
        seen[given] = seen.get(given, 0) + 1
        wanted = given
        if given in used or not usable.fullmatch(given):
            digest = blake2b(f"{seen[given]}:{given}".encode(errors="replace"), digest_size=_DIGEST_BYTES)
            text = digest.hexdigest()
            wanted = text[:_MISTRAL_CHARACTERS] if usable is _MISTRAL_ID else f"call_{text}"
            # Kimi counts the calls of a conversation
            numbered = (f"functions.{name}:{number}" for number in count(len(used)))
            if usable is KIMI_ID or (usable is USABLE_ID and KIMI_ID.fullmatch(given)):
                wanted = next(one for one in numbered if one not in used)
        used.add(wanted)
        return wanted

    changed: list[JsonObject] = []
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            given = [str(one.get("id") or "") if isinstance(one, dict) else "" for one in calls]
            functions = [json_fields(json_fields(call).get("function")) for call in calls]
            ids = [new_id(one, str(each.get("name", "unknown"))) for one, each in zip(given, functions, strict=True)]
            waiting.clear()
            for one, wanted in zip(given, ids, strict=True):
                waiting.setdefault(one, []).append(wanted)
            if ids != given:
                renamed: JsonObject = {
                    "tool_calls": [
                        {**call, "id": wanted} if isinstance(call, dict) else call
                        for call, wanted in zip(calls, ids, strict=True)
                    ]
                }
                message = {**message, **renamed}
        elif message.get("role") == "tool":
            given_id = str(message.get("tool_call_id") or "")
            wanted_ids = waiting.get(given_id) or [given_id]
            wanted = wanted_ids.pop(0) if len(wanted_ids) > 1 else wanted_ids[0]
            message = message if wanted == given_id else {**message, "tool_call_id": wanted}
        changed.append(message)
    return changed


def _are_usable(messages: Sequence[JsonObject], usable: re.Pattern[str]) -> bool:
    """Returns whether each call has a usable id of its own, as in a history that stayed with one provider. Kept short,
    because every request checks its whole history."""
    ids: list[JsonValue] = []
    for message in messages:
        if isinstance(calls := message.get("tool_calls"), list):
            ids += [one.get("id") if isinstance(one, dict) else None for one in calls]
    are_usable = all(isinstance(one, str) and usable.fullmatch(one) for one in ids)
    return are_usable and len(set(ids)) == len(ids)
