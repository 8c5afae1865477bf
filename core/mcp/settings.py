"""Reads the settings of MCP servers."""

import re
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from core.domain.errors import ConfigurationError
from core.mcp.tool_names import tool_name_prefix

NAME_CHARACTERS_MAX = 32
SERVERS_MAX = 50
SECRET_CHARACTERS_MIN = 4
PROGRESS_EXTENSION = 10
CALL_SECONDS_MAX = 3_600.0
WRITES = "writes"
"""A value of `needs_approval` that selects every tool that its server does not mark as read-only."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]{0,400}))?\}")
_TRANSPORTS: Mapping[object, str] = {"streamable-http": "http", "streamable_http": "http", "streamablehttp": "http"}


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("it must be an address that starts with http:// or https://")
    return value


def _header_lines(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"{name!r} is no name of a header")
        if not text.isprintable() or not text.isascii():
            raise ValueError(f"the value of {name} has characters that a header cannot hold")
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError(f"{name!r} cannot be set as a variable")
    return value


def _strings(value: object) -> object:
    """Converts numbers and booleans to strings, because YAML reads `PORT: 8080` as a number."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(one).lower() if isinstance(one, bool) else str(one) if isinstance(one, int | float) else one
        for key, one in cast(dict[object, object], value).items()
    }


Variables = Annotated[dict[str, str], BeforeValidator(_strings), AfterValidator(_environment), Field(repr=False)]
Headers = Annotated[dict[str, str], BeforeValidator(_strings), AfterValidator(_header_lines), Field(repr=False)]


class OAuthSettings(BaseModel):
    """How a server over HTTP authorizes this program.

    `client_credentials` needs a `client_id`, its `client_secret` or `private_key`, and the `issuer` that they belong
    to; they are sent nowhere else. `authorization_code` needs a person's consent once (`threadhand mcp-login`). The
    program registers itself unless it has a `client_id` or a `client_metadata_url`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    private_key: str = Field(default="", repr=False)
    signing_algorithm: str = "ES256"
    issuer: Annotated[str, AfterValidator(_web_address)] = ""
    scope: str = ""
    client_metadata_url: Annotated[str, AfterValidator(_web_address)] = ""
    redirect_uri: Annotated[str, AfterValidator(_web_address)] = "http://127.0.0.1:8712/callback"
    token_folder: Path | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> "OAuthSettings":
        has_key = bool(self.client_secret or self.private_key)
        if self.grant == "client_credentials" and not (self.client_id and has_key and self.issuer):
            raise ValueError("client_credentials needs client_id, client_secret or private_key, and issuer")
        if urlsplit(self.redirect_uri).hostname not in ("127.0.0.1", "localhost"):
            raise ValueError("redirect_uri must be on this machine (127.0.0.1 or localhost)")
        return self


class McpServerConfig(BaseModel):
    """One server. `enabled_tools` and `needs_approval` are patterns of the server's own tool names.

    Once a run has read text from outside, the server's claim that a tool is read-only counts only if the server is
    `trusted`. The tool descriptions of any other server count as text from outside themselves. `protocol: legacy` skips
    the first message of MCP 2026-07-28, for servers that fail on it. `secrets` are the values that replaced `${NAME}`
    references; they are redacted from the server's log."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(max_length=NAME_CHARACTERS_MAX)
    transport: Annotated[Literal["stdio", "sse", "http"], BeforeValidator(lambda value: _TRANSPORTS.get(value, value))]
    command: str = ""
    args: tuple[str, ...] = Field(default=(), repr=False)
    env: Variables = Field(default_factory=dict[str, str])
    cwd: str | None = None
    url: Annotated[str, AfterValidator(_web_address)] = Field(default="", repr=False)
    headers: Headers = Field(default_factory=dict[str, str])
    oauth: OAuthSettings | None = None
    enabled_tools: tuple[str, ...] = ("*",)
    needs_approval: tuple[str, ...] | Literal["writes"] = WRITES
    trusted: bool = False
    protocol: Literal["auto", "legacy"] = "auto"
    connect_timeout_seconds: float = Field(default=30, gt=0, le=600)
    call_timeout_seconds: float = Field(default=120, gt=0, le=3600)
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)

    @model_validator(mode="after")
    def _is_whole(self) -> "McpServerConfig":
        if not _NAME.fullmatch(self.name):
            raise ValueError("its name may hold letters, digits, - and _ and starts with no sign")
        if self.transport == "stdio":
            if not self.command:
                raise ValueError("a server over stdio needs a command")
            if self.url or self.headers or self.oauth:
                raise ValueError("url, headers and oauth belong to sse and http, not to stdio")
        elif not self.url:
            raise ValueError(f"a server over {self.transport} needs a url")
        elif self.command or self.args or self.env or self.cwd:
            raise ValueError("command, args, env and cwd belong to stdio")
        return self


