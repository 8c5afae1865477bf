"""The control API: HTTP with which a program plays the people of the simulated platforms and arms faults.

`simulator/README.md` describes every call.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler
from grpclib import Status
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from simulator import actions, administration
from simulator.actions import Action, carry_out
from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings
from simulator.modal.server import ModalSimulator
from simulator.serving import refuse_foreign_origins, serve_on_loopback
from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings, SlashCommand
from simulator.view import Markdown, PlatformView, SeenChannel, SeenMessage, SentFile, TaskCard

PREFIX = "/v1"
BODY_BYTES_MAX = 256 * 1024 * 1024
WAIT_SECONDS_MAX = 60.0
SILENT_BOT = "The bot did not answer in time."
ACTION_KINDS = tuple(kind for kind in actions.KINDS if kind != "misbehave")

Json = dict[str, object]
Platform = SlackSimulator | DiscordSimulator
_VIEW: TypeAdapter[PlatformView] = TypeAdapter(PlatformView)
_MESSAGE: TypeAdapter[SeenMessage] = TypeAdapter(SeenMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The simulated services that the control API reaches; None for one that does not run."""

    slack: SlackSimulator | None = None
    discord: DiscordSimulator | None = None
    modal: ModalSimulator | None = None

    def platforms(self) -> Mapping[str, Platform]:
        """The chat platforms that run, by name."""
        named = {"slack": self.slack, "discord": self.discord}
        return {name: platform for name, platform in named.items() if platform is not None}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FaultRequest(_Body):
    """A fault to arm on a chat platform; see simulator/faults.py."""

    fault: str
    method: str = "*"
    times: int = Field(default=1, ge=1)
    seconds: float = Field(default=1.0, ge=0)
    code: str = "internal_error"


class ModalFaultRequest(_Body):
    """A fault of one remote procedure call of Modal. `status` is a gRPC status name; None delays the call only."""

    rpc: str
    status: str | None = None
    message: str = "injected"
    times: int = Field(default=1, ge=1)
    seconds: float = Field(default=0.0, ge=0)
    is_done: bool = False


class SlackChanges(_Body):
    """The settings of the simulated Slack that can change while it runs; those left out stay."""

    scopes: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    commands: tuple[SlashCommand, ...] = ()
    rate_scale: float = Field(default=1.0, ge=0)
    is_history_scarce: bool = False


class DiscordChanges(_Body):
    """The settings of the simulated Discord that can change while it runs; those left out stay."""

    has_message_content_intent: bool = True
    has_members_intent: bool = True
    has_presences_intent: bool = True
    missing_permissions: set[str] = Field(default_factory=set[str])
    hidden_channels: set[str] = Field(default_factory=set[str])
    rate_limit_scale: float = Field(default=1.0, ge=0)
    guild_tier: int = Field(default=0, ge=0, le=3)


SERVICES: web.AppKey[Services] = web.AppKey("services")


def control_app(services: Services) -> web.Application:
    """The control API of these services."""
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[refuse_foreign_origins, _errors_as_json])
    app[SERVICES] = services
    platform = f"{PREFIX}/{{platform:slack|discord}}"
    app.add_routes(
        [
            web.get(PREFIX, _list_services),
            web.get(platform, _for_platform(_view)),
            web.get(f"{platform}/transcript", _for_platform(_transcript)),
            web.get(f"{platform}/changes", _for_platform(_wait_for_change)),
            web.get(f"{platform}/calls", _for_platform(_calls)),
            web.post(f"{platform}/actions/{{kind}}", _for_platform(_act)),
            web.post(f"{platform}/faults", _for_platform(_arm_fault)),
            web.delete(f"{platform}/faults", _for_platform(_clear_faults)),
            web.get(f"{platform}/settings", _for_platform(_settings)),
            web.patch(f"{platform}/settings", _for_platform(_change_settings)),
            web.get(f"{PREFIX}/modal", _modal),
            web.post(f"{PREFIX}/modal/faults", _arm_modal_fault),
            web.delete(f"{PREFIX}/modal/faults", _clear_modal_faults),
        ]
    )
    return app


