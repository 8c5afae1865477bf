"""A laid-out message as an ordinary one, with the same buttons below it, for where layouts are not taken; pure."""

from collections.abc import Iterator

from bots.discord.render.components import ACTION_ROW, TEXT_DISPLAY, plain
from bots.discord.rest.client import objects
from core.domain.messages import JsonObject

NOT_TAKEN = frozenset({"50006", "50035"})
"""An empty message (who does not know layouts sees nothing in one), or an invalid form body."""


def plainer(body: JsonObject, delivery_id: str = "") -> JsonObject | None:
    """None for what is an ordinary message already."""
    if not body.get("components"):
        return None
    parts = [part for one in objects(body["components"]) for part in objects(one.get("components"))]
    ordinary = plain("\n".join(_texts(parts)), delivery_id)
    rows = [part for part in parts if part.get("type") == ACTION_ROW]
    return {**ordinary, "components": list(rows)}


def _texts(parts: list[JsonObject]) -> Iterator[str]:
    for part in parts:
        text = part.get("content")
        if part.get("type") == TEXT_DISPLAY and isinstance(text, str):
            yield text
