"""Buttons, selects and the answer form, identified only by custom ids, so that they work after a restart."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, Self, cast

import discord

from bots.discord.interactions.responses import AnyInteraction, InteractionHandler, build_text_form

ASK_CUSTOM_ID = re.compile(r"th:ask:(?P<ask_id>[\w-]{1,64}):(?P<part>\d{1,2}|pick\d{0,2}|write)")
FORM_CUSTOM_ID = re.compile(r"th:ask:(?P<ask_id>[\w-]{1,64}):form")
REQUEST_CUSTOM_ID = re.compile(r"th:about:(?P<message_id>\d{1,20})")
FEEDBACK_CUSTOM_ID = re.compile(r"th:feedback:(?P<sign>good|bad):(?P<run_id>[\w-]{1,64})")
REASON_CUSTOM_ID = re.compile(r"th:reason:(?P<run_id>[\w-]{1,64})")
COMMAND_CUSTOM_ID = re.compile(r"th:command:(?P<name>[a-z]{1,20}) (?P<argument>[\w -]{1,60})")
RUN_CUSTOM_ID = re.compile(r"th:run:(?P<action>stop|retry|continue|details):(?P<run_id>[\w-]{1,64})")


CLICKED_CUSTOM_IDS = (ASK_CUSTOM_ID, RUN_CUSTOM_ID, FEEDBACK_CUSTOM_ID, COMMAND_CUSTOM_ID)


class HasInteractions(Protocol):
    """A client with an interaction handler."""

    interactions: InteractionHandler


AnyItem = discord.ui.Item[discord.ui.LayoutView]


class AskComponent(discord.ui.DynamicItem[AnyItem], template=ASK_CUSTOM_ID):
    """A control below a question: an option's button, the select, or "Write an answer"."""

    def __init__(self, item: AnyItem, ask_id: str, part: str) -> None:
        super().__init__(item)
        self.ask_id = ask_id
        self.part = part

    @classmethod
    async def from_custom_id(cls, interaction: AnyInteraction, item: AnyItem, match: re.Match[str], /) -> Self:
        return cls(item, match["ask_id"], match["part"])

    async def callback(self, interaction: AnyInteraction) -> None:
        if self.part == "write":
            await open_answer_form(interaction, self.ask_id)
            return
        part = self.part if self.part.isdecimal() else next(iter(_values(interaction)), "")
        client = cast(HasInteractions, interaction.client)
        option = int(part) if part.isdecimal() else None
        await client.interactions.on_ask_answer(interaction, self.ask_id, option=option)


class RunButton(discord.ui.DynamicItem[AnyItem], template=RUN_CUSTOM_ID):
    """A Stop, Retry, Continue or Details button below a status message."""

    def __init__(self, item: AnyItem, run_id: str, action: str) -> None:
        super().__init__(item)
        self.run_id = run_id
        self.action = action

    @classmethod
    async def from_custom_id(cls, interaction: AnyInteraction, item: AnyItem, match: re.Match[str], /) -> Self:
        return cls(item, match["run_id"], match["action"])

    async def callback(self, interaction: AnyInteraction) -> None:
        client = cast(HasInteractions, interaction.client)
        await client.interactions.on_run_button(interaction, self.run_id, self.action)


class CommandButton(discord.ui.DynamicItem[AnyItem], template=COMMAND_CUSTOM_ID):
    """A button that does what a typed command does."""

    def __init__(self, item: AnyItem, name: str, argument: str) -> None:
        super().__init__(item)
        self.name = name
        self.argument = argument

    @classmethod
    async def from_custom_id(cls, interaction: AnyInteraction, item: AnyItem, match: re.Match[str], /) -> Self:
        return cls(item, match["name"], match["argument"])

    async def callback(self, interaction: AnyInteraction) -> None:
        client = cast(HasInteractions, interaction.client)
        await client.interactions.on_command(interaction, self.name, argument=self.argument)


class FeedbackButton(discord.ui.DynamicItem[AnyItem], template=FEEDBACK_CUSTOM_ID):
    """A thumb below an answer."""

    def __init__(self, item: AnyItem, run_id: str, sign: str) -> None:
        super().__init__(item)
        self.run_id = run_id
        self.sign = sign

    @classmethod
    async def from_custom_id(cls, interaction: AnyInteraction, item: AnyItem, match: re.Match[str], /) -> Self:
        return cls(item, match["run_id"], match["sign"])

    async def callback(self, interaction: AnyInteraction) -> None:
        client = cast(HasInteractions, interaction.client)
        await client.interactions.on_feedback(interaction, self.run_id, is_good=self.sign == "good")


async def open_answer_form(interaction: AnyInteraction, ask_id: str) -> None:
    """Opens the answer form. Its submission is identified by its custom id, so discord.py need not track the form."""
    await interaction.response.send_modal(build_text_form("Your answer", "Answer", custom_id=f"th:ask:{ask_id}:form"))


async def handle_interaction(interaction: AnyInteraction, interactions: InteractionHandler) -> None:
    """Handles a submitted form. Refuses unknown forms and controls; discord.py calls the controls above."""
    sent = interaction.data or {}
    form_id = str(sent.get("custom_id", ""))
    value = next((text for name, text in _inputs(sent) if name == "answer"), "")
    if match := FORM_CUSTOM_ID.fullmatch(form_id):
        await interactions.on_ask_answer(interaction, match["ask_id"], value)
    elif match := REASON_CUSTOM_ID.fullmatch(form_id):
        await interactions.on_feedback(interaction, match["run_id"], is_good=False, reason=value)
    elif match := REQUEST_CUSTOM_ID.fullmatch(form_id):
        await interactions.on_request_form(interaction, int(match["message_id"]), value)
    elif form_id and not any(one.fullmatch(form_id) for one in CLICKED_CUSTOM_IDS):
        await interactions.refuse_unknown(interaction, form_id)


def _values(interaction: AnyInteraction) -> list[str]:
    values = (interaction.data or {}).get("values")
    return [str(value) for value in cast(list[object], values)] if isinstance(values, list) else []


def _inputs(sent: object) -> Iterator[tuple[str, str]]:
    for component in _walk(sent):
        if "value" in component and "custom_id" in component:
            yield str(component["custom_id"]), str(component["value"])


def _walk(value: object) -> Iterator[dict[str, object]]:
    """Yields every object in a JSON value, at any depth."""
    if isinstance(value, Mapping):
        found = cast(dict[str, object], value)
        yield found
        for inner in found.values():
            yield from _walk(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in cast(Iterable[object], value):
            yield from _walk(item)
