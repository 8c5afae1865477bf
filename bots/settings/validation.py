"""Types of settings values, and the error messages for invalid values."""

import difflib
import json
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_core import ErrorDetails

from core.prompt.system_prompt import find_time_zone
from core.web_access.forward_proxy import parse_forward_proxy

ValueT = TypeVar("ValueT", str, SecretStr, tuple[str, ...])


def _split_at_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
    return value


def require_each(check: Callable[[str], object]) -> AfterValidator:
    """Returns a validator that calls `check` with each text of a value that is not empty. `check` raises ValueError for
    an invalid text."""

    def validate(value: ValueT) -> ValueT:
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        for text in (plain,) if isinstance(plain, str) else plain:
            if text:
                check(text)
        return value

    return AfterValidator(validate)


def require_prefix(*prefixes: str) -> AfterValidator:
    """Returns a validator that rejects non-empty values that do not start with one of the prefixes.

    If the first prefix is `http://`, the validator also removes trailing slashes."""

    def check(value: str) -> str:
        if value and not value.startswith(prefixes):
            raise ValueError(f"it must start with {' or '.join(prefixes)}")
        return value.rstrip("/") if prefixes[0] == "http://" else value

    return AfterValidator(check)


def _refuse_credentials(value: str) -> None:
    """Rejects a user name or password in the address of a service whose key is sent in a header: no HTTP client sends
    both."""
    if "@" in urlsplit(value).netloc:
        raise ValueError("it must not contain a user name or password; the service's key has its own setting")


def require_secret_prefix(prefix: str) -> AfterValidator:
    """Returns a validator that rejects non-empty secrets that do not start with the prefix."""

    def check(secret: str) -> None:
        if not secret.startswith(prefix):
            raise ValueError(f"such a token starts with {prefix}")

    return require_each(check)


def lowercase(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def parse_json_object(value: object) -> object:
    """Parses a text as JSON. Raises ValueError if it is no JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"it is no JSON object: {error}") from error


def _check_time_zone(name: str) -> None:
    if find_time_zone(name) is None:
        raise ValueError(f"there is no time zone {name[:80]}; write one like Europe/Helsinki")


def uppercase(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def parse_endpoint(text: str) -> tuple[str, int]:
    """Parses `ADDRESS:PORT` and returns the IP address and port. IPv6 addresses must be in brackets.

    Raises ValueError if the text has another format."""
    address, _, port = text.rpartition(":")
    try:
        return str(ip_address(address.strip("[]"))), int(port)
    except ValueError as error:
        raise ValueError(f"{text} is no address with a port, such as 127.0.0.1:8080") from error


def _check_network(text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text} is no address or network, such as 192.0.2.0/24") from error


Names = Annotated[tuple[str, ...], BeforeValidator(_split_at_commas)]
Networks = Annotated[Names, require_each(_check_network)]
Endpoints = Annotated[Names, require_each(parse_endpoint)]
WebUrl = Annotated[str, require_prefix("http://", "https://")]
ProxyUrl = Annotated[str, require_each(parse_forward_proxy)]
ServiceUrl = Annotated[WebUrl, require_each(_refuse_credentials)]
TimeZoneName = Annotated[str, require_each(_check_time_zone)]
Dollars = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int | None, Field(ge=0)]


def _none_if_off(value: object) -> object:
    is_off = isinstance(value, str) and value.strip().lower() in ("none", "0")
    return None if is_off or value == 0 else value


BudgetDollars = Annotated[Dollars, BeforeValidator(_none_if_off)]
BudgetTokens = Annotated[Tokens, BeforeValidator(_none_if_off)]
NO_SECRET = SecretStr("")


def describe_unknown_setting(name: str, prefix: str, variables: Sequence[str]) -> str:
    """Returns an error message about an unknown setting. Suggests the setting with the most similar name, if any."""
    known = [variable.removeprefix(prefix) for variable in variables]
    nearest = difflib.get_close_matches(name.removeprefix(prefix).upper(), known, n=1)
    remedy = f"did you mean {prefix}{nearest[0]}?" if nearest else "`threadhand doctor --settings` lists all names."
    return f"{name} is not a setting; {remedy}"


def describe_bad_value(problem: ErrorDetails, name: str, *, is_secret: bool, examples: Sequence[object] = ()) -> str:
    """Returns an error message about an invalid value of a setting. The message never contains a secret value."""
    reasons = {
        "int_parsing": "it must be a whole number",
        "float_parsing": "it must be a number",
        "bool_parsing": "it must be true or false",
    }
    context = problem.get("ctx", {})
    reason = reasons.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "literal_error":
        reason = f"it must be one of {str(context['expected']).replace(' or ', ', ')}"
    elif problem["type"] == "string_pattern_mismatch" and examples:
        reason = f"write it like {examples[0]}"
    reason = reason.replace("Input should be", "it must be")
    text = str(problem["input"])
    is_secret = is_secret or ("://" in text and "@" in text)  # a password in an address
    shown = "" if is_secret else f" ({text[:80]!r})"
    return f"{name} has a bad value{shown}: {reason}."
