"""Who may delete a conversation or take it along, in the real program against both platforms."""

import json

import aiohttp

from simulator.view import SeenFile
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.test_approvals import BOTH, alice_of, answered, asking

SCENARIO = """
conversations:
  - name: count
    when: {user: {contains: "count"}}
    steps:
      - text: "One, two."
"""


@BOTH
async def test_an_export_is_a_file_in_the_thread_with_what_both_sides_said(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.change(allowed_users=alice_of(stage))
        stage.program.start()
        await stage.connected()
        await stage.say("Please count to two.")
        await stage.settled(1)
        command = f"@{stage.view().bot_name} export"
        await stage.platform.say("bob", stage.channel_id, command, thread_id=stage.thread_id)
        await stage.until(lambda: stage.shows("I am not allowed to work for you"), "bob is told")
        assert exported(stage) == []
        await stage.say(command)
        await stage.until(lambda: stage.shows("The conversation is in"), "it says where")
        (file,) = exported(stage)
        assert file.name == "conversation.json"
        async with aiohttp.ClientSession() as browser, browser.get(file.url) as page:
            assert page.status == 200, await page.text()
            content = json.loads(await page.read())
        said = [(one["type"], one["from"].lower(), one["text"]) for one in content]
        assert [one[0] for one in said] == ["user", "assistant"]
        assert said[0][1] == PERSON
        assert "Please count to two." in said[0][2]
        assert said[1][2] == "One, two."


def exported(stage: Stage) -> list[SeenFile]:
    return [file for one in stage.messages() for file in one.files]


@BOTH
async def test_forget_me_leaves_no_word_and_no_name_of_the_person(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        me = alice_of(stage)
        await stage.say("No, that is the wrong file.")
        await stage.press("Deny")
        await answered(stage)
        assert [table for table, row in stored(stage) if "wrong file" in row]
        await stage.say(f"@{stage.view().bot_name} forget me yes")
        await stage.until(lambda: stage.shows("Forgotten in"), "it says so")
        left = [
            one for one in stored(stage) if any(word in one[1] for word in ("wrong file", "Write it down", PERSON, me))
        ]
        assert not left, "\n".join(map(str, left))


def stored(stage: Stage) -> list[tuple[str, str]]:
    """Every row of the database as text, with its table."""
    tables = [str(name) for (name,) in stage.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(name, str(row)) for name in tables for row in stage.rows(f"SELECT * FROM {name}")]  # noqa: S608 - a table's name
