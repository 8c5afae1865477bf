"""Schedules and hooks over HTTP: what is taken, what is refused, and that no stranger breaks the server."""

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bots.bootstrap.platforms import Platforms
from bots.inbound.hook_calls import new_hook_secret
from bots.inbound.schedules import ScheduleRunner
from bots.web.app import serve_app, web_app
from bots.web.hooks import Hooks
from core.domain.errors import SurfaceRefused
from core.domain.schedules import DEFAULT_LIMITS, EVENTS_PER_HOUR_MAX, Trigger
from core.domain.threads import Address
from storage.sql.stores.schedules import SqlSchedules
from tests.integration.bots.receiver_stage import ALICE, save_schedule
from tests.integration.bots.web.test_threads import only_message
from tests.support.web_stage import Stage, staged

DAILY = {"task": "Post the news", "when": "RRULE:FREQ=DAILY;BYHOUR=9;BYMINUTE=0", "time_zone": "Europe/Berlin"}
CHANNEL = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="")
IN_CHAT = {"platform": "slack", "workspace_id": "T1", "channel_id": "C1"}


async def armed(stage: Stage, **changes: Any) -> dict[str, Any]:
    return await stage.json("POST", "/api/schedules", json={**DAILY, **changes}, status=201)


def runner(stage: Stage) -> ScheduleRunner:
    async def unwanted(_: object) -> bool:
        raise AssertionError("the API's own threads need no access")

    return ScheduleRunner(
        schedules=SqlSchedules(stage.database),
        conversations=stage.ports.conversations,
        chats=Platforms(file_sources={}),
        admits=unwanted,
        receive=stage.ports.receive,
        serves=lambda platform: platform == "api",
        closed_reasons=lambda _: {},
    )


async def test_a_schedule_of_the_api_is_armed_at_once(stage: Stage) -> None:
    made = await armed(stage)
    assert (made["platform"], made["thread_key"], made["state"]) == ("api", "", "active")
    assert (made["rule_in_words"], made["time_zone"]) == ("every day at 09:00", "Europe/Berlin")
    assert made["owner"] == {"person_id": "api", "name": "HTTP API"}
    first, second, _ = map(datetime.fromisoformat, made["next_times"])
    assert timedelta(hours=22) < second - first < timedelta(hours=26)
    assert await stage.json("GET", "/api/schedules") == {"schedules": [made], "next_cursor": None}


async def test_a_schedule_can_continue_a_thread_and_be_changed(stage: Stage) -> None:
    thread_id = await stage.thread()
    thread = await stage.json("GET", f"/api/thread/{thread_id}")
    place = {"address": {"thread_key": thread["thread_key"]}, "thread": "same"}
    made = await armed(stage, **place)
    assert (made["thread_id"], made["thread_key"]) == (thread_id, thread["thread_key"])
    changed = await armed(stage, id=made["schedule_id"], task="Post no news", **place)
    assert changed.items() >= {"schedule_id": made["schedule_id"], "task": "Post no news"}.items()
    assert changed["next_times"] == made["next_times"]
    assert len((await stage.json("GET", "/api/schedules"))["schedules"]) == 1


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"when": "tomorrow"}, 400, "bad_schedule"),
        ({"when": "2020-01-01T09:00"}, 400, "bad_schedule"),
        ({"when": "RRULE:FREQ=MINUTELY"}, 400, "bad_schedule"),
        ({"time_zone": "Mars/Olympus"}, 400, "bad_schedule"),
        ({"task": " "}, 400, "bad_request"),
        ({"task": "x" * 2001}, 400, "bad_request"),
        ({"task": "\ud800"}, 400, "bad_request"),
        ({"task": None}, 400, "bad_request"),
        ({"thread": "same"}, 400, "bad_request"),
        ({"address": {"workspace_id": "other"}}, 400, "bad_request"),
        ({"address": {"platform": "teams"}}, 400, "bad_request"),
        ({"address": {"thread_key": "x" * 201}}, 400, "bad_request"),
        ({"address": {"thread_key": "unknown"}, "thread": "same"}, 404, "thread_not_found"),
        ({"id": "unknown"}, 409, "not_scheduled"),
        ({"address": IN_CHAT, "thread": "same"}, 400, "bad_request"),
        ({"address": IN_CHAT, "task": "x" * 1500}, 400, "bad_schedule"),
        ({"address": IN_CHAT, "when": "ON:APP A1"}, 400, "bad_schedule"),
        ({"address": IN_CHAT, "id": "unknown"}, 409, "needs_approval"),
    ],
)
async def test_what_cannot_be_scheduled_is_refused_in_words(
    stage: Stage, changes: dict[str, Any], status: int, code: str
) -> None:
    answer = await stage.json("POST", "/api/schedules", json={**DAILY, **changes}, status=status)
    assert answer["error"] == code, answer
    assert answer["message"].endswith(".")
    assert (await stage.json("GET", "/api/schedules"))["schedules"] == []


