"""HTTP routes of schedules."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from typing import cast

from aiohttp import web
from pydantic import Field

from bots.web import request_parsing
from bots.web.deps import API_PERSON, DEPS
from bots.web.errors import ApiError
from bots.web.request_parsing import PlaceBody
from core.domain.errors import SurfaceError, ToolError
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.schedules import PROPOSAL_COMMANDS, Schedule, ScheduleAction, Timing, build_commands
from core.domain.threads import Address
from core.tools.schedules import ChangeScheduleParams, RunSchedules, ScheduleTaskParams, change_schedule_by

BY_API = "This came over the HTTP API."
ASKED_THERE = "A card in the chat asks the people there."
_TIMES_SHOWN = 3


class ScheduleBody(ScheduleTaskParams):
    """The parameters of the tool, and the place where the schedule posts."""

    address: PlaceBody = Field(default_factory=PlaceBody)


def routes() -> Sequence[web.RouteDef]:
    return (
        web.get("/api/schedules", list_schedules),
        web.post("/api/schedules", add_schedule),
        web.post("/api/schedules/{schedule_id}/{action:pause|resume|delete|run_now}", change_schedule),
    )


async def list_schedules(request: web.Request) -> web.Response:
    """`GET /api/schedules?cursor=&limit=`: returns the schedules of a place or a person, by their next time."""
    size, after = request_parsing.parse_page_size(request), request_parsing.parse_position(request)
    found = await request.app[DEPS].schedules.store.list_schedules(
        request_parsing.parse_selection(request), after=after, limit=size + 1
    )

    def cursor(one: Schedule) -> str:
        return request_parsing.format_position((one.timing.due_at, one.schedule_id))

    return web.json_response(request_parsing.page_object("schedules", found, size, _schedule_object, cursor))


async def add_schedule(request: web.Request) -> web.Response:
    """`POST /api/schedules`: arms a schedule for threads of the API, or changes the schedule with the `id` in the body.
    In a chat, posts a card on which a person there can arm it."""
    body = await request_parsing.parse_model(request, ScheduleBody)
    params = ScheduleTaskParams.model_validate(body.model_dump(exclude={"address"}, exclude_unset=True))
    deps, here = request.app[DEPS], await _schedules(request, body.address.address, body.id)
    if here.address.thread_key:
        snapshot = await deps.conversations.find(here.address)
        if snapshot is not None:
            here = replace(here, thread_id=snapshot.thread.thread_id, agent_id=snapshot.thread.agent_id)
        elif not here.is_in_chat:
            raise ApiError(404, "thread_not_found", "There is no such thread.")
    elif body.thread == "same":
        raise ApiError(400, "bad_request", "To continue the same thread, name it in the address.")
    try:
        card = here.build_card(params)
    except ToolError as error:
        raise ApiError(400, "bad_schedule", str(error)) from error
    if card and body.id:
        raise ApiError(409, "needs_approval", "In a chat, a person has to agree to a change. Ask for it there.")
    schedule = None if body.id else await deps.schedules.store.find(here.schedule_id(params))
    if schedule is None:
        try:
            schedule = await here.arm_schedule(params, None if card else API_PERSON)
        except ToolError as error:
            raise ApiError(409, "not_scheduled", str(error)) from error
    if schedule.state != "proposed":
        return web.json_response(_schedule_object(schedule), status=201)
    try:
        commands = build_commands(schedule.schedule_id, PROPOSAL_COMMANDS)
        await deps.propose(here.address, f"{BY_API} {card}", commands, schedule.task)
    except SurfaceError:
        await deps.schedules.store.delete(schedule.schedule_id, by=API_PERSON)
        raise
    return web.json_response(_schedule_object(schedule), status=202)


async def change_schedule(request: web.Request) -> web.Response:
    """`POST /api/schedules/{schedule_id}/{action}`: pauses, resumes, deletes or runs a schedule. Returns the changed
    schedule, or null if it was deleted. If the change needs approval, only posts a card in the schedule's chat."""
    ports, schedule_id = request.app[DEPS], request.match_info["schedule_id"]
    deps = ports.schedules
    found = await deps.store.find(schedule_id)
    if found is None:
        raise ApiError(404, "schedule_not_found", "There is no such schedule.")
    here = await _schedules(request, found.address, schedule_id)
    action = cast(ScheduleAction, request.match_info["action"])
    card = here.build_card(ChangeScheduleParams(id=found.schedule_id, action=action))
    if card and (found.state, action) != ("proposed", "delete"):
        label, word = action.replace("_", " ").capitalize(), action.removesuffix("_now")
        await ports.propose(found.address, f"{BY_API} {card}", build_commands(schedule_id, {label: word}), found.task)
        return web.json_response({"message": ASKED_THERE, "schedule": _schedule_object(found)}, status=202)
    try:
        message = await change_schedule_by(API_PERSON, found, action, deps.store, deps.limits)
    except ToolError as error:
        raise ApiError(409, "not_changed", str(error)) from error
    after = await deps.store.find(schedule_id)
    return web.json_response({"message": message, "schedule": after and _schedule_object(after)})


async def _schedules(request: web.Request, address: Address, schedule_id: str) -> RunSchedules:
    """Returns the state of the schedule tools for a run at the address that the API requests now."""
    ports = request.app[DEPS]
    known = await ports.schedules.store.find(schedule_id) if schedule_id else None
    return RunSchedules(
        store=ports.schedules.store,
        limits=ports.schedules.limits,
        request_key=f"{address} {request_parsing.parse_idempotency_key(request) or new_id()}",
        address=address,
        thread_id=None,
        agent_id=None,
        requester=API_PERSON,
        requested_at=datetime.now(UTC),
        time_zone=ports.time_zone,
        known=(known,) if known else (),
    )


def _schedule_object(schedule: Schedule) -> JsonObject:
    timing = schedule.timing
    return {
        "schedule_id": schedule.schedule_id,
        **asdict(schedule.address),
        "thread_id": schedule.thread_id,
        "agent_id": schedule.agent_id,
        "task": schedule.task,
        "rule": (isinstance(timing, Timing) and timing.rule) or None,  # the rule of a hook contains its secret
        "rule_in_words": schedule.rule_in_words,
        "time_zone": timing.time_zone,
        "next_times": [one.due_at.isoformat() for one in islice(timing.following(), _TIMES_SHOWN)],
        "state": schedule.state,
        "problem": schedule.problem or None,
        "owner": {"person_id": schedule.owner.person_id, "name": schedule.owner.name},
        "armed_at": schedule.armed_at.isoformat(),
    }
