"""Handles interactions and responds to them within Discord's three seconds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

import discord
from discord import app_commands
from discord.http import handle_message_parameters
from discord.webhook.async_ import async_context

from bots.discord.address import ChannelLocation, locate_channel
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.gateway.events import open_thread_for
from bots.discord.gateway.parse import parse_actor_context, parse_files, parse_person, quote_message
from bots.discord.limits import CONTENT_MAX, MODAL_INPUT_MAX, to_single_line
from bots.discord.permissions import describe_obstacle
from bots.discord.render.components import split_notice
from bots.discord.render.markdown import neutralize_mentions, to_discord_markdown
from bots.discord.rest.client import translating_errors
from bots.discord.rest.thread_opener import ThreadOpener
from bots.inbound.actions import (
    UNKNOWN_CONTROL,
    CommandCalled,
    FeedbackGiven,
    Outcome,
    Receive,
    RunButtonPressed,
    describe_failure,
    split_agent_prefix,
)
from bots.inbound.receiver import SuggestValues
from core.domain.actions import ActorContext, AskAnswered, IncomingMessage
from core.domain.errors import StorageUnavailable, SurfaceError
from core.domain.threads import Address, IncomingFile, Person
from core.failpoints import Failpoint
from core.tasks import spawn

log = logging.getLogger(__name__)

ACKNOWLEDGE = Failpoint("discord.acknowledge")
DEFER_AFTER_SECONDS = 1.5
"""A response that takes longer than this is deferred, because Discord gives up after 3 s."""
UNSUPPORTED_CHANNEL = "I cannot work in this channel. Please use a text channel, or write to me directly."
UNREADABLE_MESSAGE = "I cannot read that message any more. Please reply to it and mention me."
THANKS = "Thank you, noted."
FETCH_SECONDS = 1.5
TARGETS_MAX = 200
"""How many messages are kept in memory until users submit the forms about them."""
PROMPT_SHOWN_MAX = 1500
CHOICE_MAX = 100

AnyInteraction = discord.Interaction[discord.Client]


class InteractionHandler:
    """Handles slash commands, buttons, selects and forms."""

    def __init__(
        self,
        receive: Receive,
        thread_opener: ThreadOpener,
        channel_cursors: ChannelCursors,
        suggest: SuggestValues | None = None,
    ) -> None:
        self._receive = receive
        self._suggest = suggest
        self._targets: dict[int, discord.Message] = {}
        self._thread_opener = thread_opener
        self._channel_cursors = channel_cursors

    async def open_request_form(self, interaction: AnyInteraction, message: discord.Message) -> None:
        """Opens the form of "Ask Threadhand". Keeps the message in memory, because Discord shows it to the bot only
        now."""
        if problem := _why_no_run(interaction, locate_channel(interaction.channel, interaction.guild_id)):
            await respond_with_outcome(interaction, Outcome(notice=problem))
            return
        self._targets[message.id] = message
        while len(self._targets) > TARGETS_MAX:
            del self._targets[next(iter(self._targets))]
        form = build_text_form("Ask Threadhand", "What should I do with it?", custom_id=f"th:about:{message.id}")
        await interaction.response.send_modal(form)

    async def on_message_request_form(self, interaction: AnyInteraction, message_id: int, prompt: str) -> None:
        """Starts a run about the message whose menu opened the form. The request includes the text and files of that
        message."""
        message = self._targets.get(message_id)
        if message is None or message.channel.id != interaction.channel_id:
            message = await _fetch_message(interaction, message_id)
        if message is None:
            await respond_with_outcome(interaction, Outcome(notice=UNREADABLE_MESSAGE))
            return
        bot_user_id = interaction.application_id
        quote = quote_message(message, bot_user_id, "They ask about a message of")
        await self.on_run_command(interaction, prompt, parse_files(message), quote=quote)

    async def on_run_command(
        self,
        interaction: AnyInteraction,
        prompt: str,
        files: tuple[IncomingFile, ...],
        agent: str | None = None,
        *,
        quote: str = "",
    ) -> None:
        """Starts a run. In a channel, opens a thread from the response to the interaction. `quote` is appended to the
        prompt.

        The interaction token is valid for 15 minutes, so everything after the first edit is an ordinary message."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if (problem := _why_no_run(interaction, location)) or location is None:
            await respond_with_outcome(interaction, Outcome(notice=problem))
            return
        message_id = await _defer(interaction)
        named, request = (agent, prompt) if agent else split_agent_prefix(prompt)
        request = f"{request}\n\n{quote}" if quote else request
        inbound = _build_request(interaction, location, message_id, request, files, named)
        text = f"**On it:** {discord.utils.escape_markdown(to_single_line(prompt, PROMPT_SHOWN_MAX // 2))}"
        if files:
            first, *others = files
            more = f" and {len(others)} more" if others else ""
            text += f" · 📎 {discord.utils.escape_markdown(to_single_line(first.name, 100))}{more}"
        shown = neutralize_mentions(text)
        if location.kind == "channel":
            open_thread = partial(self._open, interaction, inbound, shown)
            inbound = replace(inbound, prepare=open_thread)
        async with self._thread_opener.opening(inbound.address.thread_key):
            try:
                outcome = await self._receive(inbound)
            except Exception as error:  # show the error to the user, then let discord.py's handler log it
                await _edit_original(interaction, describe_failure(error))
                raise
            if outcome.is_ignored:
                await _replace_response(interaction, outcome)
                return
            if location.kind != "channel":
                await _edit_original(interaction, shown)
        if outcome.notice:
            await _send_notice(interaction, outcome)

    async def on_command(
        self, interaction: AnyInteraction, name: str, *, argument: str = "", files: tuple[IncomingFile, ...] = ()
    ) -> None:
        """Handles all slash commands except `/agent run`. In a channel, a command with files opens a thread, in
        which the files are known."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None:
            await respond_with_outcome(interaction, Outcome(notice=UNSUPPORTED_CHANNEL))
            return
        called = replace(_build_command(interaction, location, name, argument), files=files)
        if not files or location.kind != "channel":
            await respond_with_outcome(interaction, self._receive(called))
        elif problem := _why_no_run(interaction, location):
            await respond_with_outcome(interaction, Outcome(notice=problem))
        else:
            title = ", ".join(file.name for file in called.files)
            request = _build_request(interaction, location, await _defer(interaction), title, called.files, None)
            async with self._thread_opener.opening(request.address.thread_key):
                outcome = await _outcome(self._receive(replace(called, address=request.address)))
                if outcome.is_private:
                    await _replace_response(interaction, outcome)
                else:
                    await self._open(interaction, request, _notice_parts(outcome)[0])

    async def suggest_values(
        self, interaction: AnyInteraction, name: str, typed: str
    ) -> list[app_commands.Choice[str]]:
        """Returns the suggested values of an option for what this user has typed."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None or self._suggest is None:
            return []
        try:
            found = await self._suggest(_build_command(interaction, location, name, typed))
        except StorageUnavailable as error:
            log.warning("discord: nothing can be suggested: %s", error)
            return []
        return [
            app_commands.Choice(name=to_single_line(label, CHOICE_MAX) or "…", value=value) for value, label in found
        ]

    @staticmethod
    async def refuse_unknown_control(interaction: AnyInteraction, name: str) -> None:
        """Logs a warning and tells the user that this version does not recognize the control, form or command."""
        log.warning("discord: someone used an unknown control, form or command: %r", name)
        await respond_with_outcome(interaction, Outcome(notice=UNKNOWN_CONTROL))

    async def on_ask_answer(
        self, interaction: AnyInteraction, ask_id: str, value: str = "", option: int | None = None
    ) -> None:
        """Handles a chosen option or a submitted form. If the bot may not write in the channel, the question stays
        open."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        unknown = UNKNOWN_CONTROL if option is None and not value.strip() else ""
        if (problem := _why_no_run(interaction, location) or unknown) or location is None:
            await respond_with_outcome(interaction, Outcome(notice=problem))
            return
        answered = AskAnswered(**_origin(interaction, location), ask_id=ask_id, text=value, option=option)
        await respond_with_outcome(interaction, self._receive(answered))

    async def on_run_button(self, interaction: AnyInteraction, run_id: str, action: str) -> None:
        """Handles a click on Stop, Retry, Continue or Details. If the bot may not write in the thread, no run is
        started."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        starts = action in ("retry", "continue") and isinstance(interaction.channel, discord.Thread)
        problem = _why_no_run(interaction, location) if starts else ""
        if problem or location is None or action not in ("stop", "retry", "continue", "details"):
            await respond_with_outcome(interaction, Outcome(notice=problem or UNSUPPORTED_CHANNEL))
            return
        pressed = RunButtonPressed(**_origin(interaction, location), run_id=run_id, action=action)
        await respond_with_outcome(interaction, self._receive(pressed))

    async def on_feedback(
        self, interaction: AnyInteraction, run_id: str, *, is_good: bool, reason: str | None = None
    ) -> None:
        """Handles a click on a thumb below an answer, and the form with the reason for a thumbs down."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None:
            await respond_with_outcome(interaction, Outcome(notice=UNSUPPORTED_CHANNEL))
            return
        given = FeedbackGiven(**_origin(interaction, location), run_id=run_id, is_good=is_good, text=reason or "")
        outcome = await _outcome(self._receive(given))
        if is_good or reason is not None or outcome.run_id is None:
            await respond_with_outcome(interaction, replace(outcome, notice=outcome.notice or THANKS))
            return
        form = build_text_form(
            "What was wrong?", "What should it have done?", custom_id=f"th:reason:{run_id}", is_optional=True
        )
        await interaction.response.send_modal(form)

    async def _open(self, interaction: AnyInteraction, inbound: IncomingMessage, shown: str) -> None:
        """Shows the text as the response, and opens the thread from it."""
        await _edit_original(interaction, shown)
        opener, cursors = self._thread_opener, self._channel_cursors
        await open_thread_for(inbound, opener, cursors, self._receive, adds_author=True)


def build_text_form(title: str, label: str, *, custom_id: str, is_optional: bool = False) -> discord.ui.Modal:
    """Builds a form with one long text field, `answer`. The custom id identifies the form, so discord.py need not track
    it."""
    form = discord.ui.Modal(title=title, custom_id=custom_id, timeout=None)
    field = discord.ui.TextInput[discord.ui.Modal](
        custom_id="answer", style=discord.TextStyle.paragraph, max_length=MODAL_INPUT_MAX, required=not is_optional
    )
    form.add_item(discord.ui.Label(text=label, component=field))
    form.stop()
    return form


async def _fetch_message(interaction: AnyInteraction, message_id: int) -> discord.Message | None:
    """Fetches a message of the interaction's channel, after a restart. Returns None if that fails."""
    channel = interaction.channel
    if not isinstance(channel, discord.abc.Messageable):
        return None
    try:
        with translating_errors():
            async with asyncio.timeout(FETCH_SECONDS):
                return await channel.fetch_message(message_id)
    except SurfaceError as error:
        log.info("discord: the message of a form cannot be read: %s", error)
        return None


