"""The settings of sandboxes, whoever provides them."""

from pydantic import BaseModel, Field

from bots.settings.value_types import Endpoints


class SandboxSettings(BaseModel):
    """Part of `bots.settings.Settings`."""

    sandbox_egress: str = "on"
    sandbox_egress_allow: Endpoints = ()
    sandbox_stop_minutes: float = Field(default=15, ge=2, le=1200, allow_inf_nan=False)
    sandbox_archive_minutes: float = Field(default=120, ge=3, allow_inf_nan=False)
    docker_image: str = Field(
        default="python:3.12-slim",
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/:@-]*$",
        examples=["python:3.12-slim"],
    )
