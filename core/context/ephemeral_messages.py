"""Builds messages that are sent with one model call and not kept: the browser's state and the viewed image."""

from collections.abc import Sequence

from pydantic import JsonValue

from core.context.untrusted_text import wrap_untrusted
from core.domain.messages import JsonObject, Message

BROWSER_MESSAGES = 3
"""The browser's state is sent while at most this many messages follow it."""
TEXT_CHARACTERS_MAX = 12_000
_PICTURE = "The picture that was looked at last:"
_NOT_SHOWN = (
    "(The picture that was looked at last is not shown here: this model takes no pictures. "
    "Say so where it matters, or read what is in it by a program.)"
)


def ephemeral_contents(
    passing: Sequence[Message], *, messages_since_browser: int, sees_images: bool
) -> tuple[JsonObject, ...]:
    """Returns the ephemeral user messages for the next model call.

    `messages_since_browser` is the number of messages after the browser's state. If `sees_images` is False, images are
    left out, and a note says so for the viewed image.
    """
    contents: list[JsonObject] = []
    for message in passing:
        if message.type == "browser_state":
            if messages_since_browser <= BROWSER_MESSAGES:
                contents.append(_browser(message.content, sees_images=sees_images))
        elif url := _picture_url(message.content):
            shown: JsonValue = [_text(_PICTURE), _image(url)] if sees_images else _NOT_SHOWN
            contents.append({"role": "user", "content": shown})
    return tuple(contents)


def _browser(content: JsonObject, *, sees_images: bool) -> JsonObject:
    facts = [
        f"{key}: {_one(content[key])}"
        for key in ("url", "title", "tabs", "scroll", "elements")
        if content.get(key)
    ]
    text = wrap_untrusted("\n".join(facts)[:TEXT_CHARACTERS_MAX], source="the browser as it is now")
    shot = content.get("screenshot_url") or content.get("screenshot")
    if not sees_images or not isinstance(shot, str):
        return {"role": "user", "content": text}
    is_address = shot.startswith(("https://", "http://", "data:"))
    url = shot if is_address else f"data:image/jpeg;base64,{shot}"
    return {"role": "user", "content": [_text(text), _image(url)]}


def _one(value: JsonValue) -> str:
    if isinstance(value, list):
        return "\n" + "\n".join(_one(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return str(value)


def _picture_url(content: JsonObject) -> str:
    url, encoded = content.get("url"), content.get("base64")
    if isinstance(url, str) and url.startswith(("https://", "data:image/")):
        return url
    mime = content.get("mime_type")
    if isinstance(encoded, str) and isinstance(mime, str) and mime.startswith("image/"):
        return f"data:{mime};base64,{encoded}"
    return ""


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(url: str) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": url}}
