"""Block Kit as the platform enforces it on a whole message or view."""

import secrets
from collections.abc import Iterator
from typing import Final, cast

from simulator.slack.block_kit.block_types import MARKDOWN_CHARS_MAX, MESSAGE_BLOCKS, VIEW_BLOCKS
from simulator.slack.block_kit.schema import Check, Flaw
from simulator.slack.events.payloads import Payload, Refused, as_payload, as_payloads

# The platform documents no sum; developers report that messages over about this many characters are refused.
BLOCK_CHARS_MAX: Final = 13_200


def check_message_blocks(value: object, *, root: str = "blocks") -> list[Payload]:
    """The blocks of a message, with ids filled in where they were missing.

    Raises Refused: `invalid_blocks_format` for what is no array of objects, `invalid_blocks` with the place for a rule
    that is broken, `msg_blocks_too_long` for too much text.
    """
    if value is None:
        return []
    blocks = _checked(value, MESSAGE_BLOCKS, root)
    if blocks:
        _check_sums(blocks, root)
    return blocks


def check_view_blocks(value: object) -> list[Payload]:
    """The blocks of a modal or a home tab; raises Refused `invalid_arguments` with the place."""
    try:
        return _checked(value, VIEW_BLOCKS, "view/blocks")
    except Refused as refusal:
        raise Refused("invalid_arguments", messages=refusal.messages) from None


def _checked(value: object, rule: Check, root: str) -> list[Payload]:
    blocks = as_payloads(value)
    if not isinstance(value, list) or len(blocks) != len(cast(list[object], value)):
        raise Refused("invalid_blocks_format")
    try:
        rule(blocks)
        _name_everything(blocks)
    except Flaw as flaw:
        raise Refused("invalid_blocks", messages=(flaw.message(root),)) from None
    return blocks


def _name_everything(blocks: list[Payload]) -> None:
    seen: set[str] = set()
    for index, block in enumerate(blocks):
        block_id = block.setdefault("block_id", secrets.token_urlsafe(4))
        if block_id in seen:
            raise Flaw(f"`block_id` {block_id} already exists").at("block_id").at(index)
        seen.add(block_id)
        actions: set[str] = set()
        for element in controls_of(block):
            action_id = element.setdefault("action_id", secrets.token_urlsafe(4))
            if action_id in actions:
                raise Flaw(f"`action_id` {action_id} already exists").at("elements").at(index)
            actions.add(action_id)
        children = block.get("child_blocks")
        if children is not None:
            _name_everything(as_payloads(children))


def controls_of(block: Payload) -> list[Payload]:
    """The interactive elements that stand directly in a block."""
    match block["type"]:
        case "actions" | "context_actions":
            return as_payloads(block["elements"])
        case "section":
            accessory = as_payload(block.get("accessory"))
            return [accessory] if accessory is not None and accessory["type"] != "image" else []
        case "input":
            return [cast(Payload, block["element"])]
        case "card":
            return as_payloads(block.get("actions"))
        case "carousel":
            return [each for card in as_payloads(block["elements"]) for each in controls_of(card)]
        case _:
            return []


def _check_sums(blocks: list[Payload], root: str) -> None:
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if markdown > MARKDOWN_CHARS_MAX or sum(_lengths(blocks)) > BLOCK_CHARS_MAX:
        raise Refused("msg_blocks_too_long")
    if sum(block["type"] == "table" for block in blocks) > 1:
        flaw = Flaw("only_one_table_allowed")
        raise Refused("invalid_attachments", messages=(flaw.message(root),))
    if sum(block["type"] == "data_visualization" for block in blocks) > 2:
        flaw = Flaw("no more than 2 data_visualization blocks allowed")
        raise Refused("invalid_blocks", messages=(flaw.message(root),))


def _lengths(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for item in cast(list[object], value):
            yield from _lengths(item)
    elif isinstance(value, dict):
        for key, item in cast(Payload, value).items():
            if isinstance(item, str):
                if key in ("text", "title"):
                    yield len(item)
            else:
                yield from _lengths(item)
