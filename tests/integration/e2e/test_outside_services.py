"""The tools of the world outside in the real program: what the settings name is what the model can use."""

import json
from typing import Any

from tests.chaos.harness import staged
from tests.fakes import cloudflare

SCENARIO = """
conversations:
  - name: research
    when: {user: {contains: "Look it up"}}
    steps:
      - calls: [{name: web_search, arguments: {query: "tides"}}]
      - text: "It rises by thirty centimetres."
"""


async def test_what_is_set_up_is_offered() -> None:
    async with (
        cloudflare.cloudflare() as account,
        staged(
            "slack",
            SCENARIO,
            search_url=f"{account.standing.url}/html",
            cloudflare_api_token=cloudflare.TOKEN,
            cloudflare_account_id=cloudflare.ACCOUNT,
            cloudflare_api_url=account.standing.url,
            rapidapi_key="key-of-rapid",
            image_model="openai/gpt-image-1",
        ) as stage,
    ):
        stage.program.start()
        await stage.connected()
        await stage.say("Look it up on 127.0.0.1")
        await stage.settled(1)
        assert set(stage.runs()) == {"completed"}, stage.report()
        wanted = {"deploy", "image_edit_or_generate", "get_data_provider_endpoints"}
        tools: Any = stage.script.requests[-1]["tools"]
        assert wanted <= {one["function"]["name"] for one in tools}
        assert "key-of-rapid" not in json.dumps([*stage.script.requests])
