"""Tests API keys and tokens by calling their services, without changing data there."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast

import aiohttp

from bots.settings import Settings

_SECONDS = 15.0
_REPLY_BYTES_MAX = 1024 * 1024
_MODEL_LISTS = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "groq": "https://api.groq.com/openai/v1",
    "deepseek": "https://api.deepseek.com",
    "mistral": "https://api.mistral.ai/v1",
}
_UNKNOWN_APP = ("invalid_client_id", "bad_client_secret", "invalid_client")


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The result of testing a key. `text` is a sentence for the operator."""

    works: bool
    text: str


Probe = Callable[[Settings], Awaitable[ProbeVerdict]]


async def accept_untested(_: Settings) -> ProbeVerdict:
    """Accepts settings that cannot be tested by calling a service."""
    return ProbeVerdict(True, "Taken.")


async def probe_model(settings: Settings) -> ProbeVerdict:
    """Tests the model's API key by listing the models of its OpenAI-compatible endpoint, which is free."""
    if not settings.model:
        return ProbeVerdict(False, "Name a model.")
    provider = settings.model.split("/", 1)[0] if "/" in settings.model else ""
    is_gpt = not provider and settings.model.startswith(("gpt-", "o3", "o4"))
    base = settings.llm_base_url or _MODEL_LISTS.get("openai" if is_gpt else provider, "")
    key = settings.llm_api_key.get_secret_value()
    if not base or (not key and not settings.llm_base_url):
        return ProbeVerdict(True, "Taken; this provider cannot be tested from here.")
    status, _ = await _call("GET", f"{base}/models", f"Bearer {key}" if key else "")
    if status is None:
        return ProbeVerdict(False, f"{base} does not answer.")
    if status in {401, 403}:
        return ProbeVerdict(False, "The model's endpoint refuses the key.")
    if status >= 500:
        return ProbeVerdict(False, f"The model's endpoint failed with status {status}.")
    return ProbeVerdict(True, "The model's endpoint answers.")


async def probe_slack(settings: Settings) -> ProbeVerdict:
    """Tests the bot token with auth.test, and the app token with apps.connections.open.

    apps.connections.open returns a URL but opens no connection.
    """
    _ = settings.slack_mode
    bot = settings.slack_bot_token.get_secret_value()
    problem, reply = await _slack_call(settings, "auth.test", bot)
    app = settings.slack_app_token.get_secret_value()
    if not problem and app:
        problem, _ = await _slack_call(settings, "apps.connections.open", app)
    if problem:
        return ProbeVerdict(False, problem)
    return ProbeVerdict(True, f"Slack knows the bot as {reply.get('user')} in {reply.get('team')}.")


async def probe_slack_app(settings: Settings) -> ProbeVerdict:
    """Tests the client ID and secret by calling oauth.v2.access with an invalid code.

    The error code shows whether Slack knows the app. The signing secret cannot be tested before the first event.
    """
    _ = settings.slack_mode
    app = settings.slack_app_token.get_secret_value()
    problem = (await _slack_call(settings, "apps.connections.open", app))[0] if app else ""
    if problem:
        return ProbeVerdict(False, problem)
    if settings.slack_bot_token:
        return ProbeVerdict(
            False, "Take THREADHAND_SLACK_BOT_TOKEN out: it is for one workspace alone."
        )
    client = {
        "client_id": settings.slack_client_id,
        "client_secret": settings.slack_client_secret.get_secret_value(),
        "code": "threadhand-setup",
    }
    status, reply = await _call("POST", f"{settings.slack_api_url}/oauth.v2.access", "", client)
    error = reply.get("error")
    if status is None or not isinstance(error, str):
        return ProbeVerdict(False, "Slack does not answer.")
    if error in _UNKNOWN_APP:
        return ProbeVerdict(False, f"Slack does not know this app: {error}.")
    return ProbeVerdict(True, f"Workspaces install the bot at {settings.public_url}/slack/install.")


async def probe_discord(settings: Settings) -> ProbeVerdict:
    """Tests the Discord bot token by fetching the bot's own user."""
    token = settings.discord_token.get_secret_value()
    status, reply = await _call("GET", f"{settings.discord_api_url}/users/@me", f"Bot {token}")
    if status is None:
        return ProbeVerdict(False, "Discord does not answer.")
    if status != 200:
        return ProbeVerdict(False, f"Discord refuses the token (status {status}).")
    return ProbeVerdict(True, f"Discord knows the bot as {reply.get('username')}.")


async def _slack_call(
    settings: Settings, method: str, token: str
) -> tuple[str, Mapping[str, object]]:
    """Calls a Slack method. Returns a sentence about the problem, or an empty string, and the response."""
    status, reply = await _call("POST", f"{settings.slack_api_url}/{method}", f"Bearer {token}")
    if status is None:
        return "Slack does not answer.", reply
    if reply.get("ok") is not True:
        return f"Slack refuses {method}: {reply.get('error', f'status {status}')}.", reply
    return "", reply


async def _call(
    verb: str, url: str, authorization: str, form: Mapping[str, str] | None = None
) -> tuple[int | None, Mapping[str, object]]:
    """Returns the HTTP status and the JSON object of the response.

    The status is None if there is no response. The object is empty if the body is not a JSON object.
    """
    headers = {"Authorization": authorization} if authorization else {}
    try:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                verb, url, headers=headers, data=form, allow_redirects=False
            ) as response,
        ):
            if (response.content_length or 0) > _REPLY_BYTES_MAX:
                return response.status, {}
            return response.status, _object(await response.read())
    except (aiohttp.ClientError, TimeoutError):
        return None, {}


def _object(body: bytes) -> Mapping[str, object]:
    try:
        reply: object = json.loads(body)
    except ValueError:
        return {}
    return cast(Mapping[str, object], reply) if isinstance(reply, dict) else {}
