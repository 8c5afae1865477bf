"""Builds the end of a request, which is sent with one model call only: the browser's state and images.

Everything before it is the same in the next request, so that the provider's prompt cache remains valid."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from core.context.program_message import program_text
from core.context.tokens import count_message
from core.context.untrusted_text import clean_line, wrap_untrusted
from core.domain.json import JsonObject
from core.domain.messages import Message

BROWSER_RESPONSES = 1
"""The browser's state is sent until the model has given more responses than this after it."""
BROWSER_CHARACTERS_MAX = 12_000
PICTURES_MAX = 4
PICTURE_TOKENS_MAX = 8_000
PICTURE_RESPONSES = 15
"""An image is sent until the model has given more responses than this after it."""
_NOT_SHOWN = (
    "This model takes no pictures, so these are not shown: {names}. Say so where it matters, or read what is in them"
    " with a program."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTail:
    """The parts of the message. `browser` is the newest `browser_state` message. `pictures` are the newest
    `image_context` messages, oldest first. If not all of them fit, the newest are shown."""

    browser: Message | None = None
    pictures: Sequence[Message] = ()

    def build_message(self, *, sees_images: bool) -> JsonObject | None:
        """Returns the user message, or None if it is empty. If `sees_images` is False, a note names the images
        instead."""
        texts: list[str] = []
        if self.browser is not None:
            content, keys = self.browser.content, ("url", "title", "tabs", "scroll", "elements")
            facts = "\n".join(f"{key}: {_line(content[key])}" for key in keys if content.get(key))
            state = wrap_untrusted(facts[:BROWSER_CHARACTERS_MAX], source="the browser as it is now")
            texts.append(f"# The browser\n\n{state}")
        if names := [picture_name(one) for one in newest_pictures(self.pictures)]:
            listed = ", ".join(names)
            shown = f"Shown below, in this order: {listed}." if sees_images else ""
            left_out = dict.fromkeys(map(picture_name, self.pictures)).keys() - set(names)
            if shown and left_out:
                shown += f" Not shown, because only the newest fit: {', '.join(sorted(left_out))}."
            texts.append(f"# Pictures\n\n{shown or _NOT_SHOWN.format(names=listed)}")
        text = program_text(*texts)
        if not text:
            return None
        images = self._images() if sees_images else []
        return {"role": "user", "content": [{"type": "text", "text": text}, *images]}

    @property
    def has_images(self) -> bool:
        return bool(self._images())

    def _images(self) -> list[JsonValue]:
        urls = [picture_url(one.content) for one in newest_pictures(self.pictures)]
        if self.browser is not None:
            shot = self.browser.content.get("screenshot")
            urls.append(f"data:image/jpeg;base64,{shot}" if isinstance(shot, str) and shot else "")
        return [{"type": "image_url", "image_url": {"url": url}} for url in urls if url]


def newest_pictures(pictures: Sequence[Message]) -> list[Message]:
    """Returns the newest images that fit the limits, oldest first. Of several images of one file, only the newest is
    returned."""
    kept: dict[str, Message] = {}
    room = PICTURE_TOKENS_MAX
    for one in reversed(pictures):
        url = picture_url(one.content)
        if not url or picture_name(one) in kept:
            continue
        image: JsonValue = {"type": "image_url", "image_url": {"url": url}}
        room -= count_message({"role": "user", "content": [image]})
        if len(kept) == PICTURES_MAX or (room < 0 and kept):
            break
        kept[picture_name(one)] = one
    return list(reversed(kept.values()))


def picture_name(picture: Message) -> str:
    """Returns the path of an `image_context` message's picture as one line."""
    return clean_line(str(picture.content.get("file_path") or "a picture"), 200)


def _line(value: JsonValue) -> str:
    if isinstance(value, list):
        return "\n" + "\n".join(_line(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return str(value)


def picture_url(content: JsonObject) -> str:
    """Returns the address or data URL of an `image_context` message, or an empty string if it has none."""
    url, encoded = content.get("url"), content.get("base64")
    if isinstance(url, str) and url.startswith(("https://", "data:image/")):
        return url
    mime = content.get("mime_type")
    if isinstance(encoded, str) and isinstance(mime, str) and mime.startswith("image/"):
        return f"data:{mime};base64,{encoded}"
    return ""
