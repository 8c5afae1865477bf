"""What the commands offer, and when the registered ones count as the same."""

from typing import Any

import discord

from bots.discord.interactions.commands import (
    LOCALES,
    CommandTranslator,
    build_command_tree,
    equals_registered_value,
    load_translations,
)
from bots.discord.interactions.responses import InteractionHandler
from simulator.discord.rest.errors import FormErrors
from simulator.discord.rules.commands import check_command

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
    assert equals_registered_value(OURS, THEIRS)


def test_a_changed_word_a_missing_and_a_surplus_command_are_not() -> None:
    changed = [{**THEIRS[0], "description": "Halt"}, THEIRS[1]]
    assert not equals_registered_value(OURS, changed)
    assert not equals_registered_value(OURS, THEIRS[:1])
    assert not equals_registered_value(OURS, [*THEIRS, {"name": "old", "type": 1}])
    assert not equals_registered_value(OURS, "nonsense")


def test_a_run_takes_ten_files_and_agents_files_and_knowledge_are_suggested() -> None:
    client = discord.Client(intents=discord.Intents.none())
    tree = build_command_tree(client, InteractionHandler(None, None, None))
    commands = {one.name: one.to_dict(tree) for one in tree.get_commands()}
    commands |= {f"agent {one['name']}": one for one in commands["agent"]["options"]}
    suggesting = {
        (name, option["name"])
        for name, command in commands.items()
        for option in command.get("options", ())
        if option.get("autocomplete")
    }
    assert suggesting == {
        ("agent run", "agent"),
        ("agent use", "name"),
        ("agent agents", "name"),
        ("agent knowledge", "name"),
        ("agent schedules", "schedule"),
        ("files", "path"),
        ("help", "topic"),
    }
    options = commands["agent run"]["options"]
    assert sum(one["type"] == discord.AppCommandOptionType.attachment.value for one in options) == 10
    assert [one["name"] for one in options if one["required"]] == ["prompt"]


async def test_every_name_and_description_is_translated_into_six_languages() -> None:
    client = discord.Client(intents=discord.Intents.none())
    tree = build_command_tree(client, InteractionHandler(None, None, None))
    translator = CommandTranslator()
    payloads = [await one.get_translated_payload(tree, translator) for one in tree.get_commands()]
    used: set[str] = set()

    def check(item: dict[str, Any]) -> None:
        for key in ("name", "description"):
            if text := item.get(key):
                used.add(text.rstrip("0123456789") if key == "name" else text)
                told = item[f"{key}_localizations"]
                assert {locale for locale, words in told.items() if words} == {one.value for one in LOCALES}, text
        for option in item.get("options") or ():
            check(option)

    for one in payloads:
        check(one)
        errors = FormErrors()
        check_command(errors, (), one)
        errors.raise_if_any()
    assert used == set(load_translations())
