"""HTTP mode: signed requests, retries with their headers, forms for interactivity."""

import json
from urllib.parse import parse_qs

from aiohttp import web
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator, SlashCommand
from tests.integration.simulator.slack.test_interactions import ASK
from tests.integration.simulator.slack.test_web_api import general
from tests.support.waiting import until
from tests.support.web import serve_http


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


def settings(url: str) -> SlackSettings:
    return SlackSettings(
        events_url=f"{url}/slack/events",
        rate_scale=0,
        retry_seconds=(0.0, 0.01, 0.02),
        subscriptions=("message.channels",),
        commands=(SlashCommand(name="/agent", description="Ask"),),
    )


async def test_an_event_is_signed_and_repeated_until_it_is_taken() -> None:
    receiver = Receiver()
    receiver.statuses = [500, 503, 200]
    async with serve_http(receiver.handle) as url, SlackSimulator(settings=settings(url)) as slack:
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


async def test_commands_and_clicks_come_as_forms() -> None:
    receiver = Receiver()
    async with serve_http(receiver.handle) as url, SlackSimulator(settings=settings(url)) as slack:
        client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        await slack.command("alice", "general", "agent", {"text": "run"})
        posted = await client.chat_postMessage(channel=general(slack), text="a", blocks=[ASK])
        await slack.press("bob", general(slack), posted["ts"], "ask/yes")
        forms = [body.decode() for headers, body in receiver.requests if "form" in headers["Content-Type"]]
        command, click = map(parse_qs, forms)
        assert (command["command"], command["text"]) == (["/agent"], ["run"])
        assert json.loads(click["payload"][0])["actions"][0]["value"] == "1"
