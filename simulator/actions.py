"""An action of a person, as the page and the control API receive it, checked and carried out on a platform."""

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from simulator.view import SelectOption, SentFile, SimulatedPlatform

ActionKind = Literal[
    "say", "edit", "delete", "react", "press", "submit", "command", "shortcut", "open_app", "misbehave", "suggest"
]
KINDS: tuple[str, ...] = get_args(ActionKind)


class Action(BaseModel):
    """One action of a person; which fields count depends on the kind. `emoji` and ids are as the view shows them."""

    model_config = ConfigDict(extra="forbid")

    kind: ActionKind
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
    file_options: list[str] = Field(default_factory=list[str])
    option: str = ""


async def carry_out(
    platform: SimulatedPlatform, action: Action, files: Sequence[SentFile]
) -> str | tuple[SelectOption, ...]:
    """Returns the id of the message or interaction that the action made, or an empty string; the values of `suggest`.

    Raises ValueError with a sentence if the action makes no sense, TimeoutError if the bot did not answer.
    """
    place = (action.person, action.channel_id)
    match action.kind:
        case "say":
            return await platform.say(*place, action.text, thread_id=action.thread_id, files=files)
        case "edit":
            await platform.edit(*place, action.message_id, action.text)
        case "delete":
            await platform.delete(*place, action.message_id)
        case "react":
            await platform.react(*place, action.message_id, action.emoji, is_removed=action.is_removed)
        case "press":
            await platform.press(*place, action.message_id, action.control_id, value=action.value)
        case "submit":
            await platform.submit(action.person, action.form_id, action.values)
        case "command":
            options = action.file_options or [name for name in (action.file_option,) if name]
            attached = dict(zip(options, files, strict=False))
            return await platform.command(
                *place, action.name, action.values, thread_id=action.thread_id, files=attached
            )
        case "shortcut":
            at = (action.channel_id, action.message_id) if action.message_id else ()
            return await platform.use_shortcut(action.person, action.name, *at)
        case "open_app":
            await platform.open_app(action.person, tab=action.value)
        case "suggest":
            return await platform.suggest(*place, action.name, action.values, action.option, thread_id=action.thread_id)
        case "misbehave":
            platform.misbehave(action.name, **action.values)
    return ""
