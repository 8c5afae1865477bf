"""A Modal account: its client, the app and image of its sandboxes, and the translation of the SDK's errors."""

import asyncio
import logging
import time

import grpclib
import modal
from grpclib.exceptions import StreamTerminatedError
from modal import exception
from modal.config import config

from core.domain.errors import SandboxUnavailable
from core.tasks import backoff_seconds, cancel, spawn
from sandbox.modal.image import sandbox_image

SDK_ERRORS = (exception.Error, grpclib.GRPCError, StreamTerminatedError, OSError)
"""What an SDK call may raise if Modal or the network fails."""
GONE = (exception.NotFoundError, exception.ConflictError, exception.ClientClosed)
"""The sandbox, snapshot or handle of a call no longer exists."""

TOLD = "Ask the operator to look at it."
NO_ANSWER = "The service that runs sandboxes does not answer. Try again in a few minutes."
NOT_SET_UP = f"Sandboxes are not set up correctly here. {TOLD}"
NOT_CREATED = f"The sandbox cannot be created here. {TOLD}"
NO_ROOM = "There is no capacity for another sandbox right now. Try again in a few minutes."
PAUSED = f"Sandboxes are paused here. {TOLD}"
FOR_OPERATOR = (NOT_SET_UP, NOT_CREATED, NO_ROOM, PAUSED)
"""What users are told about errors that persist until the operator acts."""
SPEND_LIMIT = (
    PAUSED,
    "the budget of the Modal workspace or environment is used up: raise it in Modal's settings, or wait for the next "
    "billing period",
)
SPEND_WORDS = ("spend limit", "spending limit", "budget", "billing", "usage limit")
_TABLE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        GONE,
        "The sandbox ended just now. Try again.",
        "Modal no longer has the sandbox, app or image: the next call looks for it anew",
    ),
    (exception.AuthError, NOT_SET_UP, "Modal refuses MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"),
    (
        exception.PermissionDeniedError,
        NOT_SET_UP,
        "the Modal token may not do this: check its rights and MODAL_ENVIRONMENT",
    ),
    (
        exception.ResourceExhaustedError,
        NO_ROOM,
        "a limit of the Modal workspace is reached (sandboxes, containers or waiting calls): end some, or raise the "
        "plan's limit",
    ),
    (
        exception.ImageBuildError,
        NOT_CREATED,
        "Modal could not build the image of sandboxes: look at the build's log in its dashboard",
    ),
    (exception.VersionError, NOT_SET_UP, "Modal no longer accepts this SDK: update Threadhand"),
    (exception.InvalidError, NOT_CREATED, "Modal refuses it: check the THREADHAND_MODAL settings"),
    (exception.ConnectionError, NO_ANSWER, "Modal cannot be reached"),
    ((exception.ServiceError, exception.InternalError), NO_ANSWER, "Modal answers with an error"),
    ((exception.TimeoutError, TimeoutError), NO_ANSWER, "Modal takes too long"),
    (OSError, NO_ANSWER, "Modal cannot be reached"),
)
_ELSE = ("The sandbox could not be started. Try again.", "Modal failed")


def unavailable_from_sdk_error(error: Exception, *, doing: str) -> SandboxUnavailable:
    """Returns an error with a message for users, and the facts and the remedy for the operator in `detail`."""
    public, hint = describe_sdk_error(error)
    facts = str(error).strip()[:400] or type(error).__name__
    return SandboxUnavailable(public, detail=f"{doing}: {hint} ({facts})")


def describe_sdk_error(error: Exception) -> tuple[str, str]:
    """Returns the message for users and the hint for the operator."""
    is_build = isinstance(error, exception.ImageBuildError)
    if not is_build and any(word in str(error).lower() for word in SPEND_WORDS):
        return SPEND_LIMIT
    found = ((public, hint) for kind, public, hint in _TABLE if isinstance(error, kind))
    return next(found, _ELSE)


SECRET_SETTINGS = ("token_secret", "oauth_refresh_token", "oauth_client_secret", "oauth_jwt_key")
BUILD_SECONDS_MAX = 1800
BUILD_PAUSE_SECONDS, BUILD_PAUSE_SECONDS_MAX = 30.0, 600.0

log = logging.getLogger(__name__)


class ModalAccount:
    """Connects on first use, as the SDK does: with its environment variables, its configuration file, or the identity
    of the function that this process executes."""

    def __init__(self, app: str) -> None:
        self.app_name = app
        self._opening = asyncio.Lock()
        self._app: modal.App | None = None
        self._building: asyncio.Task[modal.Image] | None = None
        self._builds_failed = 0
        self._build_again_at = 0.0

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, map(config.get, SECRET_SETTINGS)))

    @property
    def is_building(self) -> bool:
        """Whether the image is still being built, which takes minutes the first time."""
        return self._building is not None and not self._building.done()

    async def client(self) -> modal.Client:
        """Returns the SDK's client. Like all methods, raises the SDK's errors."""
        return await modal.Client.from_env.aio()  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out

    async def app(self) -> modal.App:
        async with self._opening:
            if self._app is None:
                self._app = await modal.App.lookup.aio(
                    self.app_name, create_if_missing=True, client=await self.client()
                )
            return self._app

    async def running_sandboxes(self, tags: dict[str, str]) -> list[modal.Sandbox]:
        app, client = await self.app(), await self.client()
        listed = modal.Sandbox.list.aio(app_id=app.app_id, tags=tags, client=client)
        return [sandbox async for sandbox in listed]

    async def image(self) -> modal.Image:
        """Returns the built image. Cancelling the caller does not cancel the build. A failed build is retried after a
        pause that doubles each time; until then, its error is raised again."""
        app = await self.app()
        task = self._building
        has_failed = task and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or (has_failed and time.monotonic() >= self._build_again_at):
            task = self._building = spawn(self._build(app), name="build the image of sandboxes")
        return await asyncio.shield(task)

    def drop_cache(self) -> None:
        """Drops the cached app and image, because Modal no longer has one of them."""
        self._app = None
        if not self.is_building:
            self._building = None

    async def close(self) -> None:
        if self._building is not None:
            await cancel(self._building)
        self._app = self._building = None

    async def _build(self, app: modal.App) -> modal.Image:
        try:
            async with asyncio.timeout(BUILD_SECONDS_MAX):
                image = await sandbox_image().build.aio(app)
        except exception.ImageBuildError:
            self._builds_failed += 1
            pause = backoff_seconds(self._builds_failed, first=BUILD_PAUSE_SECONDS, most=BUILD_PAUSE_SECONDS_MAX)
            self._build_again_at = time.monotonic() + pause
            raise
        self._builds_failed = 0
        return image
