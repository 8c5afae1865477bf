"""Reads and changes the `.env` file."""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from core.domain.errors import ConfigurationError

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=")


def read_env_file(env_file: Path | None) -> dict[str, str]:
    """Returns all variables in the file that have a value, or an empty dictionary if the file does not exist.

    Raises ConfigurationError if the file cannot be read or is not UTF-8 text."""
    if env_file is None or not env_file.is_file():
        return {}
    # imported only if the file exists, because the import takes 50 ms
    from pydantic_settings import BaseSettings, DotEnvSettingsSource

    try:
        source = DotEnvSettingsSource(BaseSettings, env_file=env_file, case_sensitive=True)
    except OSError as error:
        raise ConfigurationError(f"{env_file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{env_file} cannot be read: it is not UTF-8 text.") from error
    return {name: text for name, text in source.env_vars.items() if text}


def write_env_file(env_file: Path, values: Mapping[str, str]) -> None:
    """Adds or replaces variables in the file and keeps all other lines. An empty value removes the variable.

    The file is replaced atomically, so that an interrupted write loses nothing. Only the owner can read the new file.
    """
    before = env_file.read_text("utf-8").splitlines() if env_file.exists() else []
    kept = [line for line in before if not (has := _LINE.match(line)) or has[1] not in values]
    added = [f"{name}={_quote(value)}" for name, value in values.items() if value]
    fresh = env_file.with_name(f"{env_file.name}.{secrets.token_hex(4)}")
    fresh.touch(mode=0o600, exist_ok=False)
    try:
        fresh.write_text("".join(f"{line}\n" for line in (*kept, *added)), "utf-8")
        fresh.replace(env_file)
    finally:
        fresh.unlink(missing_ok=True)


def _quote(value: str) -> str:
    if re.fullmatch(r"[\w.:/@+,*%-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    # python-dotenv expands ${NAME} even inside single quotes. `${.:-$}` expands to "$", because no variable has the
    # name ".".
    escaped = escaped.replace("${", "${.:-$}{")
    return f"'{escaped}'"
