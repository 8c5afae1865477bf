"""What people do, what the app hears of it, and what the page shows."""

from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSimulator
from simulator.view import Divider, Markdown, Picture, Select
from tests.integration.simulator.slack.conftest import seen
from tests.integration.simulator.slack.test_web_api import general
from tests.unit.simulator.slack.test_blocks import plain


async def test_every_kind_of_element_is_drawn(slack: SlackSimulator, client: AsyncWebClient) -> None:
    alice = slack.member("alice").user_id
    done = await client.files_upload_v2(content=b"x", filename="a.png")
    picture = {"id": done["files"][0]["id"]}
    rich = {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [
                    {"type": "text", "text": "hi "},
                    {"type": "user", "user_id": alice},
                    {"type": "emoji", "name": "eyes"},
                ],
            }
        ],
    }
    cell = {"type": "raw_text", "text": "a|b"}
    blocks = [
        {"type": "header", "text": plain("Top")},
        {"type": "image", "slack_file": picture, "alt_text": "a picture"},
        rich,
        {"type": "table", "rows": [[cell, cell], [rich, {"type": "raw_number", "value": 2, "text": "2"}]]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": f"by <@{alice}>"}]},
        {"type": "section", "text": plain("who?"), "accessory": {"type": "users_select", "action_id": "who"}},
        {"type": "container", "title": plain("more"), "child_blocks": [{"type": "divider"}]},
    ]
    await client.chat_postMessage(channel=general(slack), text="a", blocks=blocks)
    (message,) = seen(slack).messages
    header, image, text, table, context, question, menu, title, divider = message.elements
    assert header == Markdown(text="Top", flavour="plain", size="header")
    assert isinstance(image, Picture)
    assert "/open/" in image.url
    assert text == Markdown(text="hi @alice:eyes:", flavour="mrkdwn")
    rows = "| a\\|b | a\\|b |\n|---|---|\n| hi @alice:eyes: | 2 |"
    assert table == Markdown(text=rows, flavour="markdown")
    assert context == Markdown(text="by @alice", flavour="mrkdwn", size="small")
    assert question == Markdown(text="who?", flavour="plain")
    assert isinstance(menu, Select)
    assert [option.label for option in menu.options] == ["threadhand", "alice", "bob"]
    assert (title, divider) == (Markdown(text="more", flavour="plain"), Divider())
