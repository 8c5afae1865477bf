"""Settings of a test, which come from nowhere else."""

from pathlib import Path

import pytest

from bots.settings import VARIABLE_NAMES, Settings, load_settings


def settings(**variables: str) -> Settings:
    """Returns the settings of these variables, which are named without their prefix."""
    environ = {f"THREADHAND_{name}": value for name, value in variables.items()}
    return load_settings(environ, Path("no such file"))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes away what the machine has set, in each module that imports this."""
    for name in (*VARIABLE_NAMES, "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
