"""The command `agents`: the versions of an agent, their differences, and the way back to one."""

from types import SimpleNamespace
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.agents import CHANGES_CHARACTERS_MAX, VERSIONS_SHOWN_MAX, answer_agents
from core.agents.definition import AgentDefinition, AgentVersion
from core.domain.errors import ConfigurationError
from tests.unit.bots.test_what_actions_touch import ALICE, SLACK


def agent(text: str) -> AgentDefinition:
    prompt, _, model = text.partition("|")
    return AgentDefinition(agent_id="research", name="R", description="Looks.", prompt=prompt, model=model)


class Roster:
    """An agent with versions, and what became of them."""

    def __init__(self, texts: list[str], current: str | None) -> None:
        self.versions, self.files = self, SimpleNamespace(latest={"research": None} if current == "file" else {})
        self.current = {"research": agent(current)} if current is not None else {}
        self.listed = [
            AgentVersion(agent_version_id="v", number=number, content_hash=each.content_hash, definition=each)
            for number, each in enumerate(map(agent, texts), 1)
        ]

    async def current_definitions(self) -> dict[str, AgentDefinition]:
        return self.current

    async def list_versions(self, name: str) -> list[AgentVersion]:
        return self.listed if name == "research" else []

    async def roll_back(self, _name: str, number: int, **_others: object) -> None:
        if self.listed[number - 1].definition.model:
            raise ConfigurationError("No such model.")

    async def reset_to_file(self, _name: str, **_others: object) -> bool:
        return len(self.listed) > 1


def listing(count: int) -> str:
    lines = [f"- {number}: 1 lines more, 1 fewer" for number in range(count, 1, -1)]
    return "\n".join([TITLE, *lines, "- 1: 3 lines more, 0 fewer"])


TITLE = "Versions of `research`, newest first:"
MANY = [str(number) for number in range(VERSIONS_SHOWN_MAX + 1)]
WIDE = "x" * (CHANGES_CHARACTERS_MAX - len("...\n description: Looks.\n-prompt: a\n+prompt: \n"))
MORE = "\n{} more lines do not fit here; `GET /api/agents` shows them all."


def diff(*lines: str) -> str:
    return "\n".join(["```diff", "...", " description: Looks.", *lines, "```"])


@pytest.mark.parametrize(
    ("argument", "versions", "current", "answer"),
    [
        ("versions Nobody", "", "a", "There is no agent nobody. There are: research."),
        ("versions research", "", "a", "`research` has not worked yet, so it has no versions."),
        ("versions research", "ab", None, listing(2)),
        ("versions research", "ab", "b", listing(2).replace("- 2:", "- 2 (works now):")),
        ("versions research", MANY[1:], "", listing(15)),
        ("versions research", MANY, "", listing(16).rpartition("\n")[0] + "\n- and 1 older ones"),
        ("compare research 3", "ab", "a", "`research` has no such version. Its versions: 1, 2."),
        ("compare research 1", "", "a", "`research` has no such version. Its versions: none yet."),
        ("compare research 1", "ab", "a", "They are the same."),
        ("compare research 1 2", "ab", "a", diff("-prompt: a", "+prompt: b")),
        ("compare research 1", "a", "`", diff("-prompt: a", "+prompt: '")),
        ("compare research 1", "a", WIDE, diff("-prompt: a", f"+prompt: {WIDE}")),
        ("compare research 1", "a", WIDE + "x", diff("-prompt: a") + MORE.format(1)),
        ("reset research", "a", "a", "`research` already is as its file says."),
        ("rollback research 2", ["a", "b|m"], "a", "Version 2 cannot work any more:\nNo such model."),
    ],
)  # fmt: skip
async def test_versions_are_listed_and_compared(argument: str, versions: Any, current: str | None, answer: str) -> None:
    outcome = await answer_agents(called(argument), Roster([*versions], current))
    assert (outcome.notice, outcome.is_private) == (answer, True)


@pytest.mark.parametrize(
    ("argument", "current", "answer"),
    [
        ("rollback research 1", "a", "`research` works as version 1 from the next request on."),
        ("reset research", "file", "`research` is as its file says again. Its versions stay: "),
        ("reset research", "a", "`research` is gone. Its versions stay: "),
    ],
)
async def test_everybody_sees_that_an_agent_has_changed(argument: str, current: str, answer: str) -> None:
    outcome = await answer_agents(called(argument), Roster(["a", "b"], current))
    assert (outcome.notice[: len(answer)], outcome.is_private) == (answer, False)


def called(argument: str) -> CommandCalled:
    return CommandCalled(address=SLACK, dedupe_key="k", name="agents", argument=argument, person=ALICE)
