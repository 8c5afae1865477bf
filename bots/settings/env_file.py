"""Reading and changing the `.env` file."""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from core.domain.errors import ConfigurationError

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=")


def read_env_file(env_file: Path | None) -> dict[str, str]:
    """Returns the variables that have a value, whatever their names; none if there is no file.

    Raises ConfigurationError.
    """
    if env_file is None or not env_file.is_file():
        return {}
    # imported only if there is a file: it costs 50 ms
    from pydantic_settings import BaseSettings, DotEnvSettingsSource

    try:
        source = DotEnvSettingsSource(BaseSettings, env_file=env_file, case_sensitive=True)
    except OSError as error:
        raise ConfigurationError(f"{env_file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{env_file} cannot be read: it is not UTF-8 text.") from error
    return {name: text for name, text in source.env_vars.items() if text}


def write_env_file(env_file: Path, values: Mapping[str, str]) -> None:
    """Replaces or adds the variables and keeps all other lines; an empty value removes its line.

    The new file replaces the old one in one step, so that an interrupted write loses nothing. Only its owner can read
    it.
    """
    before = env_file.read_text("utf-8").splitlines() if env_file.exists() else []
    kept = [line for line in before if _variable_name(line) not in values]
    added = [f"{name}={_quote(value)}" for name, value in values.items() if value]
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


def _quote(value: str) -> str:
    if re.fullmatch(r"[\w.:/@+,*%-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    # python-dotenv expands ${NAME} even inside single quotes. `${.:-$}` expands to "$", because no variable has the
    # name ".".
    escaped = escaped.replace("${", "${.:-$}{")
    return f"'{escaped}'"
