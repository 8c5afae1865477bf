"""Posts rendered messages, with simpler blocks or as plain text if Slack refuses them."""

import logging

from bots.delivery.markdown import truncate
from bots.slack import limits
from bots.slack.render.block_kit import blocks_to_mrkdwn, simplify_blocks
from bots.slack.render.messages import RenderedMessage
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceRefused
from core.domain.json import JsonObject
from core.ports import Precondition

log = logging.getLogger(__name__)

BLOCK_ERRORS = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"})


async def post_with_fallback(
    client: SlackClient,
    method: str,
    body: JsonObject,
    message: RenderedMessage,
    *,
    precondition: Precondition | None = None,
) -> JsonObject:
    """Posts a rendered message, in a simpler form if Slack refuses its blocks. Raises the same exceptions as
    SlackClient.write.

    Slack does not post a message that it refuses, so the simpler form is not a duplicate."""
    plain, simple = message.plain_blocks, simplify_blocks(message.plain_blocks)
    forms = (message.blocks, plain) if plain != message.blocks else (plain,)
    for blocks in (*forms, simple):
        whole: JsonObject = {**body, "text": message.text, "blocks": list(blocks)}
        try:
            return await client.write(method, whole, precondition=precondition)
        except SurfaceRefused as refusal:
            if refusal.code not in BLOCK_ERRORS:
                raise
            log.warning("slack: the blocks of a message were refused: %s", refusal.code)
    said = truncate(blocks_to_mrkdwn(simple) or message.text, limits.PLAIN_MESSAGE_MAX)
    in_words: JsonObject = {**body, "text": said, "blocks": []}
    return await client.write(method, in_words, precondition=precondition)
