"""Serves the page: what is seen as a stream of views, what people do as posts."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import PurePath

from aiohttp import web
from pydantic import TypeAdapter

from simulator.actions import Action, carry_out
from simulator.serving import cancel, refuse_foreign_origins, serve_on_loopback, spawn
from simulator.view import PlatformView, SentFile, SimulatedPlatform

VIEW: TypeAdapter[PlatformView] = TypeAdapter(PlatformView)
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json"}
FEED_SECONDS = 0.1
UPLOAD_BYTES_MAX = 256 * 1024 * 1024
# files are shown from the simulators' own ports; nothing else is loaded from anywhere
POLICY = (
    "default-src 'self'; img-src 'self' data: http://127.0.0.1:* http://localhost:*; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'; object-src 'none'"
)
Platforms = Mapping[str, SimulatedPlatform]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the page offers to begin with: a request, most with a file, filled in by one click.

    If `plays_on` names a platform, the page sends the request there by itself when it opens, unless somebody has
    written before, and presses the button labelled `choice`, if there is one, when the bot asks.
    """

    label: str
    text: str
    file: SentFile | None = None
    plays_on: str = ""
    choice: str = ""

    def shown(self) -> dict[str, str]:
        """As the page takes it, with the file in base64."""
        return {
            "label": self.label,
            "text": self.text,
            "file_name": self.file.name if self.file else "",
            "mime_type": self.file.mime_type if self.file else "",
            "content": b64encode(self.file.content).decode() if self.file else "",
            "plays_on": self.plays_on,
            "choice": self.choice,
        }


PLATFORMS: web.AppKey[Platforms] = web.AppKey("platforms")
SAMPLES: web.AppKey[Sequence[Sample]] = web.AppKey("samples")


def page_app(platforms: Platforms, samples: Sequence[Sample] = ()) -> web.Application:
    """The page for these platforms, named as their views name them."""
    app = web.Application(client_max_size=UPLOAD_BYTES_MAX, middlewares=[refuse_foreign_origins])
    app[PLATFORMS] = platforms
    app[SAMPLES] = samples
    app.add_routes(
        [
            web.get("/feed", _feed),
            web.get("/samples", _samples),
            web.post("/act/{platform}", _act),
            web.get("/{name:[a-z.]*}", _static),
        ]
    )
    return app


@asynccontextmanager
async def served_page(
    platforms: Platforms, *, port: int | None, samples: Sequence[Sample] = ()
) -> AsyncGenerator[str, None]:
    """Serves on 127.0.0.1 while entered; yields the page's address. Raises PortInUse."""
    async with serve_on_loopback(page_app(platforms, samples), port=port or 0) as url:
        yield f"{url}/"


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"] or "index.html"
    mime_type = TYPES.get(PurePath(name).suffix)
    file = files("simulator.page") / name
    if mime_type is None or not file.is_file():
        raise web.HTTPNotFound
    text = file.read_text(encoding="utf-8")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return web.Response(text=text, content_type=mime_type, headers=headers)


async def _samples(request: web.Request) -> web.Response:
    return web.json_response([sample.shown() for sample in request.app[SAMPLES]])


async def _feed(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    changed: asyncio.Queue[str] = asyncio.Queue()
    watchers = [
        spawn(_watch(name, platform, changed), name=f"page feed of {name}")
        for name, platform in request.app[PLATFORMS].items()
    ]
    try:
        while True:
            names = {await changed.get()}
            await asyncio.sleep(FEED_SECONDS)
            while not changed.empty():
                names.add(changed.get_nowait())
            for name in sorted(names):
                view = VIEW.dump_json(request.app[PLATFORMS][name].view())
                await response.write(b"event: view\ndata: " + view + b"\n\n")
    except ConnectionError:
        return response
    finally:
        for watcher in watchers:
            await cancel(watcher)


async def _watch(name: str, platform: SimulatedPlatform, changed: "asyncio.Queue[str]") -> None:
    async for _ in platform.changes():
        changed.put_nowait(name)


async def _act(request: web.Request) -> web.Response:
    platform = request.app[PLATFORMS].get(request.match_info["platform"])
    if platform is None:
        raise web.HTTPNotFound(text="There is no such platform here.")
    form = await request.post()
    uploads = [
        SentFile(name=value.filename, content=value.file.read(), mime_type=value.content_type)
        for value in form.values()
        if isinstance(value, web.FileField) and value.filename
    ]
    try:
        action = Action.model_validate_json(str(form.get("action", "{}")))
        made = await carry_out(platform, action, uploads)
    except (ValueError, TimeoutError) as error:
        message = str(error) or "The bot did not answer in 3 seconds."
        return web.json_response({"message": message}, status=400)
    return web.json_response({"id": made if isinstance(made, str) else [asdict(one) for one in made]})
