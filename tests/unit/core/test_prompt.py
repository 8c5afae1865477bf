"""The system prompt, and what is told beside it."""

from datetime import UTC, datetime

import pytest

from core.domain.threads import Address, Platform
from core.prompt.system_prompt import RunPrompt, base_prompt, date_text, place_text

BASE = base_prompt(sandbox="Commands run in a jail.")


def test_the_base_tells_the_machine_and_nothing_that_changes() -> None:
    assert "Commands run in a jail." in BASE
    assert "{" not in BASE
    assert base_prompt(sandbox="Commands run in a jail.") == BASE


def test_the_date_has_its_day_and_its_time_zone() -> None:
    told = date_text(datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    assert told == "It is Friday, 2026-01-02 03:04 UTC."


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
