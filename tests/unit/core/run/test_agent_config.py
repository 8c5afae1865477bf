"""In which dialect an agent writes its calls."""

from types import SimpleNamespace
from typing import Any

import pytest

from core.dialects.native import NativeDialect
from core.run.agent_config import dialect_for_run


@pytest.mark.parametrize(
    ("dialect", "model", "setting", "chosen"),
    [
        ("", "", "auto", "native"),
        ("", "default", "auto", "native"),
        ("", "openai/o1-mini", "auto", "xml"),
        ("", "openai/o1-mini", "native", "native"),
        ("react", "", "auto", "react"),
        ("react", "openai/o1-mini", "native", "react"),
        ("auto", "openai/o1-mini", "native", "xml"),
        ("auto", "openai/gpt-5", "native", "native"),
    ],
)
async def test_an_agents_own_dialect_goes_before_the_setting_and_that_before_its_model(
    dialect: str, model: str, setting: str, chosen: str
) -> None:
    async def version_for(_run: object, _thread: object) -> Any:
        return SimpleNamespace(definition=SimpleNamespace(dialect=dialect, model=model))

    defaults = SimpleNamespace(model="default", dialect=NativeDialect(), dialect_setting=setting)
    deps = SimpleNamespace(agents=SimpleNamespace(roster=SimpleNamespace(version_for=version_for)), defaults=defaults)
    assert (await dialect_for_run(SimpleNamespace(), SimpleNamespace(), deps)).name == chosen
