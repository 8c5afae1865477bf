"""The settings of the program, read once from the environment and the `.env` file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from bots.settings.access import AccessSettings
from bots.settings.discord import DiscordSettings
from bots.settings.env_file import read_env_file
from bots.settings.models import ModelSettings
from bots.settings.observability import ObservabilitySettings
from bots.settings.sandbox import SandboxSettings
from bots.settings.slack import SlackSettings
from bots.settings.validation import (
    NO_SECRET,
    Names,
    TimeZoneName,
    describe_bad_value,
    describe_unknown_setting,
    require_prefix,
)
from bots.settings.web_access import WebAccessSettings
from core.domain.budget import NO_LIMIT, Budget
from core.domain.errors import ConfigurationError
from core.domain.schedules import ScheduleLimits
from core.domain.threads import FollowMode

PREFIX = "THREADHAND_"
TEST_PREFIX = "THREADHAND_TEST_"
"""Prefix of the test suite's variables. They are ignored instead of reported as unknown settings."""


class Settings(
    WebAccessSettings,
    SandboxSettings,
    ObservabilitySettings,
    AccessSettings,
    DiscordSettings,
    SlackSettings,
    ModelSettings,
):
    """All settings of the program; the field `http_port` is the variable THREADHAND_HTTP_PORT.

    Built by `load_settings`, which reports mistakes.

    `data_dir` is by default /var/lib/threadhand for root, else $XDG_DATA_HOME/threadhand or ~/.local/share/threadhand.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: Annotated[
        str, require_prefix("sqlite://", "sqlite+", "postgresql://", "postgresql+", "postgres://")
    ] = Field(default="", repr=False)
    redis_url: Annotated[str, require_prefix("redis://", "rediss://", "unix://")] = Field(default="", repr=False)
    data_dir: Path
    file_bytes_max: int = Field(default=200 * 1024 * 1024, ge=1)

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8700, ge=0, le=65_535)
    api_token: SecretStr = NO_SECRET

    mcp_config: Path | None = None
    agents_dir: Path | None = None
    channel_agents: Names = ()
    time_zone: TimeZoneName = ""
    follow_mode: FollowMode = "default"
    channel_follow_modes: Names = ()
    drain_seconds: float = Field(default=6, ge=0, le=3600, allow_inf_nan=False)
    status_after_seconds: float = Field(default=2, ge=0, le=60, allow_inf_nan=False)
    approval_hours: float = Field(default=24, gt=0, le=24 * 365, allow_inf_nan=False)
    schedules_per_person: int = Field(default=20, ge=0, le=1000)
    schedules_per_workspace: int = Field(default=50, ge=0, le=10_000)
    quiet_hours: str = Field(default="", pattern=r"^(([01]?\d|2[0-3])-([01]?\d|2[0-3]))?$", examples=["22-7"])

    failpoints: str = ""

    provider_keys: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Keys of model providers under the providers' own variable names (OPENAI_API_KEY ...)."""

    @property
    def budget(self) -> Budget:
        """The limits on the cost and tokens of model calls, before admins change them in chat."""
        return Budget(
            run=self.budget_limit("run"),
            person=self.budget_limit("user_day"),
            app=self.budget_limit("app_day") if self.allowed_apps else NO_LIMIT,
            channel=self.budget_limit("channel_day"),
            workspace=self.budget_limit("workspace_day"),
            # a configured price of 0 means that the model is free
            counts_unpriced=self.price_input_per_million_usd is None,
            has_admins=bool(self.admins),
        )

    @property
    def schedule_limits(self) -> ScheduleLimits:
        return ScheduleLimits(self.schedules_per_person, self.schedules_per_workspace, self.allowed_apps)

    @property
    def quiet_hours_range(self) -> tuple[int, int] | None:
        """The hours of the day between which no schedule fires, in the time zone of each, or None."""
        first, _, last = self.quiet_hours.partition("-")
        return (int(first), int(last)) if last else None

    @property
    def exit_seconds(self) -> float:
        """The time after which a process that was asked to end exits, whatever still runs."""
        return self.drain_seconds + 4

    @property
    def storage_url(self) -> str:
        """The database URL. The default is a SQLite file in `data_dir`."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir}/threadhand.db"
        return self.database_url.replace("postgres://", "postgresql://", 1)


VARIABLE_NAMES = tuple(f"{PREFIX}{name.upper()}" for name in Settings.model_fields if name != "provider_keys")


def load_settings(environ: Mapping[str, str], env_file: Path | None) -> Settings:
    """Reads the settings from the environment and the file. Environment variables take precedence.

    Empty values count as not set. Raises ConfigurationError with one sentence for each invalid or unknown setting. The
    sentences never contain secrets."""
    found = {**read_env_file(env_file), **{name: text for name, text in environ.items() if text}}
    named = {name: text for name, text in found.items() if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX)}
    unknown = sorted(set(named) - set(VARIABLE_NAMES))
    if unknown:
        raise ConfigurationError("\n".join(describe_unknown_setting(name, PREFIX, VARIABLE_NAMES) for name in unknown))
    values: dict[str, object] = {name.removeprefix(PREFIX).lower(): text for name, text in named.items()}
    values["data_dir"] = Path(str(values.get("data_dir") or _default_data_dir(found))).expanduser().absolute()
    if otel_endpoint := found.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        values.setdefault("otel_endpoint", otel_endpoint)
    values["provider_keys"] = {
        name: text for name, text in found.items() if name.endswith("_API_KEY") and not name.startswith(PREFIX)
    }
    return _validate(values)


def with_changes(settings: Settings, answers: Mapping[str, str]) -> Settings:
    """Returns a copy of the settings with changed values. The keys of `answers` are full variable names. A name without
    the prefix is that of a model provider's key.

    Raises ConfigurationError if a setting is unknown or a value is invalid."""
    own = {name: text for name, text in answers.items() if name.startswith(PREFIX)}
    if unknown := sorted(set(own) - set(VARIABLE_NAMES)):
        raise ConfigurationError("\n".join(describe_unknown_setting(name, PREFIX, VARIABLE_NAMES) for name in unknown))
    changes = {name.removeprefix(PREFIX).lower(): text for name, text in own.items()}
    keys = {name: text for name, text in answers.items() if name not in own}
    kept = settings.model_dump(include=settings.model_fields_set)
    return _validate({**kept, **changes, "provider_keys": {**settings.provider_keys, **keys}})


def _validate(values: Mapping[str, object]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    raise ConfigurationError("\n".join(_describe(problem) for problem in problems))


def load_process_settings(env_file: Path = Path(".env")) -> Settings:
    """Loads the settings of this process.

    Variables in the file that are not settings, such as provider keys, are added to the environment of this process."""
    settings = load_settings(os.environ, env_file)  # noqa: TID251 - the one place that reads it
    for name, text in read_env_file(env_file).items():
        if not name.startswith(PREFIX):
            os.environ.setdefault(name, text)  # noqa: TID251 - model SDKs look for their keys there
    return settings


def set_sdk_variables(variables: Mapping[str, str]) -> None:
    """Sets environment variables of this process for SDKs that read their configuration from them."""
    os.environ.update(variables)  # noqa: TID251 - the SDKs read it there


def process_environment() -> Mapping[str, str]:
    """Returns a copy of the environment variables for MCP servers.

    The MCP configuration file may refer to variables, and server processes need some of them."""
    return dict(os.environ)  # noqa: TID251 - the one place that reads it


def settings_secrets(settings: Settings) -> tuple[str, ...]:
    """Returns all secrets in the settings, so that they can be redacted in the log."""
    values = [getattr(settings, name) for name in Settings.model_fields]
    secrets = [value for value in values if isinstance(value, SecretStr)]
    return tuple(
        secret.get_secret_value()
        for secret in (*secrets, *settings.provider_keys.values(), *map(SecretStr, settings.token_keys))
        if secret.get_secret_value()
    )


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    """Returns the default data folder.

    For root, the folder is in /var/lib, because the users that run local sandboxes cannot access root's home."""
    if os.geteuid() == 0:
        return Path("/var/lib/threadhand")
    if chosen := environ.get("XDG_DATA_HOME"):
        return Path(chosen) / "threadhand"
    return Path(environ.get("HOME") or Path.home()) / ".local/share/threadhand"


def _describe(problem: ErrorDetails) -> str:
    field = str(problem["loc"][0])
    definition = Settings.model_fields[field]
    is_secret = definition.annotation is SecretStr or not definition.repr
    return describe_bad_value(
        problem, f"{PREFIX}{field.upper()}", is_secret=is_secret, examples=definition.examples or ()
    )
