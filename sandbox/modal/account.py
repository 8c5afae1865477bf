"""The way to a Modal account: its client, the app that sandboxes belong to, and the image they start from."""

import asyncio
import logging

import modal
from modal.config import config

from core.tasks import cancel, spawn
from sandbox.modal.image import sandbox_image

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
