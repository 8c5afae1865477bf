"""Every setting of the program, read once from the environment and `.env`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from bots.settings import discord
from bots.settings.access import AccessSettings
from bots.settings.env_file import read_env_file
from bots.settings.observability import ObservabilitySettings
from bots.settings.sandbox import ModalSettings
from bots.settings.slack import SlackSettings
from bots.settings.validation import (
    NO_SECRET,
    Dollars,
    Names,
    Tokens,
    WebUrl,
    describe_bad_value,
    describe_unknown_setting,
    lowercase,
    require_prefix,
)
from bots.settings.web_access import WebAccessSettings
from core.domain.budget import Budget, Limit
from core.domain.errors import ConfigurationError

PREFIX = "THREADHAND_"
TEST_PREFIX = "THREADHAND_TEST_"
"""Variables of the test suite; no settings, and no mistakes either."""


class Settings(
    WebAccessSettings, ModalSettings, ObservabilitySettings, AccessSettings, SlackSettings
):
    """The values of all settings; a field `http_port` is the variable THREADHAND_HTTP_PORT.

    Made by `load`, which reports mistakes; nothing else is read.

    `data_dir` is by default /var/lib/threadhand for root, else $XDG_DATA_HOME/threadhand or ~/.local/share/threadhand.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""
    fallback_models: Names = ()
    llm_base_url: WebUrl = ""
    llm_api_key: SecretStr = NO_SECRET
    dialect: Annotated[Literal["auto", "native", "xml", "react"], BeforeValidator(lowercase)] = (
        "auto"
    )
    max_xml_tool_calls: int = Field(default=0, ge=0)
    max_turns: int = Field(default=100, ge=1, le=10_000)
    tool_strategy: Annotated[Literal["parallel", "sequential"], BeforeValidator(lowercase)] = (
        "parallel"
    )
    execute_on_stream: bool = True
    stream: bool = True
    embedding_model: str = ""
    context_tokens: int | None = Field(default=None, ge=4_000)
    answer_tokens: int | None = Field(default=None, ge=1)

    price_input_per_million_usd: Dollars = None
    price_output_per_million_usd: Dollars = None
    budget_run_usd: Dollars = None
    budget_user_day_usd: Dollars = None
    budget_channel_day_usd: Dollars = None
    budget_workspace_day_usd: Dollars = None
    budget_run_tokens: Tokens = None
    budget_user_day_tokens: Tokens = None
    budget_channel_day_tokens: Tokens = None
    budget_workspace_day_tokens: Tokens = None

    discord_token: SecretStr = NO_SECRET
    discord_api_url: WebUrl = "https://discord.com/api/v10"
    discord_shards: Annotated[str, AfterValidator(discord.validate_shards)] = ""

    database_url: Annotated[
        str, require_prefix("sqlite://", "sqlite+", "postgresql://", "postgresql+", "postgres://")
    ] = Field(default="", repr=False)
    redis_url: Annotated[str, require_prefix("redis://", "rediss://", "unix://")] = Field(
        default="", repr=False
    )
    sandbox: Annotated[
        Literal["local", "modal", "docker", "unsafe-process", "none"], BeforeValidator(lowercase)
    ] = "local"
    data_dir: Path
    file_bytes_max: int = Field(default=200 * 1024 * 1024, ge=1)

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8700, ge=0, le=65_535)
    api_token: SecretStr = NO_SECRET

    mcp_config: Path | None = None
    agents_dir: Path | None = None
    channel_agents: Names = ()
    drain_seconds: float = Field(default=8, ge=0, le=3600, allow_inf_nan=False)
    approval_hours: float = Field(default=24, gt=0, le=24 * 365, allow_inf_nan=False)

    failpoints: str = ""

    provider_keys: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Keys under their providers' own names (OPENAI_API_KEY ...), as found beside the settings."""

    @property
    def storage_url(self) -> str:
        """The database as SQLAlchemy names it, with its async driver; a file in `data_dir` by default."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{self.data_dir}/threadhand.db"
        scheme, _, rest = self.database_url.partition("://")
        drivers = {
            "sqlite": "sqlite+aiosqlite",
            "postgresql": "postgresql+asyncpg",
            "postgres": "postgresql+asyncpg",
        }
        return f"{drivers.get(scheme, scheme)}://{rest}"

    @property
    def budget(self) -> Budget:
        """What model calls may cost."""
        return Budget(
            run=Limit(usd=self.budget_run_usd, tokens=self.budget_run_tokens),
            person_day=Limit(usd=self.budget_user_day_usd, tokens=self.budget_user_day_tokens),
            channel_day=Limit(
                usd=self.budget_channel_day_usd, tokens=self.budget_channel_day_tokens
            ),
            workspace_day=Limit(
                usd=self.budget_workspace_day_usd, tokens=self.budget_workspace_day_tokens
            ),
        )


VARIABLE_NAMES = tuple(
    f"{PREFIX}{name.upper()}" for name in Settings.model_fields if name != "provider_keys"
)


def load_settings(environ: Mapping[str, str], env_file: Path | None) -> Settings:
    """Settings from the file and, over it, the environment. Empty values count as not set.

    Raises ConfigurationError with one sentence per problem, and never with the value of a secret.
    """
    found = {**read_env_file(env_file), **{name: text for name, text in environ.items() if text}}
    named = {
        name: text
        for name, text in found.items()
        if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX)
    }
    strangers = sorted(set(named) - set(VARIABLE_NAMES))
    if strangers:
        raise ConfigurationError(
            "\n".join(describe_unknown_setting(name, PREFIX, VARIABLE_NAMES) for name in strangers)
        )
    values: dict[str, object] = {
        name.removeprefix(PREFIX).lower(): text for name, text in named.items()
    }
    values["data_dir"] = (
        Path(str(values.get("data_dir") or _data_dir(found))).expanduser().absolute()
    )
    if traced := found.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        values.setdefault("otel_endpoint", traced)
    values["provider_keys"] = {
        name: text
        for name, text in found.items()
        if name.endswith("_API_KEY") and not name.startswith(PREFIX)
    }
    return _validated(values)


def with_changes(settings: Settings, answers: Mapping[str, str]) -> Settings:
    """The settings with variables (by their full names) replaced. Raises ConfigurationError as `load` does."""
    changes = {name.removeprefix(PREFIX).lower(): text for name, text in answers.items()}
    return _validated({**settings.model_dump(), **changes})


def _validated(values: Mapping[str, object]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    raise ConfigurationError("\n".join(_sentence(problem) for problem in problems))


def load_process_settings(env_file: Path = Path(".env")) -> Settings:
    """`load` for this process. Lines of the file that are no settings (provider keys) join its environment."""
    settings = load_settings(os.environ, env_file)  # noqa: TID251 - the one place that reads it
    for name, text in read_env_file(env_file).items():
        if not name.startswith(PREFIX):
            os.environ.setdefault(name, text)  # noqa: TID251 - model SDKs look for their keys there
    return settings


def set_sdk_variables(variables: Mapping[str, str]) -> None:
    """Sets what SDKs look for under names of their own."""
    os.environ.update(variables)  # noqa: TID251 - they read it there


def process_environment() -> Mapping[str, str]:
    """What tool servers may be given: references in their file, and what a child process needs to start."""
    return dict(os.environ)  # noqa: TID251 - the one place that reads it


def secret_values(settings: Settings) -> tuple[str, ...]:
    """Every secret that is set: what must never reach a log."""
    values = [getattr(settings, name) for name in Settings.model_fields]
    secrets = [value for value in values if isinstance(value, SecretStr)]
    return tuple(
        secret.get_secret_value()
        for secret in (
            *secrets,
            *settings.provider_keys.values(),
            *map(SecretStr, settings.token_keys),
        )
        if secret.get_secret_value()
    )


def _data_dir(environ: Mapping[str, str]) -> Path:
    """Root's home is closed to the users that jails run as, so its data goes where they can reach it."""
    if os.geteuid() == 0:
        return Path("/var/lib/threadhand")
    if chosen := environ.get("XDG_DATA_HOME"):
        return Path(chosen) / "threadhand"
    return Path(environ.get("HOME") or Path.home()) / ".local/share/threadhand"


def _sentence(problem: ErrorDetails) -> str:
    field = str(problem["loc"][0])
    definition = Settings.model_fields[field]
    is_secret = definition.annotation is SecretStr or not definition.repr
    return describe_bad_value(
        problem,
        f"{PREFIX}{field.upper()}",
        is_secret=is_secret,
        examples=definition.examples or (),
    )