class _Origin(TypedDict):
    address: Address
    dedupe_key: str
    person: Person
    sent_at: datetime
    actor: ActorContext


def _origin(interaction: AnyInteraction, location: ChannelLocation, message_id: int | None = None) -> _Origin:
    """Returns where, when and by whom something was done. `message_id` defaults to the message of the interaction."""
    clicked_id = interaction.message.id if interaction.message else 0
    return {
        "address": location.address(clicked_id if message_id is None else message_id),
        "dedupe_key": f"discord:interaction:{interaction.id}",
        "person": parse_person(interaction.user),
        "sent_at": interaction.created_at,
        "actor": parse_actor_context(interaction.user, location, expects_answer=True),
    }


def _build_command(interaction: AnyInteraction, location: ChannelLocation, name: str, argument: str) -> CommandCalled:
    return CommandCalled(**_origin(interaction, location, location.channel_id), name=name, argument=argument)


def _why_no_run(interaction: AnyInteraction, location: ChannelLocation | None) -> str:
    """Returns the reason why no run can start at this location, or "" if one can."""
    if location is None:
        return UNSUPPORTED_CHANNEL
    return describe_obstacle(interaction.channel, interaction.app_permissions)


def _build_request(
    interaction: AnyInteraction,
    location: ChannelLocation,
    message_id: int,
    text: str,
    files: tuple[IncomingFile, ...],
    agent_id: str | None,
) -> IncomingMessage:
    """Builds the request of `/agent run`. The response to the command is used in place of a message of the user."""
    return IncomingMessage(
        **_origin(interaction, location, message_id),
        message_ref=str(message_id),
        text=text,
        is_addressed=True,
        files=files,
        agent_id=agent_id,
    )


