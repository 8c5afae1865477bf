"""What apps, moderators and admins cannot do on a platform is refused by the control API."""

from typing import Any

import aiohttp
import pytest

from simulator.control import Services, serve_control
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator


@pytest.mark.parametrize(
    ("platform", "kind", "fields"),
    [
        ("slack", "lock", {"thread_id": "1.0"}),
        ("slack", "reply", {"person": "bob", "message_id": "1.0", "text": "x"}),
        ("slack", "permissions", {"denied": ["SEND_MESSAGES"]}),
        ("discord", "membership", {"is_member": False}),
        ("discord", "paste_table", {"person": "bob", "rows": [["a"]]}),
        ("discord", "permissions", {"denied": ["SING"]}),
        ("discord", "lock", {"thread_id": "1"}),
        ("discord", "post_as_app", {"text": "x", "attachments": [{}]}),
        ("discord", "post_as_app", {"text": "x", "blocks": [{}]}),
    ],
)
async def test_what_a_platform_has_not_is_refused_with_a_sentence(
    platform: str, kind: str, fields: dict[str, Any]
) -> None:
    async with (
        SlackSimulator() as slack,
        DiscordSimulator() as discord,
        serve_control(Services(slack=slack, discord=discord)) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/{platform}/actions/{kind}", json={"channel_id": "general"} | fields) as refused,
    ):
        assert refused.status == 400
        assert (await refused.json())["message"]
