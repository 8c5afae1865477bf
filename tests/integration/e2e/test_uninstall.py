"""A workspace installs the bot, works with it, and takes it away: the real program against a simulated Slack."""

import socket

import aiohttp
from cryptography.fernet import Fernet
from yarl import URL

from simulator.discord.server import DiscordSimulator
from simulator.discord.world import Event
from simulator.slack.server import SlackSimulator
from tests.chaos.harness import Stage, staged
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


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


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


async def test_the_runs_of_an_organisation_end_in_all_its_workspaces() -> None:
    async with staged("slack", SCENARIO) as stage:
        slack = require_type(stage.platform, SlackSimulator)
        organisation = slack.add_organisation("everybody")
        sales = slack.add_workspace("sales", people=("carol",), organisation=organisation)
        research = slack.add_workspace("research", people=("carol",), organisation=organisation)
        await up(slack, stage)
        await install(stage, slack.workspace.team_id)
        await install(stage, organisation.organisation_id)
        for people, words in ((sales, "Talk"), (research, "Sleep")):
            slack.oauth.reach(people.workspace.team_id)
            channel = people.workspace.channel_names["general"].channel_id
            await people.say("carol", channel, f"@threadhand {words}, please.")
        await stage.until(lambda: sorted(stage.runs()) == ["completed", "running"], "one talks")

        def answered() -> set[str]:
            calls = [call for call in slack.calls if "Here I am." in str(call.arguments)]
            return {call.team_id for call in calls}

        await stage.until(answered, "it is answered")
        assert answered() == {sales.workspace.team_id}
        await stage.say("Sleep, please.")
        await stage.until(lambda: stage.runs().count("running") == 2, "the other workspace, too")
        slack.oauth.uninstall(organisation.organisation_id)
        await stage.until(lambda: "stopped" in stage.runs(), "the organisation's run is stopped")
        assert sorted(stage.runs()) == ["completed", "running", "stopped"]
        assert stage.rows("SELECT workspace_id FROM workspace") == [(slack.workspace.team_id,)]
        told = f"the bot was uninstalled from {organisation.organisation_id}; 1 runs stopped"
        await stage.until(lambda: told in stage.program.log(), "the operator is told")
        assert "xoxb" not in stage.program.log()
        assert stage.program.log().count("was uninstalled") == 1


async def test_the_run_of_a_server_that_takes_the_bot_away_ends_and_the_log_says_so_once() -> None:
    async with staged("discord", SCENARIO) as stage:
        discord = require_type(stage.platform, DiscordSimulator)
        stage.program.start()
        await stage.connected()
        await stage.say("Sleep, please.")
        await stage.until(lambda: stage.runs() == ["running"], "it runs")
        guild_id = discord.world.home.guild_id
        for _ in range(2):  # as after a reconnection
            discord.world.publish(Event(name="GUILD_DELETE", payload={"id": guild_id}, intent=1))
        await stage.until(lambda: stage.runs() == ["stopped"], "its run is stopped")
        told = f"discord: the bot was uninstalled from {guild_id}; 1 runs stopped"
        await stage.until(lambda: told in stage.program.log(), "the operator is told")
        assert stage.program.log().count("was uninstalled") == 1
