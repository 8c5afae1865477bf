"""HTTP mode: what Slack signed is taken and acknowledged once stored; everything else is refused."""

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bots.inbound.actions import UserAction
from bots.slack.app import SlackApp
from core.domain.actions import AskAnswered
from simulator.slack import SlackSimulator
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, started
from tests.support.narrow import require_type
from tests.support.web import serve_http
from tests.unit.bots.slack.events.test_parse import fixture

SECRET = "shh"


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256)
    return {
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": f"v0={digest.hexdigest()}",
        "Content-Type": "application/json",
    }


def event(text: str = "<@U0> hello", **more: str) -> bytes:
    """A direct message, so that it needs no mention of the simulated bot."""
    inner = {"type": "message", "user": "U1", "text": text, "ts": "1700000000.000100"}
    inner |= {"channel": "D1", "channel_type": "im", **more}
    return json.dumps({"type": "event_callback", "team_id": "T0SIM0001", "event": inner}).encode()


@pytest.fixture
async def http_app(slack: SlackSimulator, receiver: RecordingReceiver) -> AsyncIterator[SlackApp]:
    async with started(slack, signing_secret=SECRET, receive=receiver.receive) as app:
        yield app


@asynccontextmanager
async def served(app: SlackApp) -> AsyncIterator[URL]:
    """The address at which Slack tells the app of events."""
    application = web.Application()
    application.add_routes(app.http_routes())
    async with serve_http(application) as origin:
        yield URL(f"{origin}/slack/events")


@pytest.fixture
async def url(http_app: SlackApp) -> AsyncIterator[URL]:
    async with served(http_app) as url:
        yield url


async def send(url: URL, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_what_could_not_be_stored_is_not_acknowledged(url: URL, receiver: RecordingReceiver):
    receiver.failures = 1
    body = event()
    assert (await send(url, body, signed(body)))[0] == 500
    assert (await send(url, body, {**signed(body), "X-Slack-Retry-Num": "1"}))[0] == 200
    assert len(receiver.taken) == 1


@pytest.mark.parametrize(
    "forged",
    [
        dict,
        lambda: signed(event("<@U0> other")),
        lambda: signed(event(), secret="guess"),
        lambda: signed(event(), at=time.time() - 400),
        lambda: signed(event(), at=time.time() + 400),
        lambda: {**signed(event()), "X-Slack-Signature": "v0=é"},
        lambda: {**signed(event()), "X-Slack-Request-Timestamp": "soon"},
        lambda: {**signed(event()), "X-Slack-Request-Timestamp": "-1"},
    ],
)
async def test_a_wrong_signature_is_refused(
    url: URL, receiver: RecordingReceiver, forged: Callable[[], dict[str, str]]
):
    assert (await send(url, event(), forged()))[0] == 401
    assert receiver.calls == 0


async def test_what_strangers_write_is_not_parsed(slack: SlackSimulator, receiver: RecordingReceiver):
    """No text, and nobody whom they mention, is looked at before they have access."""

    async def nobody(_action: UserAction) -> bool:
        return False

    alice = slack.member("alice")
    options = {"signing_secret": SECRET, "receive": receiver.receive, "admits": nobody}
    async with started(slack, **options) as app, served(app) as url:
        body = event(" " * 39_000 + "<@U7> agent:coder hello", user=alice.user_id)
        assert (await send(url, body, signed(body)))[0] == 200
    message = await receiver.message()
    assert (message.text, message.agent_id, message.is_addressed) == ("", None, True)
    assert message.person.person_id == alice.user_id


async def test_the_check_of_the_certificate_is_answered(url: URL):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await send(url, b"token=x&ssl_check=1", form))[0] == 200


async def test_a_click_comes_as_a_form(url: URL, receiver: RecordingReceiver):
    click = fixture("button_pressed")
    for team_id in ("T0SIM0001", "T0ELSEWHERE"):
        body = urlencode({"payload": json.dumps({**click, "team": {"id": team_id}})}).encode()
        headers = {**signed(body), "Content-Type": "application/x-www-form-urlencoded"}
        assert (await send(url, body, headers))[0] == 200
    (answer,) = receiver.taken
    assert require_type(answer, AskAnswered).address.workspace_id == "T0SIM0001"


async def test_before_the_start_and_after_the_end_slack_is_asked_to_come_again(
    url: URL, http_app: SlackApp, receiver: RecordingReceiver
):
    await http_app.close()
    body = event()
    assert (await send(url, body, signed(body)))[0] == 503
    assert receiver.calls == 0
