"""The way to a Modal account: its client, the app that sandboxes belong to, and the image they start from."""

import asyncio
import logging

import grpclib
import grpclib.exceptions
import modal
import modal.exception
from modal.config import config

from core.domain.errors import SandboxUnavailable
from core.tasks import cancel, spawn
from sandbox.modal.image import sandbox_image

SDK_ERRORS: tuple[type[Exception], ...] = (
    modal.exception.Error,
    grpclib.GRPCError,
    grpclib.exceptions.StreamTerminatedError,
    OSError,
    TimeoutError,
)
"""All that a call of the SDK may raise when Modal, or the way there, is at fault."""
GONE = (modal.exception.NotFoundError, modal.exception.ConflictError, modal.exception.ClientClosed)
"""The sandbox, snapshot or handle that a call was about is not there any more."""

TOLD = "The operator has to look at it."
NO_ANSWER = "The service that runs sandboxes does not answer. Try again in a few minutes."
_TABLE: tuple[tuple[type[Exception], str, str], ...] = (
    (
        modal.exception.AuthError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "Modal refuses the token: check MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
    ),
    (
        modal.exception.PermissionDeniedError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "the Modal token may not do this: check its rights and MODAL_ENVIRONMENT",
    ),
    (
        modal.exception.ResourceExhaustedError,
        "There is no room for another sandbox just now. Try again in a few minutes.",
        "a limit of the Modal workspace is reached: end sandboxes, or raise the plan's limit",
    ),
    (
        modal.exception.ImageBuildError,
        f"The sandbox cannot be made here. {TOLD}",
        "Modal could not build the image of sandboxes: look at the build's log in its dashboard",
    ),
    (
        modal.exception.VersionError,
        f"Sandboxes are not set up correctly here. {TOLD}",
        "Modal does not take this version of its SDK: update Threadhand",
    ),
    (
        modal.exception.InvalidError,
        f"The sandbox cannot be made here. {TOLD}",
        "Modal refuses the request: check the THREADHAND_MODAL settings",
    ),
    (modal.exception.ConnectionError, NO_ANSWER, "Modal cannot be reached"),
    (modal.exception.ServiceError, NO_ANSWER, "Modal answers with a fault"),
    (modal.exception.InternalError, NO_ANSWER, "Modal answers with a fault"),
    (modal.exception.TimeoutError, NO_ANSWER, "Modal takes too long"),
    (TimeoutError, NO_ANSWER, "Modal takes too long"),
    (OSError, NO_ANSWER, "Modal cannot be reached"),
)
_ELSE = ("The sandbox could not be started. Try again.", "Modal failed")
FOR_OPERATOR = (
    modal.exception.AuthError,
    modal.exception.PermissionDeniedError,
    modal.exception.ResourceExhaustedError,
    modal.exception.ImageBuildError,
    modal.exception.VersionError,
    modal.exception.InvalidError,
)
"""Those that will not pass before somebody does something."""


def unavailable_from_sdk_error(error: Exception, *, doing: str) -> SandboxUnavailable:
    """A sentence for people, and in `detail` the facts with the remedy for the operator."""
    public, hint = describe_sdk_error(error)
    facts = str(error).strip()[:400] or type(error).__name__
    return SandboxUnavailable(public, detail=f"{doing}: {hint} ({facts})")


def describe_sdk_error(error: Exception) -> tuple[str, str]:
    """The sentence for people and that for the operator."""
    found = ((public, hint) for kind, public, hint in _TABLE if isinstance(error, kind))
    return next(found, _ELSE)


BUILD_SECONDS_MAX = 1800
CLOSE_SECONDS = 5.0

log = logging.getLogger(__name__)


class ModalAccount:
    """Opened at the first need. Tokens come from the SDK's own variables or its configuration file."""

    def __init__(self, app: str) -> None:
        self._app_name = app
        self._opening = asyncio.Lock()
        self._client: modal.Client | None = None
        self._is_own = False
        self._app: modal.App | None = None
        self._building: asyncio.Task[modal.Image] | None = None

    @property
    def app_name(self) -> str:
        return self._app_name

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [config.get("token_secret")]))

    @property
    def is_building(self) -> bool:
        """Whether the image is still being made, which takes minutes the first time."""
        return self._building is not None and not self._building.done()

    async def client(self) -> modal.Client:
        """Raises the SDK's errors; so do all here."""
        async with self._opening:
            if self._client is None:
                token_id, secret = config.get("token_id"), config.get("token_secret")
                self._is_own = bool(token_id and secret)
                if self._is_own:
                    self._client = await modal.Client.from_credentials.aio(token_id, secret)
                else:
                    self._client = await modal.Client.from_env.aio()  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out
            return self._client

    async def app(self) -> modal.App:
        client = await self.client()
        if self._app is None:
            self._app = await modal.App.lookup.aio(
                self._app_name, create_if_missing=True, client=client
            )
        return self._app

    async def image(self) -> modal.Image:
        """The built image. Who stops waiting does not stop the building."""
        app = await self.app()
        if self._building is None or (self._building.done() and failed(self._building)):
            self._building = spawn(_built(app), name="the image of sandboxes")
        return await asyncio.shield(self._building)

    async def close(self) -> None:
        if self._building is not None:
            await cancel(self._building)
        if self._client is not None and self._is_own:
            closing = spawn(self._client.close.aio(), name="close the way to Modal")
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)
        self._client = self._app = self._building = None


def failed(task: "asyncio.Task[modal.Image]") -> bool:
    return task.cancelled() or task.exception() is not None


async def _built(app: modal.App) -> modal.Image:
    async with asyncio.timeout(BUILD_SECONDS_MAX):
        return await sandbox_image().build.aio(app)
