"""What the program says when it starts, and what it refuses to start with."""

import pytest

from bots.bootstrap.model_clients import build_model_client, without_models_that_lack_a_key
from bots.bootstrap.platforms import reachable_public_url, without_incomplete_slack
from bots.bootstrap.program import NO_PUBLIC_URL, serve, serve_worker, startup_warnings
from bots.settings import load_settings
from core.domain.errors import ConfigurationError
from tests.support.settings import settings


async def test_a_worker_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="threadhand up"):
        await serve_worker(settings())
    with pytest.raises(ConfigurationError, match="threadhand up"):
        await serve(settings(), with_worker=False)


@pytest.mark.parametrize("model", ["anthropic/claude-x", "openai/gpt-x", "gemini/pro", "gpt-x"])
def test_a_model_without_its_key_is_refused_by_name(model: str) -> None:
    with pytest.raises(ConfigurationError, match="_API_KEY in"):
        build_model_client(settings(MODEL=model))


def test_a_fallback_without_its_key_is_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="anthropic/claude-x needs a key"):
        build_model_client(settings(MODEL="x", LLM_API_KEY="", FALLBACK_MODELS="anthropic/claude-x"))


def test_a_slack_set_up_by_half_is_left_out_and_named() -> None:
    whole = settings(SLACK_BOT_TOKEN="xoxb-1", SLACK_APP_TOKEN="xapp-1")
    assert without_incomplete_slack(whole) == (whole, [])
    half = settings(SLACK_APP_TOKEN="xapp-1", DISCORD_TOKEN="t")
    found, (sentence,) = without_incomplete_slack(half)
    assert (found.slack_mode, found.discord_token.get_secret_value()) == ("off", "t")
    assert "THREADHAND_SLACK_BOT_TOKEN" in sentence
    assert "`threadhand setup`" in sentence


@pytest.mark.parametrize(
    ("model", "fallbacks", "expected"),
    [
        ("anthropic/a", "openai/b", ("anthropic/a", ())),
        ("openai/b", "gemini/c,anthropic/a", ("anthropic/a", ())),
        ("openai/b", "", ("", ())),
        ("", "openai/b,anthropic/a", ("", ("anthropic/a",))),
    ],
)
def test_models_without_a_key_are_left_out_and_named(
    model: str, fallbacks: str, expected: tuple[str, tuple[str, ...]]
) -> None:
    environ = {"THREADHAND_MODEL": model, "THREADHAND_FALLBACK_MODELS": fallbacks, "ANTHROPIC_API_KEY": "k"}
    found, missing = without_models_that_lack_a_key(load_settings(environ, None))
    assert (found.model, found.fallback_models) == expected
    assert any("openai/b needs a key: set OPENAI_API_KEY" in sentence for sentence in missing)


CHAT = {"DISCORD_TOKEN": "t", "ALLOWED_USERS": "*"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, ["Neither Slack nor Discord is set up: only the HTTP API serves."]),
        ({**CHAT, "PUBLIC_URL": "https://agent.example", "API_TOKEN": "t"}, []),
        ({**CHAT, "DISCORD_API_URL": "http://127.0.0.1:9/api/v10"}, []),
        (CHAT, [NO_PUBLIC_URL]),
        ({**CHAT, "PUBLIC_URL": "http://127.0.0.1:8700"}, [NO_PUBLIC_URL]),
        ({"SLACK_BOT_TOKEN": "xoxb-x", "SLACK_APP_TOKEN": "xapp-y", "ALLOWED_USERS": "*"}, [NO_PUBLIC_URL]),
    ],
)
def test_the_start_says_what_serves(variables: dict[str, str], said: list[str]) -> None:
    assert startup_warnings(settings(**variables)) == said


@pytest.mark.parametrize(("public_url", "is_told"), [("https://agent.example", True), ("http://127.0.0.1:8700", False)])
def test_the_start_says_that_a_proxy_may_open_the_api(public_url: str, is_told: bool) -> None:
    known = {"DISCORD_TOKEN": "t", "ALLOWED_USERS": "*", "PUBLIC_URL": public_url}
    assert any("/api/" in one for one in startup_warnings(settings(**known))) == is_told
    left = startup_warnings(settings(**known, API_TOKEN="t"))
    assert left == ([] if is_told else [NO_PUBLIC_URL])


def test_the_start_says_that_nobody_is_let_in() -> None:
    sentence, _ = startup_warnings(settings(DISCORD_TOKEN="t"))
    assert sentence.startswith("No one may talk to the agent yet")


@pytest.mark.parametrize(
    ("variables", "public_url", "shown"),
    [
        ({"DISCORD_TOKEN": "t"}, "https://agent.example", "https://agent.example"),
        ({"DISCORD_TOKEN": "t"}, "http://127.0.0.1:8700", ""),
        ({"DISCORD_TOKEN": "t"}, "http://localhost:8700", ""),
        ({"DISCORD_TOKEN": "t", "DISCORD_API_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:8700", "http://127.0.0.1:8700"),
        ({}, "http://127.0.0.1:8700", "http://127.0.0.1:8700"),
    ],
)  # fmt: skip
def test_a_live_chat_gets_no_link_to_this_machine(variables: dict[str, str], public_url: str, shown: str) -> None:
    assert reachable_public_url(settings(PUBLIC_URL=public_url, **variables)) == shown
