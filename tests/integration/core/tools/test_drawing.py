"""Drawing and looking at pictures in real sandboxes, up to what the model is sent."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from PIL import Image

from bots.bootstrap.web_access import build_web_services
from bots.settings import load_settings
from core.domain.errors import ToolError
from core.domain.threads import Usage
from core.llm.litellm_client import LiteLLMClient
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import UNPRICED_PICTURE_USD, ImageGenerator
from core.web_access.services import WebServices
from tests.fakes.drawing import DRAWING, DRAWN, KEY
from tests.fakes.made_pictures import picture
from tests.fakes.web_service import Answer, FakeWebService, fake_web_service, refusal, says
from tests.integration.core.tools.conftest import Bench
from tests.support.narrow import require_type
from tests.support.waiting import until

# litellm rebuilds its own models, with warnings
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
async def model(bench: Bench) -> AsyncIterator[FakeWebService]:
    async with fake_web_service(DRAWING) as service:
        await set_up(bench, service)
        yield service
        await bench.context.outside.close()


async def set_up(bench: Bench, service: FakeWebService, key: str = KEY) -> None:
    settings = {
        "THREADHAND_DATA_DIR": "/nowhere",
        "THREADHAND_IMAGE_MODEL": "openai/gpt-image-1",
        "THREADHAND_IMAGE_API_KEY": key,
        "THREADHAND_IMAGE_API_URL": f"{service.url}/v1",
        "THREADHAND_FETCH_ALLOW": f"127.0.0.1:{service.port}",
    }
    await bench.context.outside.close()
    bench.context = replace(bench.context, outside=build_web_services(load_settings(settings, None)))


async def test_a_picture_is_drawn_saved_and_shown(bench: Bench, model: FakeWebService) -> None:
    outcome = await bench.call("image_edit_or_generate", mode="generate", prompt="a blue field")
    assert outcome.outcome == "completed", outcome.result
    output = require_type(outcome.result["output"], dict)
    path = str(output["file_path"])
    assert path.startswith("images/picture_")
    assert await bench.get(path) == DRAWN
    (message,) = outcome.messages
    assert (message.type, message.content["file_path"]) == ("image_context", path)
    shown = base64.b64decode(str(message.content["base64"]))
    with Image.open(io.BytesIO(shown)) as image:
        assert image.size == (80, 60)
    assert json.loads(model.asked[0].body)["prompt"] == "a blue field"


async def silent(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def impatient(service: FakeWebService, seconds: float) -> ImageGenerator:
    source = LiteLLMClient(api_key=KEY, base_url=f"{service.url}/v1", silence_seconds=seconds)
    return ImageGenerator(source, "openai/gpt-image-1", AddressGuard(frozenset({service.endpoint})))


async def test_a_picture_that_nobody_waits_for_is_booked_and_a_refused_one_is_not() -> None:
    told: list[Usage] = []
    async with fake_web_service(DRAWING) as service:
        image_generator = impatient(service, 60)
        service.faults["/generations"] = refusal(429, {"error": {"message": "slow"}})
        with pytest.raises(ToolError):
            await image_generator.draw("a field", spent=lambda _, used: told.append(used))
        assert told == []
        service.faults["/generations"] = silent
        asked = len(service.asked)
        drawing = asyncio.ensure_future(image_generator.draw("a field", spent=lambda _, used: told.append(used)))
        await until(lambda: len(service.asked) != asked)
        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing
        await image_generator.close()
    assert len(told) == 1


async def test_a_picture_is_edited_from_a_file_and_from_an_address(bench: Bench, model: FakeWebService) -> None:
    await bench.put("logo.jpg", picture("JPEG", (70, 50)))
    for place in ("logo.jpg", f"{model.url}/logo.jpg"):
        if place != "logo.jpg":
            model.trouble.append(says(picture("WEBP", (70, 50)), "image/webp"))
        outcome = await bench.call("image_edit_or_generate", mode="edit", prompt="in grey", image_path=place)
        assert outcome.outcome == "completed", outcome.result
        output = require_type(outcome.result["output"], dict)
        with Image.open(io.BytesIO(await bench.get(str(output["file_path"])))) as made:
            assert (made.size, made.mode) == ((70, 50), "L")


async def test_a_model_that_answers_with_an_address_is_fetched_from(bench: Bench, model: FakeWebService) -> None:
    body = {"created": 1, "data": [{"url": f"{model.url}/made.png"}]}
    model.trouble.extend([says(json.dumps(body).encode()), says(picture(), "image/png")])
    outcome = await bench.call("image_edit_or_generate", mode="generate", prompt="red")
    assert outcome.outcome == "completed", outcome.result
    body["data"] = [{"url": "http://169.254.169.254/latest"}]
    model.trouble.append(says(json.dumps(body).encode()))
    error = await bench.error("image_edit_or_generate", mode="generate", prompt="red")
    assert "public internet" in error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(402, {"error": {"message": "no", "code": "insufficient_quota"}}), "no credit left"),
        (refusal(429, {"error": {"message": "slow down"}}, Retry_After="0.01"), "slow down"),
        (refusal(500, {"error": {"message": "x"}}), "No picture was made"),
        (refusal(400, {"error": {"message": "no", "code": "content_policy_violation"}}), "because of its content"),
        (says(b"{broken"), "No picture was made"),
        (says(b'{"created": 1, "data": []}'), "form that is not known"),
        (says(b'{"created": 1, "data": [{"b64_json": "###"}]}'), "form that is not known"),
        (says('{"created": 1, "data": [{"b64_json": "éé=="}]}'.encode()), "form that is not known"),
        (says(b'{"created": 1, "data": [{"b64_json": "aGVsbG8="}]}'), "none that can be used"),
    ],
)
async def test_what_goes_wrong_there_is_told(bench: Bench, model: FakeWebService, answer: Answer, said: str) -> None:
    model.trouble.extend([answer] * 6)  # the client below litellm tries again
    error = await bench.error("image_edit_or_generate", mode="generate", prompt="x")
    assert said in error
    assert KEY not in error


async def test_a_wrong_key_is_told_without_it(
    bench: Bench, model: FakeWebService, caplog: pytest.LogCaptureFixture
) -> None:
    await set_up(bench, model, "sk-wrong-0987654321")
    error = await bench.error("image_edit_or_generate", mode="generate", prompt="x")
    assert "refuses our key" in error
    assert "0987654321" not in error + caplog.text


async def test_what_cannot_be_edited_is_told_before_the_model_is_asked(bench: Bench, model: FakeWebService) -> None:
    await bench.put("notes.txt", b"words")
    for arguments, said in (
        ({"mode": "edit", "prompt": "x"}, "needs image_path"),
        ({"mode": "edit", "prompt": "x", "image_path": "notes.txt"}, "is no PNG"),
        ({"mode": "edit", "prompt": "x", "image_path": "gone.png"}, "no such file"),
        ({"mode": "paint", "prompt": "x"}, "do not fit"),
    ):
        assert said in await bench.error("image_edit_or_generate", **arguments)
    assert model.asked == []


async def test_a_picture_that_came_too_late_counts_as_much_as_the_last_one() -> None:
    told: list[Usage] = []
    async with fake_web_service(DRAWING) as service:
        image_generator = impatient(service, 5)
        service.faults["/generations"] = silent
        with pytest.raises(ToolError, match="in time"):
            await image_generator.draw("a field " * 100, spent=lambda _, used: told.append(used))
        service.faults.clear()
        await image_generator.draw("a field", spent=lambda _, used: told.append(used))
        service.faults["/generations"] = silent
        with pytest.raises(ToolError, match="in time"):
            await image_generator.draw("a field", spent=lambda _, used: told.append(used))
        await image_generator.close()

    first, drawn, late = told
    assert (first.output_tokens, first.cost_usd) == (0, UNPRICED_PICTURE_USD)
    assert 80 <= first.input_tokens <= 400
    assert late == drawn
    assert late.estimated_usd == late.cost_usd > 0


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
