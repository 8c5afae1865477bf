"""The system prompt, put together from its layers."""

from datetime import date
from functools import cache
from importlib.resources import files


@cache
def _layer(name: str) -> str:
    return (files("core.prompts") / f"{name}.md").read_text(encoding="utf-8")


def system_prompt(*, today: date, sandbox: str) -> str:
    """`sandbox` is one sentence on the machine that tools run on, as a probe found it."""
    return (
        _layer("base")
        .replace("{date}", f"{today:%A}, {today.isoformat()}")
        .replace("{sandbox}", sandbox)
        .strip()
    )
