"""The Web API misbehaves on demand, once, and where it is told to."""

import asyncio
import time

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from tests.integration.simulator.slack.test_web_api import general


async def post(slack: SlackSimulator, client: AsyncWebClient, text: str = "a") -> None:
    await client.chat_postMessage(channel=general(slack), text=text)


def posted(slack: SlackSimulator) -> int:
    return len(slack.channel("general").messages)


async def test_a_rate_limit_is_obeyed_by_the_sdk(slack: SlackSimulator) -> None:
    client = AsyncWebClient(
        slack.settings.bot_token, base_url=slack.api_url, retry_handlers=[AsyncRateLimitErrorRetryHandler()]
    )
    slack.misbehave("rate_limit", method="chat.*", seconds=1)
    await client.auth_test()
    await post(slack, client)
    assert [(call.method, call.status) for call in slack.calls] == [
        ("auth.test", 200),
        ("chat.postMessage", 429),
        ("chat.postMessage", 200),
    ]


@pytest.mark.parametrize(("fault", "messages"), [("server_error", 0), ("error_after", 1)])
async def test_an_error_comes_before_or_after_the_work(
    slack: SlackSimulator, client: AsyncWebClient, fault: str, messages: int
) -> None:
    slack.misbehave(fault, method="chat.postMessage")
    with pytest.raises(SlackApiError) as caught:
        await post(slack, client)
    assert caught.value.response.status_code == 500
    assert posted(slack) == messages
    await post(slack, client)


async def test_a_method_is_refused_with_a_code(slack: SlackSimulator, client: AsyncWebClient) -> None:
    slack.misbehave("refuse", method="chat.postMessage", code="is_archived")
    with pytest.raises(SlackApiError) as caught:
        await post(slack, client)
    assert caught.value.response.data == {"ok": False, "error": "is_archived"}
    assert posted(slack) == 0
    await post(slack, client)
    assert [call.error for call in slack.calls] == ["is_archived", ""]


@pytest.mark.parametrize(("fault", "messages"), [("timeout", 0), ("timeout_after", 1)])
async def test_an_answer_never_comes(slack: SlackSimulator, fault: str, messages: int) -> None:
    client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
    client.timeout = 1
    slack.misbehave(fault)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(post(slack, client), 0.2)
    assert posted(slack) == messages


async def test_a_slow_answer_comes_in_the_end(slack: SlackSimulator, client: AsyncWebClient) -> None:
    slack.misbehave("slow", seconds=0.1)
    start = time.monotonic()
    await post(slack, client)
    assert time.monotonic() - start >= 0.1


async def test_a_fault_bites_as_often_as_told_and_can_be_called_off(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    slack.misbehave("server_error", times=2)
    for _ in range(2):
        with pytest.raises(SlackApiError):
            await client.auth_test()
    await client.auth_test()
    slack.misbehave("server_error", times=5)
    slack.misbehave("none")
    await client.auth_test()


async def test_a_fault_that_slack_does_not_have_is_refused(slack: SlackSimulator) -> None:
    for fault in ("invalid_session", "nonsense"):
        with pytest.raises(ValueError, match=r"."):
            slack.misbehave(fault)


async def test_closing_lets_go_of_calls_that_hang() -> None:
    async with SlackSimulator() as slack:
        client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        slack.misbehave("timeout")
        hanging = asyncio.ensure_future(client.auth_test())
        while slack.web_api.hanging == 0:
            await asyncio.sleep(0.005)
        start = time.monotonic()
    with pytest.raises(SlackApiError):
        await hanging
    assert time.monotonic() - start < 30
