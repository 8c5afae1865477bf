"""What people or a workspace take away is gone: the real program against simulated platforms."""

import aiohttp
from cryptography.fernet import Fernet
from yarl import URL

from simulator.slack.server import SlackSimulator
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.staging import BOTH
from tests.integration.e2e.test_approvals import alice_of, answered, asking
from tests.ports import free_port
from tests.support.narrow import require_type

SCENARIO = """
conversations:
  - name: sleeps
    when: {user: {contains: "Sleep"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "sleep 60", blocking: true}}]
      - text: "Awake."
  - name: talks
    when: {user: {contains: "Talk"}}
    steps:
      - text: "Here I am."
"""


async def up(slack: SlackSimulator, stage: Stage) -> None:
    """The program for whoever installs the bot."""
    port = free_port()
    stage.program.change(
        slack_bot_token="",
        slack_client_id=slack.oauth.client_id,
        slack_client_secret=slack.oauth.client_secret,
        encryption_keys=Fernet.generate_key().decode(),
        public_url=f"http://127.0.0.1:{port}",
        http_port=port,
    )
    stage.program.start()
    await stage.connected()


async def install(stage: Stage, owner_id: str) -> None:
    """A workspace does, or an organisation."""
    base = URL(f"http://127.0.0.1:{stage.http_port}")
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(base / "slack/install", allow_redirects=False) as begin:
            page = URL(begin.headers["Location"]).update_query(team=owner_id)
        async with browser.get(page) as end:
            assert end.status == 200, await end.text()


async def test_the_runs_of_a_workspace_end_when_it_takes_the_bot_away() -> None:
    async with staged("slack", SCENARIO) as stage:
        slack = require_type(stage.platform, SlackSimulator)
        second = slack.add_workspace("second", bot_token="xoxb-2", people=("carol",))
        await up(slack, stage)
        first_id, second_id = slack.workspace.team_id, second.workspace.team_id
        for team_id in (first_id, second_id):
            await install(stage, team_id)
        await stage.say("Sleep, please.")
        await stage.until(lambda: stage.runs() == ["running"], "it runs")
        general = second.workspace.channel_names["general"].channel_id
        slack.oauth.uninstall(first_id)
        await stage.until(lambda: stage.runs() == ["stopped"], "its run is stopped")
        await second.say("carol", general, "@threadhand Talk to me.")
        await stage.until(lambda: stage.runs() == ["stopped", "completed"], "the other goes on")
        assert stage.rows("SELECT workspace_id FROM workspace") == [(second_id,)]
        assert f"the bot was uninstalled from {first_id}; 1 runs stopped" in stage.program.log()
        assert stage.program.log().count("was uninstalled") == 1
        assert "xoxb" not in stage.program.log()


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
