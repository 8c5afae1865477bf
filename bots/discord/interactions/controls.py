"""Buttons, menus and forms, which are identified only by custom ids, so that they work after a restart."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from bots.discord.interactions.responses import AnyInteraction, InteractionHandler, build_text_form
from bots.inbound.commands.table import COMMANDS

ASK_CUSTOM_ID = re.compile(r"th:ask:(?P<ask_id>[\w-]{1,64}):(?P<part>\d{1,2}|pick\d{0,2}|write)")
FORM_CUSTOM_ID = re.compile(r"th:ask:(?P<ask_id>[\w-]{1,64}):form")
REQUEST_CUSTOM_ID = re.compile(r"th:about:(?P<message_id>\d{1,20})")
FEEDBACK_CUSTOM_ID = re.compile(r"th:feedback:(?P<sign>good|bad):(?P<run_id>[\w-]{1,64})")
REASON_CUSTOM_ID = re.compile(r"th:reason:(?P<run_id>[\w-]{1,64})")
COMMAND_CUSTOM_ID = re.compile(rf"th:command:(?P<name>{'|'.join(COMMANDS)}) (?P<argument>[\w -]{{1,60}})")
RUN_CUSTOM_ID = re.compile(r"th:run:(?P<action>stop|retry|continue|details):(?P<run_id>[\w-]{1,64})")


async def handle_interaction(interaction: AnyInteraction, interactions: InteractionHandler) -> None:
    """Handles a click, a choice in a menu or a submitted form. Refuses it if this version does not recognize its custom
    id.

    Slash commands have no custom id. discord.py calls their callbacks."""
    sent = cast(Mapping[str, object], interaction.data or {})
    custom_id = str(sent.get("custom_id", ""))
    fields = (item for item in _walk(sent) if item.get("custom_id") == "answer" and "value" in item)
    text = str(next(fields, {"value": ""})["value"])
    if match := ASK_CUSTOM_ID.fullmatch(custom_id):
        ask_id, part = match["ask_id"], match["part"]
        if part == "write":
            form = build_text_form("Your answer", "Answer", custom_id=f"th:ask:{ask_id}:form")
            await interaction.response.send_modal(form)
            return
        values = cast(Sequence[object], sent.get("values") or ())
        chosen = part if part.isdecimal() else str(next(iter(values), ""))
        option = int(chosen) if chosen.isdecimal() else None
        await interactions.on_ask_answer(interaction, ask_id, option=option)
    elif match := RUN_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_run_button(interaction, match["run_id"], match["action"])
    elif match := COMMAND_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_command(interaction, match["name"], argument=match["argument"])
    elif match := FEEDBACK_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_feedback(interaction, match["run_id"], is_good=match["sign"] == "good")
    elif match := FORM_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_ask_answer(interaction, match["ask_id"], text)
    elif match := REASON_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_feedback(interaction, match["run_id"], is_good=False, reason=text)
    elif match := REQUEST_CUSTOM_ID.fullmatch(custom_id):
        await interactions.on_message_request_form(interaction, int(match["message_id"]), text)
    elif custom_id:
        await interactions.refuse_unknown_control(interaction, custom_id)


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
