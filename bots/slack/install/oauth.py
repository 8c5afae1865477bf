"""Slack's OAuth: a code or a refresh token for a bot token."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bots.slack.events.payload import number, text
from bots.slack.install.token_cipher import BotToken
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceRefused, SurfaceUnclear
from core.domain.messages import JsonObject
from core.failpoints import Failpoint

EXCHANGE = Failpoint("slack.oauth")


class _Answer(Protocol):
    data: object


class _Calls(Protocol):
    """The SDK's method with its types; the secrets go in the body, never in the address."""

    async def api_call(self, api_method: str, *, data: dict[str, str]) -> _Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The app as Slack's OAuth knows it. `client` carries no token."""

    client: SlackClient
    client_id: str
    client_secret: str

    async def exchange(self, code: str, redirect_uri: str) -> JsonObject:
        """Slack's answer for the code of an installation. Raises SurfaceRefused or SurfaceUnclear."""
        return await self._call({"code": code, "redirect_uri": redirect_uri})

    async def refresh(self, refresh_token: str) -> JsonObject:
        """Slack's answer for a refresh token, which holds once. Raises as `exchange`."""
        return await self._call({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def _call(self, arguments: Mapping[str, str]) -> JsonObject:
        calls = cast(_Calls, self.client.web)
        client = {"client_id": self.client_id, "client_secret": self.client_secret}
        try:
            with EXCHANGE:
                answer = await calls.api_call("oauth.v2.access", data={**client, **arguments})
        except SlackApiError as error:
            code = text(_object(cast(_Answer, error.response).data), "error")
            raise SurfaceRefused(f"Slack refused ({code or 'unreadable'})", code=code) from error
        except (TimeoutError, aiohttp.ClientError, OSError, SlackClientError, ValueError) as error:
            raise SurfaceUnclear(f"Slack gave no answer ({type(error).__name__})") from error
        return _object(answer.data)


def _object(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def token_in(answer: JsonObject) -> BotToken:
    """The bot token of an answer; empty where there is none."""
    seconds = number(answer, "expires_in")
    return BotToken(
        access_token=text(answer, "access_token"),
        refresh_token=text(answer, "refresh_token"),
        expires_at=time.time() + seconds if seconds else None,
    )
