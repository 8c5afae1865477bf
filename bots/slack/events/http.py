"""HTTP mode: signed requests of Slack, checked before a byte of them is read as anything else."""

import hashlib
import hmac
import logging
import time
from urllib.parse import parse_qs

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest

from bots.slack import limits

EVENTS_PATH = "/slack/events"

log = logging.getLogger(__name__)


class HttpEvents:
    """The one route that takes events, clicks and Slack's own checks."""

    def __init__(self, signing_secret: str) -> None:
        self._secret = signing_secret.encode()
        self._bolt: AsyncApp | None = None

    def serve(self, bolt: AsyncApp) -> None:
        self._bolt = bolt

    def stop(self) -> None:
        self._bolt = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answers 200 only for what is stored; 401 unsigned, 503 while the app is not up (Slack delivers again)."""
        raw = await request.read()
        if is_ssl_check(raw):
            return web.Response()
        headers = request.headers
        timestamp = headers.get("X-Slack-Request-Timestamp", "")
        signature = headers.get("X-Slack-Signature", "")
        if not is_signed(raw, timestamp, signature, self._secret, now=time.time()):
            log.warning("slack: a request with a wrong or old signature was refused")
            return web.Response(status=401)
        if self._bolt is None:
            return web.Response(status=503)
        try:
            taken = AsyncBoltRequest(
                body=raw.decode(), query=request.query_string, headers=dict(headers)
            )
        except (ValueError, AttributeError, TypeError, KeyError, IndexError):
            # Bolt looks into the body at once, and expects objects where JSON may have anything.
            return web.Response(status=400)
        return await to_aiohttp_response(await self._bolt.async_dispatch(taken))


def is_signed(raw: bytes, timestamp: str, signature: str, secret: bytes, *, now: float) -> bool:
    """Whether Slack signed the body within the last five minutes; compared in constant time."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > limits.EVENT_AGE_SECONDS_MAX:
        return False
    base = b"v0:" + timestamp.encode() + b":" + raw
    expected = "v0=" + hmac.new(secret, base, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())


def is_ssl_check(raw: bytes) -> bool:
    """Slack's look at the certificate, which is not signed and asks for nothing."""
    return len(raw) < 1000 and parse_qs(raw.decode(errors="replace")).get("ssl_check") == ["1"]
