"""Reading a `.env` file, without judging the names in it."""

import re
import secrets
from collections.abc import Mapping
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


_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=")


def write_env_file(env_file: Path, values: Mapping[str, str]) -> None:
    """Replaces or adds the variables; an empty value removes its line. The file is swapped whole, readable by its
    owner alone, so that an interrupted write loses nothing."""
    before = env_file.read_text("utf-8").splitlines() if env_file.exists() else []
    kept = [line for line in before if _variable_name(line) not in values]
    added = [f"{name}={_quoted(value)}" for name, value in values.items() if value]
    fresh = env_file.with_name(f"{env_file.name}.{secrets.token_hex(4)}")
    fresh.touch(mode=0o600, exist_ok=False)
    try:
        fresh.write_text("".join(f"{line}\n" for line in (*kept, *added)), "utf-8")
        fresh.replace(env_file)
    finally:
        fresh.unlink(missing_ok=True)


def _variable_name(line: str) -> str | None:
    found = _LINE.match(line)
    return found.group(1) if found else None


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.:/@+,*%-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    # Readers fill in ${NAME} even between single quotes: this is a default of "$" for a name that nothing can have.
    escaped = escaped.replace("${", "${.:-$}{")
    return f"'{escaped}'"