async def test_a_schedule_in_a_chat_is_proposed_on_a_card(stage: Stage) -> None:
    body = {**DAILY, "address": {**IN_CHAT, "thread_key": "1.1"}, "thread": "same"}
    for at in (1, 2):  # a client that got no answer asks again
        made = await stage.json("POST", "/api/schedules", json=body, headers={"Idempotency-Key": "k"}, status=202)
        assert (made["state"], made["thread_key"], len(stage.posted)) == ("proposed", "1.1", at)
    place, card = stage.posted[0]
    assert place == replace(CHANNEL, thread_key="1.1")
    assert card.startswith("This came over the HTTP API. May I do this?")
    assert f"'Schedule it': 'schedules resume {made['schedule_id']}'" in card
    assert "Schedule this: every day at 09:00, next " in card
    assert "(Europe/Berlin), in this thread, with task `Post the news`" in card
    assert len((await stage.json("GET", "/api/schedules"))["schedules"]) == 1
    path = f"/api/schedules/{made['schedule_id']}"
    assert (await stage.json("POST", f"{path}/pause", status=409))["error"] == "not_changed"
    assert (await stage.json("POST", f"{path}/delete"))["schedule"] is None


async def test_a_schedule_whose_card_the_chat_does_not_take_is_not_proposed(tmp_path: Path) -> None:
    async def propose(*_: object) -> str:
        raise SurfaceRefused("the channel is gone", code="channel_not_found")

    async with staged(tmp_path, propose=propose) as stage:
        answer = await stage.json("POST", "/api/schedules", json={**DAILY, "address": IN_CHAT}, status=409)
        assert answer["error"] == "chat_refused"
        assert (await stage.json("GET", "/api/schedules"))["schedules"] == []


async def test_a_schedule_is_paused_resumed_run_and_deleted(stage: Stage) -> None:
    made = await armed(stage)
    path = f"/api/schedules/{made['schedule_id']}"
    assert (await stage.json("POST", f"{path}/pause"))["schedule"]["state"] == "paused"
    assert (await stage.json("POST", f"{path}/resume"))["schedule"]["state"] == "active"
    assert (await stage.json("POST", f"{path}/run_now"))["schedule"]["next_times"] == made["next_times"]
    await runner(stage).fire_due_schedules()
    ((thread,),) = [(await stage.json("GET", "/api/threads"))["threads"]]
    assert (thread["platform"], thread["newest_run_status"]) == ("api", "queued")
    assert only_message(stage).text.endswith("Do it:\nPost the news")
    assert (await stage.json("POST", f"{path}/delete"))["schedule"] is None
    assert (await stage.json("POST", f"{path}/pause", status=404))["error"] == "schedule_not_found"
    await stage.json("POST", f"{path}/explode", status=404)


async def test_a_schedule_of_a_chat_can_only_be_paused_without_a_click(stage: Stage) -> None:
    schedule_id = await save_schedule(stage.database, "chat", CHANNEL)
    path = f"/api/schedules/{schedule_id}"
    before = await stage.json("GET", "/api/schedules")
    for action, command in (
        ("resume", "{'Resume': 'schedules resume chat'}"),
        ("delete", "{'Delete': 'schedules delete chat'}"),
        ("run_now", "{'Run now': 'schedules run chat'}"),
    ):
        await stage.json("POST", f"{path}/{action}", status=202)
        place, card = stage.posted[-1]
        assert place == CHANNEL
        assert "May I do this?" in card
        assert "the schedule “Say it” (once)" in card
        assert command in card
    assert await stage.json("GET", "/api/schedules") == before
    shown = (await stage.json("POST", f"{path}/pause"))["schedule"]
    assert (shown["state"], shown["owner"]["name"]) == ("paused", "alice")


