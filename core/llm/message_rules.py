"""Gives the messages of a request the form that the provider of its model accepts."""

import re
from collections.abc import Sequence

from pydantic import JsonValue

from core.domain.json import JsonObject
from core.llm.call_ids import MISTRAL, with_usable_call_ids

_WITHOUT_SYSTEM = re.compile(r"(?:^|[/:])(?:code)?gemma", re.IGNORECASE)
_NOT_SHOWN: JsonObject = {
    "type": "text",
    "text": "(An image stands here, which you cannot see. Say so where it matters.)",
}
IMAGES_SHOWN = "These are the images."
_SHOWN: JsonObject = {"type": "text", "text": IMAGES_SHOWN}
_LOOKS: JsonObject = {"role": "assistant", "content": "(I look at the images.)"}
"""Stands between a tool result and a user message for Mistral, which wants an assistant message there."""


def adapt_messages(
    model: str, messages: Sequence[JsonObject], *, has_images_in_results: bool = False
) -> Sequence[JsonObject]:
    """Returns the messages with call ids that the provider accepts, without a system message if the model has none, and
    with the images of the last tool result in a user message, unless results may contain images.

    Only the end of the sequence may become longer."""
    usable = with_usable_call_ids(model, messages)
    if _WITHOUT_SYSTEM.search(model):
        match usable:
            case [{"role": "system", "content": str(system)}, {"role": "user", "content": said}, *rest]:
                part: JsonObject = {"type": "text", "text": system}
                content: JsonValue = [part, *said] if isinstance(said, list) else f"{system}\n\n{said or ''}"
                request: JsonObject = {"role": "user", "content": content}
                usable = [request, *rest]
            case _:
                pass
    if usable and usable[-1].get("role") == "tool" and not has_images_in_results:
        return [*usable[:-1], *_with_images_after(model, usable[-1])]
    return usable


def without_images(messages: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Returns the messages with a note in place of each image, for a model that accepts no images."""
    return tuple(
        {**one, "content": [_NOT_SHOWN if _is_image(part) else part for part in parts]}
        if isinstance(parts := one.get("content"), list)
        else one
        for one in messages
    )


def _is_image(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"


def _with_images_after(model: str, result: JsonObject) -> Sequence[JsonObject]:
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    images = [one for one in parts if _is_image(one)]
    if not images:
        return [result]
    text = "\n\n".join(str(one["text"]) for one in parts if isinstance(one, dict) and "text" in one)
    between = [_LOOKS] if MISTRAL.search(model) else []
    shown: JsonObject = {"role": "user", "content": [_SHOWN, *images]}
    return [{**result, "content": text}, *between, shown]
