"""Reading a `.env` file, without judging the names in it."""

from pathlib import Path

from pydantic_settings import BaseSettings, DotEnvSettingsSource

from core.domain.errors import ConfigurationError


class _EnvFile(BaseSettings):
    """No settings of its own: any name may stand in the file, and `load` judges it."""


def read_env_file(env_file: Path | None) -> dict[str, str]:
    """The lines of a `.env` file that have a value; none where there is no file. Raises ConfigurationError."""
    if env_file is None or not env_file.is_file():
        return {}
    try:
        source = DotEnvSettingsSource(_EnvFile, env_file=env_file, case_sensitive=True)
    except OSError as error:
        raise ConfigurationError(f"{env_file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{env_file} cannot be read: it is not UTF-8 text.") from error
    return {name: text for name, text in source.env_vars.items() if text}
