"""What a person does on the page, checked and carried out on a platform."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from simulator.view import SentFile, SimulatedPlatform


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file chosen on the page."""

    name: str
    content: bytes
    mime_type: str


class Action(BaseModel):
    """One thing done; which fields count depends on the kind."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["say", "edit", "delete", "react", "press", "submit", "command", "misbehave"]
    person: str = ""
    channel_id: str = ""
    thread_id: str | None = None
    message_id: str = ""
    text: str = Field(default="", max_length=40_000)
    emoji: str = ""
    is_removed: bool = False
    control_id: str = ""
    value: str = ""
    form_id: str = ""
    values: dict[str, str] = Field(default_factory=dict[str, str])
    name: str = ""
    file_option: str = ""


async def carry_out(  # noqa: C901 - one case per kind
    platform: SimulatedPlatform, action: Action, uploads: Sequence[Upload]
) -> str:
    """The id of what was made, if anything.

    Raises ValueError with a sentence for what makes no sense, TimeoutError where the bot was silent.
    """
    sent = [
        SentFile(name=one.name, content=one.content, mime_type=one.mime_type) for one in uploads
    ]
    place = (action.person, action.channel_id)
    match action.kind:
        case "say":
            return await platform.say(*place, action.text, thread_id=action.thread_id, files=sent)
        case "edit":
            await platform.edit(*place, action.message_id, action.text)
        case "delete":
            await platform.delete(*place, action.message_id)
        case "react":
            await platform.react(
                *place, action.message_id, action.emoji, is_removed=action.is_removed
            )
        case "press":
            await platform.press(*place, action.message_id, action.control_id, value=action.value)
        case "submit":
            await platform.submit(action.person, action.form_id, action.values)
        case "command":
            files = {action.file_option: sent[0]} if sent and action.file_option else None
            return await platform.command(
                *place, action.name, action.values, thread_id=action.thread_id, files=files
            )
        case "misbehave":
            platform.misbehave(action.name, **action.values)
    return ""
