"""The settings of sandboxes: the local jail, Docker containers, and sandboxes and functions at Modal."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from bots.settings.validation import Endpoints, Names, lowercase


def _empty_if_off(places: tuple[str, ...]) -> tuple[str, ...]:
    return () if [place.lower() for place in places] == ["off"] else places


Cores = Annotated[float, Field(gt=0, le=64, allow_inf_nan=False)]
Mebibytes = Annotated[int, Field(ge=128, le=344_064)]
EgressTargets = Annotated[Names, AfterValidator(_empty_if_off)]


class SandboxSettings(BaseModel):
    """Part of `bots.settings.Settings`. The Modal SDK reads the account's token itself, from MODAL_TOKEN_ID and
    MODAL_TOKEN_SECRET."""

    sandbox: Annotated[
        Literal["local", "modal", "docker", "unsafe-process", "none"], BeforeValidator(lowercase)
    ] = "local"
    sandbox_egress: str = "on"
    sandbox_egress_allow: Endpoints = ()
    sandbox_stop_minutes: float = Field(default=15, ge=2, le=1200, allow_inf_nan=False)
    sandbox_archive_minutes: float = Field(default=120, ge=3, allow_inf_nan=False)
    docker_image: str = Field(
        default="python:3.12-slim",
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/:@-]*$",
        examples=["python:3.12-slim"],
    )

    modal_app: str = Field(
        default="threadhand", pattern="^[A-Za-z0-9._-]{1,63}$", examples=["threadhand"]
    )
    modal_worker_app: str = Field(
        default="", pattern="^[A-Za-z0-9._-]{0,63}$", examples=["threadhand"]
    )
    modal_cpu: Cores = 0.5
    modal_cpu_max: Cores = 2.0
    modal_memory_mebibytes: Mebibytes = 512
    modal_memory_mebibytes_max: Mebibytes = 4096
    modal_egress: EgressTargets = ("*",)
    modal_start_seconds: float = Field(default=60, ge=1, le=600, allow_inf_nan=False)
    modal_snapshot_days: int = Field(default=30, ge=0, le=3650)
