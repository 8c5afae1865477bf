"""The arguments of a Web API call, from the query, a form or a JSON body."""

import json
from typing import cast

from aiohttp import web

from simulator.slack.events.payloads import Payload, Refused

_JSON_VALUES = {
    "attachments": "invalid_attachments",
    "blocks": "invalid_blocks_format",
    "chunks": "invalid_chunks",
    "files": "invalid_arguments",
    "loading_messages": "invalid_arguments",
    "manifest": "invalid_manifest",
    "metadata": "invalid_metadata_format",
    "prompts": "invalid_arguments",
    "view": "invalid_arguments",
}


async def read_arguments(request: web.Request) -> Payload:
    """Every argument by name. Raises Refused for a body that cannot be read."""
    found: Payload = dict(request.query)
    if request.method == "POST" and request.can_read_body:
        if request.content_type == "application/json":
            found |= _read_json(await request.text())
        elif request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
            form = await request.post()
            found |= {key: value for key, value in form.items() if isinstance(value, str)}
        elif await request.read():
            raise Refused("invalid_post_type")
    arguments = {key: value for key, value in found.items() if value is not None}
    for name, code in _JSON_VALUES.items():
        if isinstance(arguments.get(name), str):
            arguments[name] = _decode(arguments[name], code)
    return arguments


def _read_json(text: str) -> Payload:
    if not text.strip():
        return {}
    try:
        body = json.loads(text)
    except ValueError:
        raise Refused("invalid_json") from None
    if not isinstance(body, dict):
        raise Refused("json_not_object")
    return cast(Payload, body)


def _decode(text: str, code: str) -> object:
    if not text:
        return None
    try:
        return cast(object, json.loads(text))
    except ValueError:
        raise Refused(code) from None
