"""Handles interactions and responds to them within Discord's three seconds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aiohttp
import discord
from discord.http import handle_message_parameters
from discord.webhook.async_ import async_context

from bots.discord.address import ChannelLocation, locate_channel
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.gateway.events import MISSING_THREAD_PERMISSION
from bots.discord.gateway.parse import parse_attachment, parse_person, parse_standing
from bots.discord.limits import to_single_line
from bots.discord.render.markdown import neutralize_mentions, to_discord_markdown
from bots.discord.rest.client import translate_error
from bots.discord.rest.thread_opener import ThreadOpener
from bots.inbound.actions import (
    NOT_STORED,
    AskAnswered,
    CommandCalled,
    CommandName,
    IncomingMessage,
    Outcome,
    RunButtonPressed,
    split_agent_prefix,
)
from bots.inbound.receiver import Receive
from core.domain.errors import StorageUnavailable, SurfaceError
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint
from core.tasks import spawn

log = logging.getLogger(__name__)

ACKNOWLEDGE = Failpoint("discord.acknowledge")
DEFER_AFTER_SECONDS = 1.5
"""A response that takes longer than this is deferred, because Discord gives up after 3 s."""
INTERNAL_ERROR = "Something broke on our side."
UNSUPPORTED_CHANNEL = "I cannot work in this channel."
PROMPT_SHOWN_MAX = 1500

AnyInteraction = discord.Interaction[discord.Client]


class InteractionHandler:
    """Handles slash commands, buttons, selects and forms."""

    def __init__(
        self, receive: Receive, thread_opener: ThreadOpener, channel_cursors: ChannelCursors
    ) -> None:
        self._receive = receive
        self._thread_opener = thread_opener
        self._channel_cursors = channel_cursors

    async def on_run_command(
        self,
        interaction: AnyInteraction,
        prompt: str,
        attachment: discord.Attachment | None,
        agent: str | None = None,
    ) -> None:
        """Handles `/agent run`. In a channel, opens a thread from the response to the command.

        The interaction token is valid for 15 minutes, so everything after the first edit is an ordinary message.
        """
        location = locate_channel(interaction.channel, interaction.guild_id)
        if problem := _why_no_run(interaction, location):
            await respond(interaction, _ready_outcome(Outcome(notice=problem)))
        if problem or location is None:
            return
        message_id = await _defer(interaction)
        named, request = (agent, prompt) if agent else split_agent_prefix(prompt)
        files = (parse_attachment(attachment),) if attachment else ()
        inbound = _build_request(interaction, location, message_id, request, files, named)
        async with self._thread_opener.opening(inbound.address.thread_key):
            try:
                outcome = await self._receive(inbound)
            except Exception as error:
                await _edit_original(interaction, _error_notice(error))
                raise
            if outcome.is_ignored:
                await _refuse(interaction, outcome)
                return
            await _edit_original(interaction, _acknowledgement(prompt, attachment))
            if location.kind == "channel":
                await self._open(inbound, message_id)
        if outcome.notice:
            await _send_notice(interaction.followup.send, outcome)

    async def on_command(
        self,
        interaction: AnyInteraction,
        name: CommandName,
        *,
        argument: str = "",
        file: discord.Attachment | None = None,
    ) -> None:
        """Handles all slash commands except `/agent run`. In a channel, the reply says that there is no thread."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None:
            await respond(interaction, _ready_outcome(Outcome(notice=UNSUPPORTED_CHANNEL)))
            return
        called = CommandCalled(
            address=location.address(location.channel_id),
            dedupe_key=f"discord:interaction:{interaction.id}",
            name=name,
            argument=argument,
            files=(parse_attachment(file),) if file else (),
            person=parse_person(interaction.user),
            actor=parse_standing(interaction.user, location, expects_answer=True),
        )
        await respond(interaction, self._receive(called))

    async def on_ask_answer(self, interaction: AnyInteraction, ask_id: str, value: str) -> None:
        """Handles a chosen option or a submitted form."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None:
            await respond(interaction, _ready_outcome(Outcome(notice=UNSUPPORTED_CHANNEL)))
            return
        answered = AskAnswered(
            address=location.address(interaction.message.id if interaction.message else 0),
            dedupe_key=f"discord:interaction:{interaction.id}",
            ask_id=ask_id,
            value=value,
            person=parse_person(interaction.user),
            actor=parse_standing(interaction.user, location, expects_answer=True),
            sent_at=datetime.now(UTC),
        )
        await respond(interaction, self._receive(answered))

    async def on_run_button(self, interaction: AnyInteraction, run_id: str, action: str) -> None:
        """Handles a click on Stop, Retry or Continue."""
        location = locate_channel(interaction.channel, interaction.guild_id)
        if location is None or action not in ("stop", "retry", "continue"):
            await respond(interaction, _ready_outcome(Outcome(notice=UNSUPPORTED_CHANNEL)))
            return
        pressed = RunButtonPressed(
            address=location.address(interaction.message.id if interaction.message else 0),
            dedupe_key=f"discord:interaction:{interaction.id}",
            run_id=run_id,
            action=action,
            person=parse_person(interaction.user),
            actor=parse_standing(interaction.user, location, expects_answer=True),
        )
        await respond(interaction, self._receive(pressed))

    async def _open(self, inbound: IncomingMessage, message_id: int) -> None:
        try:
            await self._thread_opener.open_thread(inbound.address, inbound.text)
            self._channel_cursors.set_guild(message_id, int(inbound.address.workspace_id))
            await self._channel_cursors.advance(message_id, message_id)
        except SurfaceError as error:
            log.warning("a thread could not be opened yet: %s", error)


def _why_no_run(interaction: AnyInteraction, location: ChannelLocation | None) -> str:
    """Returns the reason why no run can start at this location, or "" if one can."""
    if location is None or location.kind == "other":
        return UNSUPPORTED_CHANNEL
    allowed = interaction.app_permissions
    may_open = allowed.create_public_threads and allowed.send_messages_in_threads
    return MISSING_THREAD_PERMISSION if location.kind == "channel" and not may_open else ""


def _build_request(
    interaction: AnyInteraction,
    location: ChannelLocation,
    message_id: int,
    text: str,
    files: tuple[IncomingFile, ...],
    agent_id: str | None,
) -> IncomingMessage:
    """Builds the request of `/agent run`. The response to the command takes the place of its message."""
    return IncomingMessage(
        address=location.address(message_id),
        dedupe_key=f"discord:interaction:{interaction.id}",
        message_ref=str(message_id),
        author=parse_person(interaction.user),
        actor=parse_standing(interaction.user, location, expects_answer=True),
        text=text,
        sent_at=interaction.created_at,
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


async def respond(interaction: AnyInteraction, work: Awaitable[Outcome]) -> None:
    """Waits for the outcome and shows its notice. Defers the response if that takes long."""
    pending = spawn(_outcome(work), name="discord interaction")
    await asyncio.wait({pending}, timeout=DEFER_AFTER_SECONDS)
    try:
        with ACKNOWLEDGE:
            if pending.done():
                await _respond(interaction, pending.result())
                return
            await interaction.response.defer(ephemeral=True)
        outcome = await pending
        if _is_command(interaction) and not outcome.is_private:
            await _send_privately(interaction, outcome)
        elif outcome.notice or _is_command(interaction):
            await _send_notice(interaction.followup.send, outcome)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning(
            "discord: an interaction was handled but not answered: %s", translate_error(error)
        )


async def _outcome(work: Awaitable[Outcome]) -> Outcome:
    try:
        return await work
    except Exception as error:
        log.exception("an interaction failed")
        return Outcome(notice=_error_notice(error))


def _error_notice(error: Exception) -> str:
    return NOT_STORED if isinstance(error, StorageUnavailable) else INTERNAL_ERROR


async def _ready_outcome(outcome: Outcome) -> Outcome:
    return outcome


async def _respond(interaction: AnyInteraction, outcome: Outcome) -> None:
    """Responds without deferring. A command needs a visible response; a click does not."""
    if not outcome.notice and not _is_command(interaction):
        await interaction.response.defer()
        return
    await _send_notice(interaction.response.send_message, outcome)


def _is_command(interaction: AnyInteraction) -> bool:
    return interaction.type is discord.InteractionType.application_command


async def _send_notice(send: Callable[..., Awaitable[object]], outcome: Outcome) -> None:
    await send(
        _notice_text(outcome) or "Done.",
        ephemeral=outcome.is_private,
        allowed_mentions=discord.AllowedMentions.none(),
        suppress_embeds=True,
    )


async def _refuse(interaction: AnyInteraction, outcome: Outcome) -> None:
    """Shows why a command was refused, privately if required, because the deferred response is public."""
    if outcome.is_private:
        await _send_privately(interaction, outcome)
    else:
        await _edit_original(interaction, _notice_text(outcome) or "…")


async def _send_privately(interaction: AnyInteraction, outcome: Outcome) -> None:
    """Sends a notice whose visibility (private or public) differs from that of the deferred response.

    Discord uses the first follow-up as the deferred response, so this fills that response first and deletes it after.
    """
    await _edit_original(interaction, "…")
    await _send_notice(interaction.followup.send, outcome)
    await interaction.delete_original_response()


async def _edit_original(interaction: AnyInteraction, text: str) -> None:
    """Edits the deferred response without link previews, a flag that discord.py's own edit does not support."""
    http = interaction.client.http
    try:
        with handle_message_parameters(
            content=text,
            allowed_mentions=discord.AllowedMentions.none(),
            flags=discord.MessageFlags(suppress_embeds=True),
        ) as parameters:
            await async_context.get().edit_original_interaction_response(
                interaction.application_id,
                interaction.token,
                session=interaction._session,  # noqa: SLF001 - as discord.py's own edit # pyright: ignore[reportPrivateUsage]
                proxy=http.proxy,
                proxy_auth=http.proxy_auth,
                payload=parameters.payload,
            )
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        # the response is not essential, because the command is carried out anyway
        log.warning("discord: the response to a command was not shown: %s", translate_error(error))


def _notice_text(outcome: Outcome) -> str:
    return to_discord_markdown(outcome.notice, length_max=2000)[:2000]


def _acknowledgement(prompt: str, attachment: discord.Attachment | None) -> str:
    shown = discord.utils.escape_markdown(to_single_line(prompt, PROMPT_SHOWN_MAX // 2))
    text = f"**On it:** {shown}"
    if attachment:
        text += f" · 📎 {discord.utils.escape_markdown(to_single_line(attachment.filename, 100))}"
    return neutralize_mentions(text)
