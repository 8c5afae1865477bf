"""HTTP mode: signed requests, retries with their headers, forms for interactivity."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from core import http_shutdown
from simulator.slack import SlackSettings, SlackSimulator, SlashCommand
from tests.integration.simulator.slack.test_interactions import ASK
from tests.integration.simulator.slack.test_web_api import general
from tests.integration.simulator.slack.waiting import seen, until


class Receiver:
    """An HTTP server that answers as it is told to."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if request.content_type == "application/json":
            challenge = json.loads(body).get("challenge")
            if challenge:
                return web.json_response({"challenge": challenge})
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, headers=self.headers)


@asynccontextmanager
async def receiving(handle: Any) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_post("/slack/events", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    finally:
        await http_shutdown.shut_down_server(runner)


def settings(url: str) -> SlackSettings:
    return SlackSettings(
        events_url=url,
        rate_scale=0,
        retry_seconds=(0.0, 0.01, 0.02),
        subscriptions=("message.channels",),
        commands=(SlashCommand(name="/agent", description="Ask"),),
    )


async def test_an_event_is_signed_and_repeated_until_it_is_taken() -> None:
    receiver = Receiver()
    receiver.statuses = [500, 503, 200]
    async with receiving(receiver.handle) as url, SlackSimulator(settings=settings(url)) as slack:
        await slack.say("alice", "general", "hi")
        await until(lambda: len(receiver.requests) == 3)
        verifier = SignatureVerifier(slack.settings.signing_secret)
        for number, (headers, body) in enumerate(receiver.requests):
            assert verifier.is_valid_request(body, headers)
            assert headers.get("X-Slack-Retry-Num") == (str(number) if number else None)
            assert headers.get("X-Slack-Retry-Reason") == ("http_error" if number else None)
        assert json.loads(receiver.requests[0][1])["event"]["text"] == "hi"
        assert slack.http_events is not None
        assert await slack.http_events.verify()


async def test_a_receiver_can_ask_for_no_retries() -> None:
    receiver = Receiver()
    receiver.statuses = [500, 200]
    receiver.headers = {"X-Slack-No-Retry": "1"}
    async with receiving(receiver.handle) as url, SlackSimulator(settings=settings(url)) as slack:
        await slack.say("alice", "general", "hi")
        await slack.say("alice", "general", "next")
        await until(lambda: len(receiver.requests) == 2)
        texts = [json.loads(body)["event"]["text"] for _, body in receiver.requests]
        assert texts == ["hi", "next"]


async def test_bolt_takes_events_commands_and_clicks_over_http() -> None:
    holder: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.Response:
        from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request

        response = await holder["app"].async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(response)

    heard: list[str] = []
    async with receiving(handle) as url, SlackSimulator(settings=settings(url)) as slack:
        client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        app = AsyncApp(client=client, signing_secret=slack.settings.signing_secret)
        holder["app"] = app

        @app.event("message")
        async def _(event: dict[str, Any]) -> None:
            heard.append(event["text"])

        @app.command("/agent")
        async def _(ack: Any, body: dict[str, Any]) -> None:
            heard.append(body["text"])
            await ack("on it")

        @app.action("yes")
        async def _(ack: Any, action: dict[str, Any]) -> None:
            heard.append(action["value"])
            await ack()

        await slack.say("alice", "general", "hi")
        await until(lambda: heard == ["hi"])
        await slack.command("alice", "general", "agent", {"text": "run"})
        posted = await client.chat_postMessage(channel=general(slack), text="a", blocks=[ASK])
        await slack.press("bob", general(slack), posted["ts"], "ask/yes")
        await until(lambda: heard == ["hi", "run", "1"])
        assert seen(slack).messages[1].visible_to == "alice"


async def test_a_wrong_signature_is_not_taken_by_bolt() -> None:
    holder: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.Response:
        from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request

        response = await holder["app"].async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(response)

    async with receiving(handle) as url, SlackSimulator(settings=settings(url)) as slack:
        client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        holder["app"] = AsyncApp(client=client, signing_secret=slack.settings.signing_secret)
        posted = await client.chat_postMessage(channel=general(slack), text="a", blocks=[ASK])
        assert slack.http_events is not None
        slack.http_events.skew_seconds = -600
        with pytest.raises(TimeoutError, match="http_error"):
            await slack.press("bob", general(slack), posted["ts"], "ask/yes")
