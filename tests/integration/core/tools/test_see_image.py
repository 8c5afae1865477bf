"""see_image in real sandboxes and on the web, up to what the model is sent."""

import base64
import io
from dataclasses import replace

from PIL import Image

from core.web_access.guard import AddressGuard
from core.web_access.services import WebServices
from tests.fakes.made_pictures import picture
from tests.fakes.web_service import fake_web_service, says
from tests.integration.core.tools.conftest import Bench


async def test_a_file_is_shown_to_the_model(bench: Bench) -> None:
    content = picture("WEBP", (64, 48))
    await bench.put("charts/a.webp", content)
    outcome = await bench.call("see_image", file_path="/workspace/charts/a.webp")
    assert outcome.result["output"] == (
        "charts/a.webp (64 x 48 pixels) comes at the end of your next request, as far as the newest 4 pictures go."
    )
    (message,) = outcome.messages
    assert (message.type, message.is_llm_message) == ("image_context", False)
    encoded = message.content.pop("base64")
    shown = base64.b64decode(str(encoded))
    assert message.content == {
        "mime_type": "image/png",
        "file_path": "charts/a.webp",
        "original_size": len(content),
        "compressed_size": len(shown),
    }
    with Image.open(io.BytesIO(shown)) as image:
        assert image.size == (64, 48)


async def test_a_picture_on_the_web_is_fetched_through_the_guard(bench: Bench) -> None:
    async with fake_web_service([]) as site:
        url = f"{site.url}/a.png"
        assert "public internet" in await bench.error("see_image", file_path=url)
        outside = WebServices(guard=AddressGuard(frozenset([site.endpoint])))
        bench.context = replace(bench.context, outside=outside)
        site.trouble.append(says(picture(), "image/png"))
        outcome = await bench.call("see_image", file_path=url)
        assert [message.content["file_path"] for message in outcome.messages] == [url]
        site.trouble.append(says(b"<html>", "text/html"))
        assert "is no PNG" in await bench.error("see_image", file_path=url)