async def test_schedules_are_listed_in_pages_by_place_and_person(stage: Stage) -> None:
    ids = [
        await save_schedule(stage.database, "chat", CHANNEL),
        (await armed(stage, when="PT3H"))["schedule_id"],
        await save_schedule(stage.database, "later", CHANNEL),
    ]

    async def listed(**query: str) -> list[str]:
        return [one["schedule_id"] for one in (await stage.json("GET", "/api/schedules", params=query))["schedules"]]

    assert await listed() == [ids[0], ids[2], ids[1]]
    assert await listed(platform="slack", channel_id="C1") == [ids[0], ids[2]]
    assert await listed(person_id="api") == [ids[1]]
    page = await stage.json("GET", "/api/schedules", params={"limit": "2"})
    assert await listed(cursor=page["next_cursor"]) == [ids[1]]
    await stage.json("GET", "/api/schedules", params={"cursor": "x"}, status=400)


SECRET = new_hook_secret()


@asynccontextmanager
async def hooked(stage: Stage) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of a server with a hook in the API's own place."""
    schedules = runner(stage)
    await save_schedule(stage.database, "incidents", CHANNEL)
    found = await schedules.schedules.find("incidents")
    assert found is not None
    place = replace(CHANNEL, platform="api", workspace_id="api", channel_id="api")
    hook = replace(found, address=place, timing=Trigger(kind="hook", secret=SECRET))
    assert await schedules.schedules.save(hook, DEFAULT_LIMITS, by=ALICE, change="changed")
    app = web_app(stage.ports)
    app.add_routes(Hooks(runner=schedules).routes())
    async with (
        serve_app(app, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield http
    await schedules.close()


async def status(http: aiohttp.ClientSession, path: str, body: bytes = b"{}", **headers: str) -> int:
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(path, data=io.BytesIO(body), headers=named) as response:
        content = await response.json()
        assert ("status" in content) is (response.status < 300)
        return response.status


async def test_a_signed_call_is_taken_once_and_begins_a_run(stage: Stage) -> None:
    async with hooked(stage) as http:
        path = f"/hooks/incidents/{SECRET}"
        assert await status(http, path, b'{"title": "Disk full"}') == 202
        assert await status(http, path, b'{"title": "Disk full"}') == 200
        assert await status(http, "/hooks/incidents", b'{"title": "Other"}', Authorization=f"Bearer {SECRET}") == 202
        assert await status(http, path, x_github_event="ping") == 200
        refused = {
            "/hooks/incidents": b"{}",
            "/hooks/incidents/whsec_x": b"{}",
            f"/hooks/other/{SECRET}": b"{}",
            "/hooks/%00/%0a": b"{}",
        }
        assert {path: await status(http, path, body) for path, body in refused.items()} == dict.fromkeys(refused, 401)
        assert await status(http, path, b"no json") == 400
        assert await status(http, path, b"[" + b"1," * 600_000 + b"1]") == 413


async def test_a_paused_hook_and_one_that_is_called_too_often_say_so(stage: Stage) -> None:
    async with hooked(stage) as http:
        path = f"/hooks/incidents/{SECRET}"
        for number in range(EVENTS_PER_HOUR_MAX):
            assert await status(http, path, json.dumps({"title": number}).encode()) == 202
        assert await status(http, path, b'{"title": "one more"}') == 429
        assert await runner(stage).schedules.pause_schedule("incidents", by=ALICE)
        assert await status(http, path, b'{"title": "another"}') == 409


async def test_a_schedule_is_no_hook(stage: Stage) -> None:
    async with hooked(stage) as http:
        await save_schedule(stage.database, "daily", CHANNEL)
        assert await status(http, f"/hooks/daily/{SECRET}") == 401
