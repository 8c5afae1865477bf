"""Interactions: what a person's click, command or typing sends, what may be answered, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.tasks import spawn
from simulator.discord.json_reading import Json
from tests.integration.simulator.discord.bot import Rest
from tests.integration.simulator.discord.socket import opened
from tests.integration.simulator.discord.test_rest import GENERAL

GO: Json = {"type": 1, "components": [{"type": 2, "style": 1, "label": "Go", "custom_id": "go"}]}


@asynccontextmanager
async def heard(rest: Rest, act: Any) -> AsyncIterator[tuple[asyncio.Task[Any], Json, str, str]]:
    """Yields what a person does, the interaction that the bot hears of it, and the paths to answer at."""
    async with opened(rest.simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        acting = spawn(act, name="a person acts")
        told = await socket.event("INTERACTION_CREATE")
        yield (acting, told, f"/interactions/{told['id']}/{told['token']}/callback", f"/webhooks/1001/{told['token']}")


async def press(rest: Rest) -> tuple[str, Any]:
    _, message = await rest("POST", GENERAL, {"content": "press", "components": [GO]})
    return message["id"], rest.simulator.press("alice", "4001", message["id"], "go")


@pytest.mark.parametrize("comes_expired", [False, True])
async def test_an_answer_that_comes_late_is_refused_and_the_person_is_told(rest: Rest, comes_expired: bool) -> None:
    rest.simulator.settings.answer_seconds = 0.3 if comes_expired else 0.05
    if comes_expired:
        rest.simulator.misbehave("expire_trigger")
    _, pressing = await press(rest)
    async with heard(rest, pressing) as (acting, _told, callback, _):
        if not comes_expired:
            with pytest.raises(TimeoutError):
                await acting
        assert (await rest("POST", callback, {"type": 6}, token=None))[1]["code"] == 10062
        if comes_expired:
            with pytest.raises(TimeoutError):
                await acting


async def test_one_answer_is_taken_and_those_that_make_no_sense_are_refused(rest: Rest) -> None:
    message_id, pressing = await press(rest)
    async with heard(rest, pressing) as (acting, told, callback, hook):
        conversation = [
            (callback, {"type": 1}, 50035),
            (callback, {"type": 8}, 50035),
            (callback, {"type": 4, "data": {}}, 50006),
            (callback, {"type": 4, "data": {"content": "x" * 2001}}, 50035),
            (callback, {"type": 9, "data": {"title": "x"}}, 50035),
            (hook, {"content": "early"}, 10015),
            (callback.replace(str(told["id"]), "1"), {"type": 6}, 10062),
            (callback, {"type": 7, "data": {"content": "pressed", "components": []}}, None),
            (callback, {"type": 4, "data": {"content": "again"}}, 40060),
        ]
        for path, body, code in conversation:
            _, answer = await rest("POST", path, body, token=None)
            assert (answer and answer["code"]) == code, body
        await acting
        original = (await rest("GET", f"{hook}/messages/@original", token=None))[1]
        assert (original["id"], original["content"]) == (message_id, "pressed")
        assert (await rest("GET", f"{hook}/messages/1", token=None))[1]["code"] == 10008
        rest.simulator.settings.token_seconds = 0
        assert (await rest("POST", hook, {"content": "late"}, token=None))[1]["code"] == 50027
    with pytest.raises(ValueError, match="gone"):
        await rest.simulator.press("alice", "4001", message_id, "go")
