"""Sending what was drawn: in plainer blocks, and at last in words alone, where Slack does not take it as it is."""

import logging
from collections.abc import Sequence

from bots.slack import limits
from bots.slack.render.blocks import Drawing
from bots.slack.render.elements import cut
from bots.slack.render.fallback import plainer, words
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceRefused
from core.domain.messages import JsonObject

log = logging.getLogger(__name__)

_ABOUT_BLOCKS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"}
)


async def write(client: SlackClient, method: str, body: JsonObject, drawing: Drawing) -> JsonObject:
    """Calls the method with the body and the drawing. Raises as SlackClient.write does.

    A refused message was not posted, so another form of it is no second one.
    """
    blocks: Sequence[JsonObject] = drawing.blocks
    for _ in ("as drawn", "plainer"):
        whole: JsonObject = {**body, "text": drawing.text, "blocks": list(blocks)}
        try:
            return await client.write(method, whole)
        except SurfaceRefused as refusal:
            if refusal.code not in _ABOUT_BLOCKS:
                raise
            log.warning("slack does not take a message in its blocks: %s", refusal.code)
            blocks = plainer(blocks)
    said = cut(words(blocks) or drawing.text, limits.WORDS_MAX)
    return await client.write(method, {**body, "text": said, "blocks": []})
