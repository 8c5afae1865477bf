"""What the commands offer, and when the registered ones count as the same."""

import discord
import pytest

from bots.discord.interactions.commands import build_command_tree, is_equivalent
from bots.discord.interactions.responses import InteractionHandler

OURS = [
    {
        "name": "agent",
        "type": 1,
        "description": "Work",
        "options": [{"name": "run", "type": 1, "options": []}],
        "contexts": [0, 1],
        "nsfw": False,
        "dm_permission": True,
        "default_member_permissions": None,
    },
    {"name": "stop", "type": 1, "description": "Stop"},
]
THEIRS = [
    {"id": "2", "name": "stop", "type": 1, "description": "Stop", "version": "9"},
    {
        "id": "1",
        "name": "agent",
        "type": 1,
        "description": "Work",
        "options": [{"name": "run", "type": 1, "required": False}],
        "contexts": [1, 0],
    },
]


def test_what_discord_adds_leaves_out_or_sorts_otherwise_is_the_same() -> None:
    assert is_equivalent(OURS, THEIRS)


def test_a_changed_word_a_missing_and_a_surplus_command_are_not() -> None:
    changed = [{**THEIRS[0], "description": "Halt"}, THEIRS[1]]
    assert not is_equivalent(OURS, changed)
    assert not is_equivalent(OURS, THEIRS[:1])
    assert not is_equivalent(OURS, [*THEIRS, {"name": "old", "type": 1}])
    assert not is_equivalent(OURS, "nonsense")


@pytest.mark.parametrize(("count", "is_menu"), [(1, True), (25, True), (26, False), (0, False)])
def test_agents_are_a_menu_where_it_has_room_for_all(count: int, is_menu: bool) -> None:
    agents = {f"a{n}": f"Agent {n} " + "x" * 200 for n in range(count)}
    client = discord.Client(intents=discord.Intents.none())
    (agent,) = [
        one.to_dict(tree)
        for tree in [build_command_tree(client, InteractionHandler(None, None, None), agents)]
        for one in tree.get_commands()
        if one.name == "agent"
    ]
    options = {
        (command["name"], option["name"]): option
        for command in agent["options"]
        for option in command.get("options", ())
    }
    for place in (("run", "agent"), ("use", "name")):
        choices = options[place].get("choices") or []
        assert [one["value"] for one in choices] == (list(agents) if is_menu else [])
        assert all(len(one["name"]) <= 100 for one in choices)
        assert not options[place]["required"]
