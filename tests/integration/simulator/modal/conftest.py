"""The real SDK at the simulated Modal, with what every test needs of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import modal
import pytest

from simulator.modal.server import ModalSimulator
from tests.integration.sandbox.modal_stage import modal_stage


@dataclass(frozen=True)
class Account:
    simulator: ModalSimulator
    client: modal.Client
    app: modal.App
    image: modal.Image

    async def sandbox(self, name: str | None = None, **more: Any) -> modal.Sandbox:
        settings = {"timeout": 3600, "idle_timeout": 600, "block_network": True, **more}
        return await modal.Sandbox.create.aio(app=self.app, image=self.image, name=name, client=self.client, **settings)


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    async with modal_stage() as stage:
        credentials = stage.modal.world.credentials
        client = await modal.Client.from_credentials.aio(*credentials)
        app = await modal.App.lookup.aio("test", create_if_missing=True, client=client)
        image = await modal.Image.from_registry("python:3.11").build.aio(app)
        yield Account(stage.modal, client, app, image)
        await client.close.aio()
