"""The settings of sandboxes: the local jail, Docker containers, and sandboxes and functions at Modal."""

import re
from ipaddress import ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from bots.settings.validation import Endpoints, Names, lowercase

HOST_NAME = re.compile(r"(\*\.)?([A-Za-z0-9-]{1,63}\.){1,30}[A-Za-z0-9-]{1,63}")


def _check_egress(places: tuple[str, ...]) -> tuple[str, ...]:
    return () if [place.lower() for place in places] == ["off"] else tuple(map(_target, places))


def _target(place: str) -> str:
    """Returns a name or an IPv4 network in the form that Modal enforces. Modal accepts other forms, but ignores
    them."""
    if place == "*":
        return place
    name = (urlsplit(place).hostname or "") if "://" in place else place.partition("/")[0]
    name, _, port = name.partition(":") if name.count(":") == 1 else (name, "", "")
    try:
        network = ip_network(place if "://" not in place and not port else name, strict=False)
    except ValueError:
        if HOST_NAME.fullmatch(place):
            return place
        right = f"write {name}" if HOST_NAME.fullmatch(name) else "write a name or an IPv4 network"
        raise ValueError(f"{place} is neither a host name nor a network: {right}") from None
    if network.version != 4:
        raise ValueError(f"{place}: Modal limits IPv4 networks and host names only")
    if str(network) != place and str(network) != f"{place}/32":
        raise ValueError(f"{place} is no network: write {network}")
    return str(network)


Cores = Annotated[float, Field(gt=0, le=64, allow_inf_nan=False)]
Mebibytes = Annotated[int, Field(ge=128, le=344_064)]
EgressTargets = Annotated[Names, AfterValidator(_check_egress)]


class SandboxSettings(BaseModel):
    """Part of `bots.settings.Settings`. The Modal SDK reads the account's token itself, from MODAL_TOKEN_ID and
    MODAL_TOKEN_SECRET."""

    sandbox: Annotated[Literal["local", "modal", "docker", "unsafe-process", "none"], BeforeValidator(lowercase)] = (
        "local"
    )
    sandbox_egress: str = "on"
    sandbox_egress_allow: Endpoints = ()
    sandbox_stop_minutes: float = Field(default=15, ge=2, le=1200, allow_inf_nan=False)
    sandbox_archive_minutes: float = Field(default=120, ge=3, allow_inf_nan=False)
    sandbox_disk_reserve_mebibytes: int = Field(default=512, ge=64, le=1 << 20)
    sandboxes_max: int = Field(default=0, ge=0, le=100_000)
    docker_image: str = Field(
        default="python:3.12-slim", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/:@-]*$", examples=["python:3.12-slim"]
    )

    modal_app: str = Field(
        default="threadhand-sandboxes", pattern="^[A-Za-z0-9._-]{1,63}$", examples=["threadhand-sandboxes"]
    )
    modal_worker_app: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,63}$", examples=["threadhand"])
    modal_cpu: Cores = 0.5
    modal_cpu_max: Cores = 2.0
    modal_memory_mebibytes: Mebibytes = 512
    modal_memory_mebibytes_max: Mebibytes = 4096
    modal_egress: EgressTargets = ("*",)
    modal_start_seconds: float = Field(default=60, ge=1, le=600, allow_inf_nan=False)
    modal_snapshot_days: int = Field(default=30, ge=0, le=3650)