async def _defer(interaction: AnyInteraction) -> int:
    """Defers the response and returns the id of its message."""
    with ACKNOWLEDGE:
        deferred = await interaction.response.defer(thinking=True)
    message_id = deferred.message_id if deferred else None
    return message_id or (await interaction.original_response()).id


async def respond_with_outcome(interaction: AnyInteraction, pending_outcome: Outcome | Awaitable[Outcome]) -> None:
    """Shows the notice of the outcome. If the outcome is awaited and takes long, defers the response."""
    pending = spawn(_outcome(pending_outcome), name="discord interaction")
    await asyncio.wait({pending}, timeout=DEFER_AFTER_SECONDS)
    try:
        with translating_errors():
            await _show_outcome(interaction, pending)
    except SurfaceError as error:
        log.warning("discord: an interaction was handled but not answered: %s", error)


async def _show_outcome(interaction: AnyInteraction, pending: asyncio.Task[Outcome]) -> None:
    with ACKNOWLEDGE:
        if pending.done():
            outcome = pending.result()
            if outcome.notice or _is_command(interaction):
                await _send_notice(interaction, outcome, interaction.response.send_message)
            else:  # a command needs a visible response; a click does not
                await interaction.response.defer()
            return
        await interaction.response.defer(ephemeral=True)
    outcome = await pending
    if _is_command(interaction) and not outcome.is_private:
        await _replace_response(interaction, outcome)
    elif outcome.notice or _is_command(interaction):
        await _send_notice(interaction, outcome)


