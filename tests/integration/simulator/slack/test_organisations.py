"""An organisation of several workspaces, and what its one token reaches, asked with the real SDK."""

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from simulator.slack import SlackSimulator
from simulator.slack.organisation import Organisation
from simulator.slack.people.interactions import BusyPeople
from tests.integration.simulator.slack.conftest import Recorder
from tests.support.waiting import until

REDIRECT = "http://127.0.0.1:9/back"


@dataclass
class Scene:
    slack: SlackSimulator
    organisation: Organisation
    sales: BusyPeople
    research: BusyPeople

    async def installed(self, owner_id: str) -> dict[str, Any]:
        oauth, client = self.slack.oauth, AsyncWebClient(base_url=self.slack.api_url)
        page = URL(self.slack.origin) / "oauth/v2/authorize"
        async with (
            ClientSession() as session,
            session.get(
                page.with_query(client_id=oauth.client_id, scope="a", team=owner_id, redirect_uri=REDIRECT),
                allow_redirects=False,
            ) as agreed,
        ):
            code = URL(agreed.headers["Location"]).query["code"]
        app = {"client_id": oauth.client_id, "client_secret": oauth.client_secret}
        arguments = {**app, "code": code, "redirect_uri": REDIRECT}
        answer = await client.api_call("oauth.v2.access", data=arguments)
        assert isinstance(answer.data, dict)
        return answer.data

    async def client(self, owner_id: str) -> AsyncWebClient:
        token = (await self.installed(owner_id))["access_token"]
        return AsyncWebClient(token, base_url=self.slack.api_url)


@pytest.fixture
def scene(slack: SlackSimulator) -> Scene:
    organisation = slack.add_organisation("everybody")
    people = {
        name: slack.add_workspace(name, people=who, organisation=organisation)
        for name, who in (("sales", ("carol", "dan")), ("research", ("carol", "erin")))
    }
    return Scene(slack, organisation, people["sales"], people["research"])


def general(people: BusyPeople) -> str:
    return people.workspace.channel_names["general"].channel_id


async def refusal(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response["error"]


async def test_an_organisation_gets_one_token_that_names_no_workspace(scene: Scene) -> None:
    answer = await scene.installed(scene.organisation.organisation_id)
    assert answer["is_enterprise_install"] is True
    assert answer["team"] is None
    assert answer["enterprise"] == {"id": "E0SIM0001", "name": "everybody"}
    client = AsyncWebClient(answer["access_token"], base_url=scene.slack.api_url)
    told = await client.auth_test()
    assert (told["enterprise_id"], told["is_enterprise_install"]) == ("E0SIM0001", True)
    assert told["user_id"] == answer["bot_user_id"]


async def test_the_token_reaches_those_workspaces_that_the_app_was_added_to(scene: Scene) -> None:
    client = await scene.client("E0SIM0001")
    sales, research = general(scene.sales), general(scene.research)
    assert await refusal(client.chat_postMessage(channel=sales, text="a")) == ("team_access_not_granted")
    scene.slack.oauth.reach(scene.sales.workspace.team_id)
    await client.chat_postMessage(channel=sales, text="a")
    assert await refusal(client.chat_postMessage(channel=research, text="a")) == "channel_not_found"
    elsewhere = scene.slack.channel("general").channel_id
    assert await refusal(client.chat_postMessage(channel=elsewhere, text="a")) == ("channel_not_found")
    teams: list[dict[str, str]] = (await client.auth_teams_list())["teams"] or []
    assert [one["id"] for one in teams] == [scene.sales.workspace.team_id]


async def test_some_methods_have_to_be_told_the_workspace(scene: Scene) -> None:
    client = await scene.client("E0SIM0001")
    for people in (scene.sales, scene.research):
        scene.slack.oauth.reach(people.workspace.team_id)
    scene.research.workspace.user_groups["S1"] = ["U1"]
    assert await refusal(client.usergroups_users_list(usergroup="S1")) == "missing_argument"
    assert await refusal(client.users_conversations()) == "missing_argument"
    found = await client.usergroups_users_list(usergroup="S1", team_id=scene.research.workspace.team_id)
    assert found["users"] == ["U1"]
    first = scene.slack.workspace.team_id
    assert await refusal(client.usergroups_users_list(usergroup="S1", team_id=first)) == ("team_access_not_granted")


async def test_people_have_one_id_in_an_organisation(scene: Scene) -> None:
    client = await scene.client("E0SIM0001")
    for people in (scene.sales, scene.research):
        scene.slack.oauth.reach(people.workspace.team_id)
    carol = scene.sales.member("carol").user_id
    assert scene.research.member("carol").user_id == carol
    assert scene.sales.workspace.bot.user_id == scene.research.workspace.bot.user_id
    user = (await client.users_info(user=carol))["user"]
    assert user["enterprise_user"]["teams"] == [scene.sales.workspace.team_id, scene.research.workspace.team_id]
    erin = (await client.users_info(user=scene.research.member("erin").user_id))["user"]
    assert erin["team_id"] == scene.research.workspace.team_id


async def test_a_file_is_shared_in_the_workspace_of_its_channel(scene: Scene) -> None:
    client = await scene.client("E0SIM0001")
    for people in (scene.sales, scene.research):
        scene.slack.oauth.reach(people.workspace.team_id)
    await client.files_upload_v2(channel=general(scene.research), content="x", filename="a.txt")
    (seen,) = next(one for one in scene.research.view().channels if one.name == "general").messages
    assert [file.name for file in seen.files] == ["a.txt"]
    assert not scene.sales.workspace.files


async def test_events_say_whose_installation_hears_them(scene: Scene, bot: Recorder) -> None:
    await scene.sales.say("carol", general(scene.sales), "nobody hears this")
    await scene.installed("E0SIM0001")
    await scene.sales.say("carol", general(scene.sales), "nor this")
    scene.slack.oauth.reach(scene.sales.workspace.team_id)
    await scene.installed(scene.research.workspace.team_id)
    await scene.sales.say("carol", general(scene.sales), "by the organisation")
    await scene.research.say("erin", general(scene.research), "by the workspace")
    # the recorder's own token is the first workspace's: it hears them all, as the app does
    await until(lambda: len(bot.bodies) == 2)
    bodies = {body["event"]["text"]: body for body in bot.bodies}
    whole, alone = bodies["by the organisation"], bodies["by the workspace"]
    assert whole["team_id"] == scene.sales.workspace.team_id
    (authorization,) = whole["authorizations"]
    assert authorization["is_enterprise_install"] is True
    assert (authorization["enterprise_id"], authorization["team_id"]) == ("E0SIM0001", None)
    (authorization,) = alone["authorizations"]
    assert authorization["is_enterprise_install"] is False
    assert authorization["team_id"] == scene.research.workspace.team_id
