"""Builds the system prompt from the base prompt and optional layers."""

from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files

from core.context.untrusted_text import wrap_untrusted

TODO_CHARACTERS_MAX = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLayers:
    """Texts that are appended to the base prompt; empty layers are left out.

    `agent` describes the role of a custom agent. `channel` and `thread` are instructions that people set for either.
    `knowledge` contains excerpts of documents and is marked as untrusted data. `date` is one sentence with
    the date. `todo` is the current content of todo.md.
    """

    agent: str = ""
    channel: str = ""
    thread: str = ""
    knowledge: str = ""
    date: str = ""
    todo: str = ""


_TITLES = (
    ("agent", "Your role here"),
    ("channel", "Set for this channel"),
    ("thread", "Set for this thread"),
    ("knowledge", "From the knowledge base"),
    ("date", "Today"),
    ("todo", "todo.md as it stood when this run began"),
)
"""The layers in order, with their headings. Layers that rarely change come first, so that the provider's prompt cache
remains valid for as much of the prompt as possible."""


def system_prompt(*, today: date, sandbox: str, layers: PromptLayers | None = None) -> str:
    """Returns the base prompt with the layers appended.

    `sandbox` is one sentence that describes the machine on which tools run. `today` is used unless the layers contain
    a date.
    """
    wanted = layers or PromptLayers()
    told = wanted.date or f"Today is {today:%A}, {today.isoformat()}."
    base = _layer("base").replace("{sandbox}", sandbox).strip()
    return add_layers(base, wanted, date_text=told)


def add_layers(prompt: str, layers: PromptLayers, *, date_text: str = "") -> str:
    """Returns the prompt with each non-empty layer appended under its heading."""
    texts = {
        "agent": layers.agent,
        "channel": layers.channel,
        "thread": layers.thread,
        "knowledge": wrap_untrusted(layers.knowledge, source="the knowledge base")
        if layers.knowledge.strip()
        else "",
        "date": date_text or layers.date,
        "todo": wrap_untrusted(layers.todo[:TODO_CHARACTERS_MAX], source="todo.md")
        if layers.todo.strip()
        else "",
    }
    parts = [
        f"# {title}\n\n{text.strip()}" for key, title in _TITLES if (text := texts[key]).strip()
    ]
    return "\n\n".join([prompt, *parts])


@cache
def _layer(name: str) -> str:
    return (files("core.prompt.templates") / f"{name}.md").read_text(encoding="utf-8")
