"""The tools of the world outside in the real program: what the settings name is what the model can use."""

import json
import re
import socket
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import aiohttp

from tests.chaos.harness import Stage, staged
from tests.fakes import cloudflare, pages, search_engines, web_inside
from tests.fakes.web_service import fake_web_service

SCENARIO = """
conversations:
  - name: research
    when: {user: {contains: "Look it up"}}
    steps:
      - calls: [{name: web_search, arguments: {query: "tides"}}]
      - calls: [{name: scrape_webpage, arguments: {urls: "SITE/article"}}]
      - calls: [{name: scrape_webpage, arguments: {urls: "http://127.0.0.1:9/"}}]
      - calls: [{name: execute_command, arguments: {command: "echo $((6 * 7))"}}]
      - text: "It rises by thirty centimetres."
  - name: serve
    when: {user: {contains: "Serve it"}}
    steps:
      - calls:
          - name: create_file
            arguments: {file_path: web_inside.py, file_contents: PROGRAM}
      - calls:
          - {name: execute_command, arguments: {command: "python3 web_inside.py port", session_name: web, timeout: 0}}
          - name: execute_command
            arguments: {command: "until [ -s port ]; do sleep 0.05; done", blocking: true, session_name: wait}
      - calls: [{name: expose_port, arguments: {port: PORT}}]
      - text: "It is served."
"""


def results(stage: Stage) -> list[str]:
    """What the tools answered, as the model was sent it last."""
    sent: Any = stage.script.requests[-1]["messages"]
    return [one["content"] for one in sent if one["role"] == "tool"]


def offered(stage: Stage) -> set[str]:
    tools: Any = stage.script.requests[-1]["tools"]
    return {one["function"]["name"] for one in tools}


async def told(stage: Stage, words: str) -> list[str]:
    stage.program.start()
    await stage.connected()
    await stage.say(words)
    await stage.settled(1)
    assert set(stage.runs()) == {"completed"}, stage.report()
    return results(stage)


async def test_the_web_is_searched_and_read_and_closed_places_are_not() -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(fake_web_service(pages.PAGES))
        engine = await stack.enter_async_context(fake_web_service(search_engines.DUCKDUCKGO))
        stage = await stack.enter_async_context(
            staged(
                "slack",
                SCENARIO.replace("SITE", site.url),
                search_url=f"{engine.url}/html",
                fetch_allow=f"127.0.0.1:{site.port}",
            )
        )
        found, read, closed, printed = await told(stage, "Look it up")
        assert json.loads(found)["results"][0]["url"] == "https://example.org/oslo?a=1&b=2"
        assert "thirty centimetres" in read
        assert "not on the public internet" in closed
        assert printed.startswith("42\n")
        assert {"web_search", "scrape_webpage", "see_image", "expose_port"} <= offered(stage)
        assert not {"deploy", "image_edit_or_generate", "execute_data_provider_call"} & offered(stage)


async def test_what_is_set_up_is_offered() -> None:
    async with (
        cloudflare.cloudflare() as account,
        staged(
            "slack",
            SCENARIO.replace("SITE", "http://127.0.0.1:9"),
            search_url=f"{account.standing.url}/html",
            cloudflare_api_token=cloudflare.TOKEN,
            cloudflare_account_id=cloudflare.ACCOUNT,
            cloudflare_api_url=account.standing.url,
            rapidapi_key="key-of-rapid",
            image_model="openai/gpt-image-1",
        ) as stage,
    ):
        await told(stage, "Look it up")
        wanted = {"deploy", "image_edit_or_generate", "get_data_provider_endpoints"}
        assert wanted <= offered(stage)
        assert "key-of-rapid" not in json.dumps([*stage.script.requests])


async def test_people_reach_a_program_of_the_sandbox() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    text = Path(web_inside.__file__).read_text()
    program = json.dumps(text.replace('"127.0.0.1", 0', f'"127.0.0.1", {port}'))
    scenario = SCENARIO.replace("PROGRAM", program).replace("PORT}", f"{port}}}")
    async with staged("slack", scenario) as stage:
        said = (await told(stage, "Serve it"))[-1]
        url = re.search(r"http://(\w+\.localhost):(\d+)/", said)
        assert url is not None, said
        assert int(url[2]) == stage.http_port
        async with aiohttp.ClientSession() as http:
            address = f"http://127.0.0.1:{url[2]}/hello?x=1"
            async with http.get(address, headers={"Host": f"{url[1]}:{url[2]}"}) as response:
                assert (await response.json())["path"] == "/hello?x=1"
            async with http.get(address) as response:
                assert response.status == 404
