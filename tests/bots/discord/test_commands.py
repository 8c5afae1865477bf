"""When the registered commands count as the same."""

from bots.discord.commands import is_same

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
    assert is_same(OURS, THEIRS)


def test_a_changed_word_a_missing_and_a_surplus_command_are_not() -> None:
    changed = [{**THEIRS[0], "description": "Halt"}, THEIRS[1]]
    assert not is_same(OURS, changed)
    assert not is_same(OURS, THEIRS[:1])
    assert not is_same(OURS, [*THEIRS, {"name": "old", "type": 1}])
    assert not is_same(OURS, "nonsense")
