"""What people have forgotten is in no table any more, in the real program against both platforms."""

from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.integration.e2e.staging import BOTH
from tests.integration.e2e.test_approvals import alice_of, answered, asking


@BOTH
async def test_forget_me_leaves_no_word_and_no_name_of_the_person(platform: PlatformName) -> None:
    async with asking(platform) as stage:
        me = alice_of(stage)
        await stage.say("No, that is the wrong file.")
        await stage.until(lambda: [table for table, row in stored(stage) if "wrong file" in row], "it is stored")
        await stage.press("Deny")
        await answered(stage)
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
