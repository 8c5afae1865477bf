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


async def test_a_file_is_shared_in_the_workspace_of_its_channel(scene: Scene) -> None:
    client = await scene.client("E0SIM0001")
    for people in (scene.sales, scene.research):
        scene.slack.oauth.reach(people.workspace.team_id)
    await client.files_upload_v2(channel=general(scene.research), content="x", filename="a.txt")
    (seen,) = next(one for one in scene.research.view().channels if one.name == "general").messages
    assert [file.name for file in seen.files] == ["a.txt"]
    assert not scene.sales.workspace.files
