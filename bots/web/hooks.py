"""HTTP routes of hooks: URLs that other programs call, so that the agent starts a task with the data that they send."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from bots.inbound.hook_calls import (
    REPEAT_SECONDS,
    TITLE_CHARACTERS_MAX,
    MalformedHookBody,
    is_authentic,
    parse_hook_call,
)
from bots.inbound.schedules import ScheduleRunner
from bots.web.errors import ApiError
from core.domain.outside_text import single_line
from core.domain.schedules import Schedule, Trigger, TriggerEvent
from core.tools.schedules import is_hook

UNSIGNED = "There is no such hook, or the secret or signature is wrong."
RETRY_AFTER_SECONDS = 600

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Handles calls of hooks."""

    runner: ScheduleRunner

    def routes(self) -> Sequence[web.RouteDef]:
        return (web.post("/hooks/{name}", self.receive_call), web.post("/hooks/{name}/{secret}", self.receive_call))

    async def receive_call(self, request: web.Request) -> web.Response:
        """`POST /hooks/{name}`: stores the call and starts the hook's task with it. Returns 202, or 200 if the same
        call was stored before."""
        hook = await self.runner.schedules.find(request.match_info["name"])
        headers = {name.lower(): value for name, value in request.headers.items()}
        body, now, given = await request.read(), time.time(), request.match_info.get("secret", "")
        trigger = hook.timing if hook and is_hook(hook) else None
        if hook is None or not isinstance(trigger, Trigger):
            raise ApiError(401, "unsigned", UNSIGNED)
        if not is_authentic(trigger.secret, headers, body, url_secret=given, now=now):
            log.info("a call of the hook %s was refused: its secret or signature is wrong", hook.schedule_id)
            raise ApiError(401, "unsigned", UNSIGNED)
        try:
            call = parse_hook_call(headers, body, task=hook.task, group_path=trigger.pattern)
        except MalformedHookBody as error:
            raise ApiError(400, "bad_json", str(error)) from error
        if call.is_test:
            return web.json_response({"status": "ready"})
        event = TriggerEvent(
            kind="hook",
            address=hook.address,
            key=call.key,
            repeat_seconds=None if call.is_named else REPEAT_SECONDS,
            group=call.group,
            title=f"{call.title}\n{single_line(call.task, TITLE_CHARACTERS_MAX)}",
            body=call.text,
        )
        match await self.runner.fire_for_event(hook, event):
            case None:
                return web.json_response({"status": "accepted"}, status=202)
            case "duplicate":
                return web.json_response({"status": "duplicate"})
            case "too_often":
                retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
                raise ApiError(429, "too_often", "This hook was called too often within an hour.", headers=retry)
            case "gone" | "failing":
                raise ApiError(409, "paused", "This hook is paused, or its last tasks failed.")


def describe_hook(hook: Schedule, public_url: str) -> str:
    """Returns instructions for calling the hook, as Markdown."""
    if not public_url:
        return "Set THREADHAND_PUBLIC_URL to an address at which other programs reach me; the hook is below it."
    address = f"{public_url.rstrip('/')}/hooks/{quote(hook.schedule_id)}"
    secret = hook.timing.secret if isinstance(hook.timing, Trigger) else ""
    return (
        f"Address: `{address}`\nSecret: `{secret}`\n"
        f"A program that cannot sign calls `{address}/{secret}` instead. Whoever knows the secret can begin this task."
    )