def longest_call_seconds(config: McpServerConfig) -> float:
    """Returns how long a call may take if its server reports progress. Each report restarts the time limit of the
    call."""
    return min(CALL_SECONDS_MAX, PROGRESS_EXTENSION * config.call_timeout_seconds)


def read_servers(file: Path, secrets: Mapping[str, str]) -> tuple[McpServerConfig, ...]:
    """Returns the servers of a settings file (see `parse_servers`).

    Raises ConfigurationError if the file cannot be read or is invalid."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise ConfigurationError(
            f"The MCP settings {file} cannot be read ({why}): correct THREADHAND_MCP_CONFIG."
        ) from error
    return parse_servers(text, secrets)


def parse_servers(text: str, secrets: Mapping[str, str]) -> tuple[McpServerConfig, ...]:
    """Returns the servers of a settings file: a mapping `servers` (or `mcpServers`) from names to definitions.

    `${NAME}` in a command, argument, variable, address or header is replaced by the value in `secrets`, and
    `${NAME:-text}` by the text if there is no value. Raises ConfigurationError, whose message holds no values."""
    configs = tuple(_server(name, entry, secrets) for name, entry in _entries(text).items())
    for one, other in permutations(configs, 2):
        if tool_name_prefix(other.name).startswith(tool_name_prefix(one.name)):
            raise ConfigurationError(
                f"The MCP servers {one.name!r} and {other.name!r} could not be told apart in the names of their tools: "
                "rename one, for example with a - in place of the _."
            )
    return configs


def _entries(text: str) -> dict[str, object]:
    try:
        whole: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError(f"The MCP settings are neither YAML nor JSON{line}: correct the file.") from None
    if whole is None:
        return {}
    found = cast(dict[object, object], whole) if isinstance(whole, dict) else {}
    unknown = [str(key) for key in found if key not in ("servers", "mcpServers")]
    entries = found.get("servers", found.get("mcpServers"))
    if unknown or not isinstance(entries, dict):
        raise ConfigurationError(
            "The MCP settings are a mapping with one key, servers (or mcpServers), that maps each server's name to "
            "its command or url."
        )
    named = cast(dict[object, object], entries)
    if len(named) > SERVERS_MAX:
        raise ConfigurationError(f"The MCP settings name more than {SERVERS_MAX} servers.")
    return {str(name): entry for name, entry in named.items()}


def _server(name: str, entry: object, secrets: Mapping[str, str]) -> McpServerConfig:
    if not isinstance(entry, dict):
        raise ConfigurationError(f"In the MCP settings, {name} must be a mapping.")
    used: set[str] = set()
    fields = cast(dict[str, object], _filled(cast(dict[object, object], entry), secrets, used, name))
    if "type" in fields:
        fields["transport"] = fields.pop("type")
    fields.setdefault("transport", "stdio" if "command" in fields else "http")
    known = frozenset(value for value in used if len(value) >= SECRET_CHARACTERS_MIN)
    try:
        return McpServerConfig.model_validate({**fields, "name": name, "secrets": known})
    except ValidationError as error:
        problems = list[str]()
        for problem in error.errors(include_url=False, include_input=False):
            place = ".".join(map(str, problem["loc"]))
            why = problem["msg"].removeprefix("Value error, ").rstrip(".")
            problems.append(f"{place}: {why}" if place else why)
        raise ConfigurationError(f"In the MCP settings, {name}: {'; '.join(problems)}.") from None


def _filled(value: object, secrets: Mapping[str, str], used: set[str], server: str) -> object:
    """Returns the value with every reference replaced, and adds the inserted values to `used`."""
    if isinstance(value, dict):
        items = cast(dict[object, object], value).items()
        return {key: _filled(one, secrets, used, server) for key, one in items}
    if isinstance(value, list):
        return [_filled(one, secrets, used, server) for one in cast(list[object], value)]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        text = secrets.get(match[1]) or match[2]
        if text is None:
            raise ConfigurationError(
                f"In the MCP settings, {server} refers to {match[1]}, which is not set: set that variable."
            )
        used.add(text)
        return text

    return _REFERENCE.sub(put, value)
