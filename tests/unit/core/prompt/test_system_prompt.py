"""The system prompt, and what is told beside it."""

from datetime import UTC, datetime

import pytest

from core.domain.threads import Address, Platform
from core.prompt.system_prompt import RunPrompt, base_prompt, place_text, time_text

BASE = base_prompt(sandbox="Commands run in a jail.")


def test_the_base_tells_the_machine_and_nothing_that_changes() -> None:
    assert "Commands run in a jail." in BASE
    assert "{" not in BASE
    assert base_prompt(sandbox="Commands run in a jail.") == BASE


OWN_ZONE, HOUSE_ZONE = "the time zone of the author of the newest message", "the time zone of this installation"


@pytest.mark.parametrize(
    ("time_zone", "default", "told"),
    [
        ("", "", "03:04 UTC."),
        ("Europe/Helsinki", "", f"05:04 in Europe/Helsinki (UTC+02:00), {OWN_ZONE}."),
        ("Asia/Kolkata", "Europe/Helsinki", f"08:34 in Asia/Kolkata (UTC+05:30), {OWN_ZONE}."),
        ("", "America/Lima", f"22:04 in America/Lima (UTC-05:00), {HOUSE_ZONE}."),
        ("Nowhere/At all", "", "03:04 UTC."),
        ("../../etc/passwd", "", "03:04 UTC."),
        ("/etc/localtime", "", "03:04 UTC."),
        ("Europe", "", "03:04 UTC."),
        ("a\0b", "", "03:04 UTC."),
        ("\ud800", "", "03:04 UTC."),
        ("a" * 100_000, "", "03:04 UTC."),
    ],
)
def test_the_time_is_that_of_the_user_else_of_the_installation(time_zone: str, default: str, told: str) -> None:
    text = time_text(datetime(2026, 1, 2, 3, 4, tzinfo=UTC), time_zone, default=default)
    assert text.startswith("It is ")
    assert text.endswith(told)
    assert ("2026-01-01" if "Lima" in told else "2026-01-02") in text


def test_a_custom_agent_adds_to_the_base_and_replaces_nothing_of_it() -> None:
    prompt = RunPrompt(system=BASE).with_system("Your role here", "You are a pirate.")
    assert prompt.system == f"{BASE}\n\n# Your role here\n\nYou are a pirate."


def test_what_is_empty_leaves_no_heading() -> None:
    prompt = RunPrompt(system="base")
    assert prompt.with_system("Your role here", " \n") == prompt
    assert not any(prompt.with_knowledge(" ").state.values())


def test_knowledge_is_data_and_no_part_of_the_system_prompt() -> None:
    prompt = RunPrompt(system="base").with_knowledge("The sky is blue.")
    assert prompt.system == "base"
    assert prompt.state["knowledge"].startswith("# From the knowledge base\n\n<data mark=")
    assert "The sky is blue." in prompt.state["knowledge"]


@pytest.mark.parametrize(
    ("platform", "channel_id", "thread_key", "told"),
    [
        ("slack", "C1", "1.2", "a thread of a channel on Slack"),
        ("slack", "D1", "1.2", "a direct message on Slack"),
        ("discord", "1", "2", "a thread of a channel on Discord"),
        ("discord", "1", "dm", "a direct message on Discord"),
        ("api", "api", "a", "the HTTP API"),
    ],
)
def test_the_place_of_the_conversation_is_told(platform: Platform, channel_id: str, thread_key: str, told: str) -> None:
    address = Address(platform=platform, workspace_id="w", channel_id=channel_id, thread_key=thread_key)
    assert told in place_text(address)
