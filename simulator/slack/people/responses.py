"""Answers of the app to an interaction: over its response_url, or in the acknowledgement of a command."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from simulator.recording import record
from simulator.slack.block_kit.message_rules import check_message_blocks
from simulator.slack.events import message_events
from simulator.slack.events.payloads import Payload, Refused, as_payload, as_payloads
from simulator.slack.shapes import message_form
from simulator.slack.world import Message, ResponseUrl, Workspace

_FIELDS = frozenset(
    {
        *("text", "blocks", "attachments", "response_type", "replace_original", "delete_original"),
        *("thread_ts", "metadata", "unfurl_links", "unfurl_media", "mrkdwn", "headers"),
    }
)


@dataclass(slots=True)
class ResponseServer:
    """The response_urls of every workspace."""

    workspaces: Mapping[str, Workspace]

    async def handle(self, request: web.Request) -> web.Response:
        """Serves one answer; an address that is unknown, used up or too old is refused with 404."""
        workspace = self.workspaces.get(request.match_info["team"])
        key = request.match_info["key"]
        response = workspace.response_urls.get(key) if workspace is not None else None
        if workspace is None or response is None or time.monotonic() > response.expires_at:
            return web.json_response({"ok": False, "error": "expired_url"}, status=404)
        if response.uses_left < 1:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        try:
            body = as_payload(json.loads(await request.text()))
        except ValueError:
            body = None
        if body is None:
            return web.json_response({"ok": False, "error": "invalid_payload"}, status=400)
        response.uses_left -= 1
        try:
            apply_response(workspace, response, body)
            record("slack response_url: body", body)
        except Refused as refusal:
            return web.json_response(refusal.answer(), status=400)
        return web.json_response({"ok": True})


def apply_response(workspace: Workspace, response: ResponseUrl, body: Payload) -> None:
    """Carries an answer out: a new message, a new content of the original one, or its end. Raises Refused."""
    unknown = set(body) - _FIELDS
    if unknown:
        message = f"[ERROR] invalid additional property: {min(unknown)}"
        raise Refused("invalid_arguments", messages=(message,))
    channel = workspace.channels[response.channel_id]
    original = channel.messages.get(response.message_ts or "")
    if body.get("delete_original"):
        if original is None or not original.is_bot:
            raise Refused("message_not_found")
        previous = message_form(workspace, original)
        workspace.remove_message(original)
        message_events.tell_deleted(workspace, original, previous)
        return
    text, blocks = str(body.get("text") or ""), check_message_blocks(body.get("blocks"))
    attachments = as_payloads(body.get("attachments"))
    if not text and not blocks and not attachments:
        raise Refused("no_text")
    if body.get("replace_original") and original is not None and original.is_bot:
        previous = message_form(workspace, original)
        original.text, original.blocks, original.attachments = text, blocks, attachments
        original.edits += 1
        original.edited_ts = workspace.new_ts()
        workspace.changed(original)
        message_events.tell_changed(workspace, original, previous)
        return
    message = _new_message(workspace, response, text, body)
    message.blocks, message.attachments = blocks, attachments
    workspace.add_message(message)
    message_events.tell_posted(workspace, message)


def _new_message(workspace: Workspace, response: ResponseUrl, text: str, body: Payload) -> Message:
    channel = workspace.channels[response.channel_id]
    thread_ts = body.get("thread_ts") or response.thread_ts
    if thread_ts is not None and thread_ts not in channel.messages:
        raise Refused("thread_not_found")
    is_public = body.get("response_type") == "in_channel"
    return Message(
        ts=workspace.new_ts(),
        channel_id=response.channel_id,
        user_id=workspace.bot.user_id,
        is_bot=True,
        text=text,
        thread_ts=thread_ts,
        visible_to=None if is_public else response.user_id,
    )
