"""Builds the system prompt from the base prompt and optional layers, and the state of a run that models are told."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from core.context.program_message import KNOWLEDGE, read_template
from core.context.untrusted_text import wrap_untrusted
from core.domain.threads import Address

_NAMES = re.compile(r"`([a-z_]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrompt:
    """What a run tells its model.

    `system` is the system prompt, which stays the same for the whole thread, so that the provider's prompt cache
    remains valid. `state` maps names to texts that may differ between runs. Each text is told once, and again when it
    has changed. `began_at` is the time that the model is told; if it is None, the model is told no time. `time_zone` is
    used for users whose own is unknown."""

    system: str
    state: Mapping[str, str] = field(default_factory=dict[str, str])
    began_at: datetime | None = None
    time_zone: str = ""

    def state_in_time_zone(self, time_zone: str) -> Mapping[str, str]:
        """Returns the state, with the time in the user's time zone, or in the default one if the user's is unknown."""
        if self.began_at is None:
            return self.state
        return {"time": time_text(self.began_at, time_zone, default=self.time_zone), **self.state}

    def with_system(self, title: str, text: str) -> "RunPrompt":
        """Returns the prompt with a section at the end of the system prompt, unless the text is empty."""
        return replace(self, system="\n\n".join(filter(None, (self.system, _section(title, text)))))

    def for_tools(self, available: Container[str], known: Container[str]) -> "RunPrompt":
        """Returns the prompt without the list items that name a `known` tool which is not `available`."""
        items = re.split(r"\n(?=- |\n)", self.system)
        kept = [item for item in items if all(name in available or name not in known for name in _NAMES.findall(item))]
        return replace(self, system="\n".join(kept))

    def with_state(self, name: str, text: str) -> "RunPrompt":
        """Returns the prompt with this text as the part of the state that has this name."""
        return replace(self, state={**self.state, name: text.strip()})

    def with_knowledge(self, text: str) -> "RunPrompt":
        """Returns the prompt with excerpts of documents as untrusted data, unless the text is empty."""
        marked = wrap_untrusted(text, source="the knowledge base") if text.strip() else ""
        return self.with_state(KNOWLEDGE, _section("From the knowledge base", marked))


def base_prompt(*, sandbox: str) -> str:
    """Returns the base prompt. `sandbox` is one sentence that describes the machine on which tools run."""
    return read_template("base").replace("{sandbox}", sandbox)


def time_text(now: datetime, time_zone: str, *, default: str = "") -> str:
    """Returns a sentence with the date, the time and the time zone: that of the user, else the default, else UTC."""
    for name, owner in ((time_zone, "the author of the newest message"), (default, "this installation")):
        if (zone := find_time_zone(name)) is not None:
            local = now.astimezone(zone)
            offset = f"{local:%z}"
            return (
                f"It is {local:%A, %Y-%m-%d %H:%M} in {name} (UTC{offset[:3]}:{offset[3:]}), the time zone of {owner}."
            )
    return f"It is {now:%A, %Y-%m-%d %H:%M} UTC."


def find_time_zone(name: str) -> ZoneInfo | None:
    """Returns the time zone with this name of the IANA database, or None if there is none."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return None


def place_text(address: Address) -> str:
    """Returns a sentence about the place of a conversation."""
    match address.platform:
        case "api":
            return "This conversation comes through the HTTP API; it is in no chat."
        case "slack" | "discord" as platform:
            place = "a direct message" if address.is_direct else "a thread of a channel"
            return f"This conversation is {place} on {platform.capitalize()}."


def answer_limit_text(tokens: int) -> str:
    """Returns a sentence about the length of one response of the model."""
    return f"One answer of yours may have at most {tokens:,} tokens, with its calls and your thinking."


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n{text.strip()}" if text.strip() else ""
