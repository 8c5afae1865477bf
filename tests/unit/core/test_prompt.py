"""The system prompt and its layers."""

from dataclasses import replace
from datetime import date

from core.prompt.system_prompt import PromptLayers, add_layers, system_prompt

DAY = date(2026, 1, 2)
LAYERS = PromptLayers(
    agent="You are a pirate.",
    channel="Answer in Dutch.",
    thread="Be brief.",
    knowledge="The sky is blue.",
    todo="- [ ] a",
)


def prompt(layers: PromptLayers | None = None) -> str:
    return system_prompt(today=DAY, sandbox="Commands run in a jail.", layers=layers)


def test_the_base_tells_day_and_machine() -> None:
    assert "Today is Friday, 2026-01-02." in prompt()
    assert "Commands run in a jail." in prompt()
    assert "{" not in prompt()


def test_a_custom_agent_adds_to_the_base_and_replaces_nothing_of_it() -> None:
    base = prompt().split("\n\n# Today")[0]
    assert prompt(LAYERS).startswith(base)
    assert "You are a pirate." in prompt(LAYERS)


def test_the_layers_stand_in_order_and_what_changes_often_last() -> None:
    whole = prompt(LAYERS)
    wanted = ["pirate", "Dutch", "brief", "sky is blue", "Friday", "- [ ] a"]
    places = [whole.index(one) for one in wanted]
    assert places == sorted(places)


def test_what_is_empty_leaves_no_heading() -> None:
    assert add_layers("base", PromptLayers()) == "base"
    assert add_layers("base", PromptLayers(thread=" \n", knowledge=" ")) == "base"


def test_knowledge_and_todo_are_marked_as_data() -> None:
    whole = prompt(LAYERS)
    assert whole.count("<data mark=") == prompt().count("<data mark=") + 2
    long = replace(LAYERS, todo="- [ ] step\n" * 5000)
    assert len(prompt(long)) < len(whole) + 9000
