"""The Events API over HTTP: signed requests to the app, as events, commands and interactions."""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

import aiohttp

from simulator.slack.events.delivery import Delivery
from simulator.slack.events.payloads import NotAcknowledged, Payload, as_payload


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The value of X-Slack-Signature."""
    base = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


@dataclass(slots=True)
class HttpEvents:
    """Posts every delivery to one address."""

    url: str
    signing_secret: str
    _session: aiohttp.ClientSession | None = None

    def is_connected(self) -> bool:
        return True

    async def wait_until_connected(self, seconds: float) -> bool:
        """HTTP has no connection to wait for."""
        return True

    async def send(self, delivery: Delivery, *, ack_seconds: float) -> Payload | None:
        """The JSON body of a 200 answer within the time; anything else is no acknowledgement."""
        content_type, body = _encoded(delivery)
        headers = {"Content-Type": content_type}
        if delivery.attempt:
            headers["X-Slack-Retry-Num"] = str(delivery.attempt)
            headers["X-Slack-Retry-Reason"] = delivery.reason
        status, answer_headers, answer = await self._post(body, headers, ack_seconds)
        if status != 200:
            no_retry = answer_headers.get("X-Slack-No-Retry") == "1"
            raise NotAcknowledged("no_retry" if no_retry else "http_error")
        return _answer(answer)

    async def verify(self) -> bool:
        """Sends url_verification; whether the app gave the challenge back."""
        challenge = secrets.token_urlsafe(24)
        body: Payload = {"type": "url_verification", "challenge": challenge, "token": "simulated"}
        headers = {"Content-Type": "application/json"}
        status, _, answer = await self._post(json.dumps(body).encode(), headers, 3.0)
        text = answer.decode(errors="replace").strip()
        given = _answer(answer)
        return status == 200 and (text == challenge or (given or {}).get("challenge") == challenge)

    async def _post(self, body: bytes, headers: dict[str, str], seconds: float) -> tuple[int, dict[str, str], bytes]:
        timestamp = str(int(time.time()))
        headers["X-Slack-Request-Timestamp"] = timestamp
        headers["X-Slack-Signature"] = sign(self.signing_secret, timestamp, body)
        headers["User-Agent"] = "Slackbot 1.0 (+https://api.slack.com/robots)"
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.post(self.url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return response.status, dict(response.headers), await response.read()
        except TimeoutError:
            raise NotAcknowledged("http_timeout") from None
        except aiohttp.ClientError:
            raise NotAcknowledged("connection_failed") from None

    async def close(self) -> None:
        """Closes the connections to the app."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _encoded(delivery: Delivery) -> tuple[str, bytes]:
    form = "application/x-www-form-urlencoded"
    match delivery.kind:
        case "events_api":
            return "application/json", json.dumps(delivery.payload).encode()
        case "interactive":
            return form, urlencode({"payload": json.dumps(delivery.payload)}).encode()
        case "slash_commands":
            return form, urlencode(delivery.payload).encode()


def _answer(body: bytes) -> Payload | None:
    if not body.strip():
        return None
    try:
        answer = cast(object, json.loads(body))
    except ValueError:
        return {"text": body.decode(errors="replace")}
    return as_payload(answer)
