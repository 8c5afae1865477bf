"""What the program says when it starts, and what it refuses to start with."""

from pathlib import Path

import pytest

from bots.bootstrap.model_clients import build_model_client
from bots.bootstrap.program import serve, serve_worker, startup_warnings
from bots.settings import Settings, load_settings
from core.domain.errors import ConfigurationError


def settings(**variables: str) -> Settings:
    environ = {f"THREADHAND_{name}": value for name, value in variables.items()}
    return load_settings(environ, Path("no such file"))


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
        build_model_client(
            settings(MODEL="x", LLM_API_KEY="", FALLBACK_MODELS="anthropic/claude-x")
        )


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, ["Neither Slack nor Discord is set up: only the HTTP API serves."]),
        ({"DISCORD_TOKEN": "t", "ALLOWED_USERS": "*"}, []),
    ],
)
def test_the_start_says_what_serves(variables: dict[str, str], said: list[str]) -> None:
    assert startup_warnings(settings(**variables)) == said


@pytest.mark.parametrize(
    ("public_url", "is_told"), [("https://agent.example", True), ("http://127.0.0.1:8700", False)]
)
def test_the_start_says_that_a_proxy_may_open_the_api(public_url: str, is_told: bool) -> None:
    known = {"DISCORD_TOKEN": "t", "ALLOWED_USERS": "*", "PUBLIC_URL": public_url}
    assert any("/api/" in one for one in startup_warnings(settings(**known))) == is_told
    assert startup_warnings(settings(**known, API_TOKEN="t")) == []


def test_the_start_says_that_nobody_is_let_in() -> None:
    (sentence,) = startup_warnings(settings(DISCORD_TOKEN="t"))
    assert sentence.startswith("No one may talk to the agent yet")
