"""The kinds of values that settings have."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
    return value


def starts_with(*starts: str) -> AfterValidator:
    def check(value: str) -> str:
        if value and not value.startswith(starts):
            raise ValueError(f"it must start with {' or '.join(starts)}")
        return value.rstrip("/") if starts[0] == "http://" else value

    return AfterValidator(check)


def secret_starts_with(start: str) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not value.get_secret_value().startswith(start):
            raise ValueError(f"such a token starts with {start}")
        return value

    return AfterValidator(check)


def lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def endpoint(text: str) -> tuple[str, int]:
    """Address and port of `ADDRESS:PORT`, an IPv6 address in brackets. Raises ValueError."""
    address, _, port = text.rpartition(":")
    try:
        return str(ip_address(address.strip("[]"))), int(port)
    except ValueError as error:
        raise ValueError(f"{text} is no address with a port, such as 127.0.0.1:8080") from error


def _are_endpoints(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        endpoint(text)
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Endpoints = Annotated[Names, AfterValidator(_are_endpoints)]
WebUrl = Annotated[str, starts_with("http://", "https://")]
Dollars = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int | None, Field(ge=0)]
NO_SECRET = SecretStr("")
