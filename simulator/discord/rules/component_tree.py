"""Components as they are stored: numbered, their attachments resolved, and found again by their custom id."""

from collections.abc import Iterator

from simulator.discord.json_reading import Json, as_object, objects_of, snowflake, text_of
from simulator.discord.payloads import attachment_json
from simulator.discord.rules.components import SELECTS
from simulator.discord.world import Attachment, World

_REQUIRED: dict[object, Json] = {
    11: {"description": None, "spoiler": False},
    13: {"spoiler": False},
    14: {"divider": True, "spacing": 1},
    17: {"accent_color": None, "spoiler": False},
}
"""What Discord adds to the components of a message, by type: the required fields of its OpenAPI document."""
_REQUIRED_OF_ITEM: Json = {"description": None, "spoiler": False}


def walk(components: list[Json]) -> Iterator[Json]:
    """Every component of the tree, a parent before its children."""
    for component in components:
        yield component
        yield from walk(objects_of(component, "components"))
        for name in ("accessory", "component"):
            child = as_object(component.get(name))
            if child is not None:
                yield from walk([child])


def find(components: list[Json], custom_id: str) -> Json | None:
    return next((item for item in walk(components) if item.get("custom_id") == custom_id), None)


def complete(world: World, components: list[Json], attachments: list[Attachment]) -> list[Json]:
    """Fills in what Discord answers with: ids, defaults, and addresses for `attachment://name`."""
    taken = {item.get("id") for item in walk(components)}
    unused = (number for number in range(1, 1000) if number not in taken)
    named = {attachment.filename: attachment for attachment in attachments}
    return [_complete(world, component, named, unused) for component in components]


def _complete(world: World, component: Json, named: dict[str, Attachment], unused: Iterator[int]) -> Json:
    done = {**_REQUIRED.get(component.get("type"), {}), **component}
    if not done.get("id"):
        done["id"] = next(unused)
    if done.get("type") in SELECTS:
        done = {"min_values": 1, "max_values": 1, **done}
        if done.get("placeholder") is None:
            done.pop("placeholder", None)
    if "components" in done:
        children = objects_of(done, "components")
        done["components"] = [_complete(world, child, named, unused) for child in children]
    for name in ("accessory", "component"):
        if (child := as_object(done.get(name))) is not None:
            done[name] = _complete(world, child, named, unused)
    return _with_media(world, done, named)


def _with_media(world: World, component: Json, named: dict[str, Attachment]) -> Json:
    if "items" in component:
        items = objects_of(component, "items")
        component["items"] = [_resolve(world, {**_REQUIRED_OF_ITEM, **item}, "media", named) for item in items]
    for name in ("media", "file"):
        if name in component:
            component = _resolve(world, component, name, named)
    return component


def _resolve(world: World, holder: Json, name: str, named: dict[str, Attachment]) -> Json:
    media = as_object(holder.get(name)) or {}
    attachment = named_attachment(text_of(media, "url"), named)
    if attachment is None:
        item: Json = {
            "id": snowflake(),
            "url": media.get("url"),
            "proxy_url": media.get("url"),
            "content_type": "image/png",
            "loading_state": 2,
            "placeholder": "",
        }
        return {**holder, name: item}
    told = attachment_json(world, attachment)
    item = {
        "id": attachment.attachment_id,
        "url": told["url"],
        "proxy_url": told["url"],
        "content_type": attachment.content_type,
        "loading_state": 2,
        "placeholder": "",
        "attachment_id": attachment.attachment_id,
    }
    if holder.get("type") == 13:
        return {**holder, name: item, "name": attachment.filename, "size": len(attachment.content)}
    return {**holder, name: item}


def named_attachment(url: str, named: dict[str, Attachment]) -> Attachment | None:
    """The attachment that `attachment://name`, or an address of the CDN, names."""
    if url.startswith("attachment://"):
        return named.get(url.removeprefix("attachment://"))
    parts = url.partition("?")[0].split("/")
    if len(parts) > 3 and parts[-4:-3] == ["attachments"]:
        return next((file for file in named.values() if file.attachment_id == parts[-2]), None)
    return None
