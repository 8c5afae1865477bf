"""The bot's side in these tests: plain calls."""

import io
from dataclasses import dataclass
from typing import Any

import aiohttp

from simulator.discord import DiscordSimulator

TOKEN = "test-token"


@dataclass
class Rest:
    """Plain calls with the bot's token: (status, body)."""

    simulator: DiscordSimulator
    session: aiohttp.ClientSession

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = TOKEN,
        form: aiohttp.FormData | None = None,
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bot {token}"} if token else {}
        arguments = {"data": form} if form is not None else {"json": body} if body is not None else {}
        url = self.simulator.api_url + path
        async with self.session.request(method, url, headers=headers, **arguments) as response:
            text = await response.read()
            if response.status == 204:
                return 204, None
            assert response.headers["Content-Type"] == "application/json"
            return response.status, await response.json() if text else None


def form(payload: str, *files: tuple[str, str, bytes]) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    data.add_field("payload_json", payload, content_type="application/json")
    for field, name, content in files:
        data.add_field(field, io.BytesIO(content), filename=name, content_type="application/octet-stream")
    return data