async def _outcome(work: Outcome | Awaitable[Outcome]) -> Outcome:
    try:
        return work if isinstance(work, Outcome) else await work
    except Exception as error:  # without a response, Discord shows only that the app did not respond
        log.exception("an interaction failed")
        return Outcome(notice=describe_failure(error))


def _is_command(interaction: AnyInteraction) -> bool:
    return interaction.type is discord.InteractionType.application_command


async def _send_notice(
    interaction: AnyInteraction, outcome: Outcome, send: Callable[..., Awaitable[object]] | None = None
) -> None:
    """Sends the notice in as many messages as it needs, with `send` or else as follow-ups. Only the first is sent with
    `send`."""
    buttons = discord.ui.View(timeout=None)
    for label, command in outcome.commands.items():
        buttons.add_item(discord.ui.Button(label=label, custom_id=f"th:command:{command}"))
    buttons.stop()  # the buttons are identified by custom ids, so discord.py need not track them
    options: dict[str, Any] = {
        "ephemeral": outcome.is_private,
        "allowed_mentions": discord.AllowedMentions.none(),
        "suppress_embeds": True,
    }
    send = send or interaction.followup.send
    *parts, last = _notice_parts(outcome)
    for part in parts:
        await send(part, **options)
        send = interaction.followup.send
    if outcome.commands:
        options["view"] = buttons
    await send(last or "Done.", **options)


async def _replace_response(interaction: AnyInteraction, outcome: Outcome) -> None:
    """Shows a notice instead of the deferred response, whose visibility (private or public) may differ.

    Discord uses the first follow-up as the deferred response, so this function fills that response first, and deletes
    it at the end."""
    await _edit_original(interaction, "…")
    await _send_notice(interaction, outcome)
    await interaction.delete_original_response()


async def _edit_original(interaction: AnyInteraction, text: str) -> None:
    """Edits the deferred response without link previews, a flag that discord.py's own edit does not support."""
    http = interaction.client.http
    try:
        with (
            translating_errors(),
            handle_message_parameters(
                content=text,
                allowed_mentions=discord.AllowedMentions.none(),
                flags=discord.MessageFlags(suppress_embeds=True),
            ) as parameters,
        ):
            await async_context.get().edit_original_interaction_response(
                interaction.application_id,
                interaction.token,
                session=interaction._session,  # noqa: SLF001 - as discord.py's own edit # pyright: ignore[reportPrivateUsage]
                proxy=http.proxy,
                proxy_auth=http.proxy_auth,
                payload=parameters.payload,
            )
    except SurfaceError as error:
        # ignore this, because the command is executed anyway
        log.warning("discord: the response to a command was not shown: %s", error)


def _notice_parts(outcome: Outcome) -> list[str]:
    """Returns the notice in parts of at most a message each, at least one."""
    return [to_discord_markdown(part, length_max=CONTENT_MAX) for part in split_notice(outcome.notice)]
