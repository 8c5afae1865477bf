"""A fake image model on this machine, with OpenAI's endpoints images/generations and images/edits."""

import base64
import io
import json

from aiohttp import web
from PIL import Image

from tests.fakes.made_pictures import picture
from tests.fakes.web_service import form_of

KEY = "sk-draw-secret-0123456789"
DRAWN = picture("PNG", (80, 60), color="blue")


def _refused(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


async def generate(request: web.Request) -> web.Response:
    """Handles `POST /v1/images/generations` with a JSON body."""
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return _refused(401, "invalid_api_key", "Incorrect API key provided.")
    body = json.loads(await request.read())
    if body["model"] != "gpt-image-1" or not body["prompt"] or body["n"] != 1:
        return _refused(400, "invalid_value", "Invalid value.")
    return _image(DRAWN)


async def edit(request: web.Request) -> web.Response:
    """Handles `POST /v1/images/edits`, a form with the picture as a file. Returns the picture in grey."""
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return _refused(401, "invalid_api_key", "Incorrect API key provided.")
    form = await form_of(request)
    file = form.get("image") or form.get("image[]")
    if file is None or file.file_name is None or form["model"].content != b"gpt-image-1":
        return _refused(400, "invalid_value", "Invalid form.")
    assert file.content_type in ("image/png", "image/jpeg")
    out = io.BytesIO()
    Image.open(io.BytesIO(file.content)).convert("L").save(out, "PNG")
    return _image(out.getvalue())


def _image(content: bytes) -> web.Response:
    return web.json_response(encoded_answer(content))


def encoded_answer(content: bytes = DRAWN) -> dict[str, object]:
    encoded = base64.b64encode(content).decode()
    usage = {"input_tokens": 8, "output_tokens": 1000, "total_tokens": 1008}
    usage |= {"input_tokens_details": {"text_tokens": 8, "image_tokens": 0}}
    return {"created": 1, "data": [{"b64_json": encoded}], "usage": usage}


DRAWING = [web.post("/v1/images/generations", generate), web.post("/v1/images/edits", edit)]
