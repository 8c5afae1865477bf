"""The one table from discord.py's errors to ours."""

import json
from types import SimpleNamespace
from typing import Any

import discord
import pytest

from bots.discord.gateway.events import EventHandler
from bots.discord.rest.client import RestClient, translate_error, translating_errors
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnavailable, SurfaceUnclear
from tests.support.narrow import require_type


def answered(status: int, code: int = 0, **headers: str) -> discord.HTTPException:
    response = SimpleNamespace(status=status, reason="", headers=headers)
    kinds = {403: discord.Forbidden, 404: discord.NotFound}
    kind = discord.DiscordServerError if status >= 500 else kinds.get(status, discord.HTTPException)
    return kind(response, {"code": code, "message": "no"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (answered(403, 50013), "50013"),
        (answered(404, 10008), "10008"),
        (answered(400, 50035), "50035"),
        (answered(413), "too_large"),
        (answered(400, 40005), "too_large"),
    ],
)
def test_what_will_not_pass_is_refused_with_discords_code(error, code: str) -> None:
    found = require_type(translate_error(error), SurfaceRefused)
    assert found.code == code


def test_a_refused_token_says_nothing_about_the_request() -> None:
    assert isinstance(translate_error(answered(401)), SurfaceUnavailable)


@pytest.mark.parametrize(
    "error", [answered(500), answered(503), TimeoutError(), ConnectionResetError(), RuntimeError()]
)
def test_what_may_have_been_carried_out_is_unclear(error) -> None:
    assert isinstance(translate_error(error), SurfaceUnclear)


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(answered(500), False), (TimeoutError(), False), (SurfaceRefused("No.", code="c"), False), (KeyError("id"), True)],
)
def test_only_an_error_that_may_be_a_mistake_is_logged(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SurfaceError) as raised, translating_errors():
        raise error
    assert [bool(one.exc_info) for one in caplog.records] == [True] * is_logged
    assert (raised.value is error) is isinstance(error, SurfaceError)


class UnreadableDiscord(discord.Client):
    """A Discord whose answers cannot be parsed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(intents=discord.Intents.none())
        self._error = error
        self.http.request = self.fetch_channel

    async def fetch_channel(self, *_arguments: object, **_more: object) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [json.JSONDecodeError("no JSON", "<html>", 0), TypeError("a page in place of JSON")])
async def test_a_message_whose_look_up_has_an_unreadable_answer_is_not_skipped(error: Exception) -> None:
    client: Any = UnreadableDiscord(error)
    none: Any = None
    rest = RestClient(client.http)
    handler = EventHandler(client, none, rest, none, none, none)
    message: Any = SimpleNamespace(
        id=1, guild=None, channel=discord.PartialMessageable(state=client._connection, id=5, guild_id=1)
    )
    with pytest.raises(SurfaceUnclear):
        await handler.handle_message(message)
    with pytest.raises(SurfaceUnclear):
        await rest.call("GET", "/gateway")


def test_limits_say_how_long_they_last() -> None:
    for error, seconds in (
        (discord.RateLimited(42.5), 42.5),
        (answered(429, **{"Retry-After": "7"}), 7.0),
        (answered(429, **{"Retry-After": "soon"}), 60.0),
    ):
        found = require_type(translate_error(error), SurfaceRateLimited)
        assert found.retry_after_seconds == seconds