@asynccontextmanager
async def serve_control(services: Services, *, port: int = 0) -> AsyncGenerator[str, None]:
    """Context manager: serves the control API on 127.0.0.1 and yields its base URL. Raises PortInUse."""
    async with serve_on_loopback(control_app(services), port=port) as url:
        yield url + PREFIX


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        return web.json_response({"message": "; ".join(problems)}, status=400)
    except ValueError as error:
        return web.json_response({"message": str(error)}, status=400)
    except TimeoutError as error:
        return web.json_response({"message": str(error) or SILENT_BOT}, status=504)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return web.json_response({"message": error.text or error.reason}, status=error.status)


Answer = Callable[[web.Request, Platform], Awaitable[Json]]


def _for_platform(answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        name = request.match_info["platform"]
        platform = request.app[SERVICES].platforms().get(name)
        if platform is None:
            raise web.HTTPNotFound(text=f"{name} does not run here.")
        return web.json_response(await answer(request, platform), dumps=_dump_json)

    return handle


def _dump_json(answer: object) -> str:
    return json.dumps(answer, default=str)


async def _list_services(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    names = [*services.platforms(), *(["modal"] if services.modal is not None else [])]
    return web.json_response({"services": names})


async def _view(_request: web.Request, platform: Platform) -> Json:
    return {**_VIEW.dump_python(platform.view(), mode="json"), "version": _version(platform)}


def _version(platform: Platform) -> int:
    holder = platform.workspace if isinstance(platform, SlackSimulator) else platform.world
    return holder.version


async def _transcript(request: web.Request, platform: Platform) -> Json:
    """A channel with its threads, or one thread."""
    channel = _find_channel(platform, request.query.get("channel", ""))
    thread_id = request.query.get("thread_id")
    if thread_id is None:
        return {
            "channel_id": channel.channel_id,
            "name": channel.name,
            "messages": _message_list(channel.messages),
            "threads": [
                {"thread_id": thread.thread_id, "title": thread.title, "messages": _message_list(thread.messages)}
                for thread in channel.threads
            ],
            "version": _version(platform),
        }
    found = next((one.messages for one in channel.threads if one.thread_id == thread_id), None)
    if found is None:
        # a Slack message without replies is a thread of one message
        found = tuple(one for one in channel.messages if one.message_id == thread_id)
    if not found:
        raise web.HTTPNotFound(text=f"There is no thread {thread_id} in {channel.name}.")
    return {
        "channel_id": channel.channel_id,
        "thread_id": thread_id,
        "messages": _message_list(found),
        "version": _version(platform),
    }


def _find_channel(platform: Platform, reference: str) -> SeenChannel:
    """By id, by name, or `@person` for a person's direct messages with the bot."""
    person = reference.removeprefix("@")
    direct = (person, f"dm-{person}") if reference.startswith("@") else ()
    for channel in platform.view().channels:
        is_named = not channel.is_direct and channel.name == reference.removeprefix("#")
        if channel.channel_id == reference or is_named:
            return channel
        if channel.is_direct and channel.name in direct:
            return channel
    raise web.HTTPNotFound(text=f"There is no channel {reference!r}.")


def _message_list(messages: tuple[SeenMessage, ...]) -> list[Json]:
    return [{**_MESSAGE.dump_python(message, mode="json"), "text": _text_of(message)} for message in messages]


def _text_of(message: SeenMessage) -> str:
    """The message's texts and task titles, one below the other."""
    lines: list[str] = []
    for element in message.elements:
        if isinstance(element, Markdown):
            lines.append(element.text)
        elif isinstance(element, TaskCard):
            lines.append(f"{element.title} ({element.status})")
    return "\n".join(lines)


async def _wait_for_change(request: web.Request, platform: Platform) -> Json:
    """Returns as soon as the version is above `after`, or after `seconds`."""
    after = int(request.query.get("after", "-1"))
    seconds = min(float(request.query.get("seconds", "30")), WAIT_SECONDS_MAX)
    try:
        async with asyncio.timeout(seconds):
            async for version in platform.changes():
                if version > after:
                    break
    except TimeoutError:
        pass
    return {"version": _version(platform)}


async def _calls(_request: web.Request, platform: Platform) -> Json:
    """The calls that the bot has made, oldest first."""
    return {"calls": [asdict(call) for call in platform.calls]}


async def _act(request: web.Request, platform: Platform) -> Json:
    kind = request.match_info["kind"]
    if kind not in (*ACTION_KINDS, *administration.KINDS):
        known = ", ".join((*ACTION_KINDS, *administration.KINDS))
        raise web.HTTPNotFound(text=f"There is no action {kind}; use {known}.")
    fields, files = await _read_action(request)
    for name in ("channel_id", "from_channel_id"):
        if fields.get(name):
            fields[name] = _find_channel(platform, str(fields[name])).channel_id
    if rare := administration.KINDS.get(kind):
        wanted = rare.model_validate(fields)
        return {"id": await administration.administer(platform, wanted)}
    action = Action.model_validate({**fields, "kind": kind})
    made = await carry_out(platform, action, files)
    return {"id": made} if isinstance(made, str) else {"values": [asdict(one) for one in made]}


async def _read_action(request: web.Request) -> tuple[Json, list[SentFile]]:
    """The fields and the files of an action: a JSON object, or a form with the object in its field `action`."""
    if not request.content_type.startswith("multipart/"):
        fields = await _read_object(request)
        listed = cast("list[object]", fields.pop("files", []))
        return fields, [_Base64File.model_validate(one).to_sent_file() for one in listed]
    form = await request.post()
    files = [
        SentFile(name=value.filename, content=value.file.read(), mime_type=value.content_type)
        for value in form.values()
        if isinstance(value, web.FileField)
    ]
    return _parse_object(str(form.get("action", "{}"))), files


class _Base64File(_Body):
    name: str
    content_base64: str
    mime_type: str = "application/octet-stream"

    def to_sent_file(self) -> SentFile:
        content = b64decode(self.content_base64, validate=True)
        return SentFile(name=self.name, content=content, mime_type=self.mime_type)


async def _read_object(request: web.Request) -> Json:
    return _parse_object(await request.text() or "{}")


def _parse_object(text: str) -> Json:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("The body is no JSON object.")
    return cast(Json, parsed)


async def _arm_fault(request: web.Request, platform: Platform) -> Json:
    wanted = FaultRequest.model_validate(await _read_object(request))
    platform.misbehave(wanted.fault, method=wanted.method, times=wanted.times, seconds=wanted.seconds, code=wanted.code)
    return {}


async def _clear_faults(_request: web.Request, platform: Platform) -> Json:
    platform.misbehave("none")
    return {}


async def _settings(_request: web.Request, platform: Platform) -> Json:
    kind = SlackChanges if isinstance(platform, SlackSimulator) else DiscordChanges
    settings: SlackSettings | DiscordSettings = platform.settings
    now = kind.model_validate({name: getattr(settings, name) for name in kind.model_fields})
    return now.model_dump(mode="json")


async def _change_settings(request: web.Request, platform: Platform) -> Json:
    if isinstance(platform, SlackSimulator):
        wanted = SlackChanges.model_validate(await _read_object(request))
        changes = {name: getattr(wanted, name) for name in wanted.model_fields_set}
        platform.configure(replace(platform.settings, **changes))
    else:
        wanted = DiscordChanges.model_validate(await _read_object(request))
        for name in wanted.model_fields_set:
            setattr(platform.settings, name, getattr(wanted, name))
    return await _settings(request, platform)


def _running_modal(request: web.Request) -> ModalSimulator:
    modal = request.app[SERVICES].modal
    if modal is None:
        raise web.HTTPNotFound(text="modal does not run here.")
    return modal


async def _modal(request: web.Request) -> web.Response:
    """The calls so far, by name, and the sandboxes."""
    modal = _running_modal(request)
    sandboxes = [
        {
            "sandbox_id": sandbox.sandbox_id,
            "name": sandbox.name,
            "tags": sandbox.tags,
            "is_running": sandbox.result is None,
        }
        for sandbox in modal.world.sandboxes.values()
    ]
    return web.json_response({"calls": modal.calls, "sandboxes": sandboxes})


async def _arm_modal_fault(request: web.Request) -> web.Response:
    modal = _running_modal(request)
    wanted = ModalFaultRequest.model_validate(await _read_object(request))
    if wanted.status is not None and wanted.status not in Status.__members__:
        raise ValueError(f"There is no gRPC status {wanted.status}.")
    modal.faults.arm(
        wanted.rpc,
        Status[wanted.status] if wanted.status is not None else None,
        wanted.message,
        times=wanted.times,
        seconds=wanted.seconds,
        is_done=wanted.is_done,
    )
    return web.json_response({})


async def _clear_modal_faults(request: web.Request) -> web.Response:
    _running_modal(request).faults.armed.clear()
    return web.json_response({})
