"""The system prompt, put together from its layers."""

from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files

from core.context.untrusted_text import wrap_untrusted

TODO_CHARACTERS_MAX = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLayers:
    """What is added to the base prompt, never instead of it. Each is a text, or empty.

    `agent`: what a custom agent is to be. `channel`, `thread`: what the people of either have set. `knowledge`: pieces
    of documents, which are data. `date`: one sentence. `todo`: todo.md as it stands.
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
"""The order of the layers: what changes seldom comes first, so that caches reach far."""


def system_prompt(*, today: date, sandbox: str, layers: PromptLayers | None = None) -> str:
    """`sandbox` is one sentence on the machine that tools run on, as a probe found it. The date is that of today,
    unless the layers tell it."""
    wanted = layers or PromptLayers()
    told = wanted.date or f"Today is {today:%A}, {today.isoformat()}."
    base = _layer("base").replace("{sandbox}", sandbox).strip()
    return add_layers(base, wanted, date_text=told)


def add_layers(prompt: str, layers: PromptLayers, *, date_text: str = "") -> str:
    """The prompt with the layers under their headings, in order."""
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
