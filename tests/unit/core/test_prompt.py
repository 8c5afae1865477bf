"""The system prompt, and what is told beside it."""

from datetime import UTC, datetime

from core.prompt.system_prompt import RunPrompt, base_prompt, date_text

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
    assert prompt.with_knowledge(" ").with_state("") == prompt


def test_knowledge_is_data_and_no_part_of_the_system_prompt() -> None:
    prompt = RunPrompt(system="base", state="It is Friday.").with_knowledge("The sky is blue.")
    assert prompt.system == "base"
    assert prompt.state.startswith("It is Friday.\n\n# From the knowledge base\n\n<data mark=")
    assert "The sky is blue." in prompt.state
