"""The agent's presence in Slack: the busy status of a thread and the bot's reactions."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.slack.events.payload_fields import get_objects, get_strings, get_text
from bots.slack.web_api.client import ClientFor, SlackClient
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import Precondition, Reaction

log = logging.getLogger(__name__)

TYPING_SECONDS_MAX = 2.0
TYPING = Failpoint("slack.typing")
_SET_STATUS = "agents.sessions.setStatus"
# Slack returns these if the app or its workspace has no agent features, so later calls would also fail.
_NO_SESSIONS = frozenset({"feature_not_enabled", "missing_scope", "not_authorized", "unknown_method"})


@asynccontextmanager
async def show_busy(client_for: ClientFor, address: Address) -> AsyncGenerator[None]:
    """Context manager: inside the block, the thread shows that the agent is working. Errors are only logged."""
    await _try_status(client_for, address, is_busy=True)
    try:
        yield
    finally:
        await _try_status(client_for, address, is_busy=False)


async def _try_status(client_for: ClientFor, address: Address, *, is_busy: bool) -> None:
    try:
        async with asyncio.timeout(TYPING_SECONDS_MAX):
            with TYPING:
                client = await client_for(address)
                thread = {"channel_id": address.channel_id, "thread_ts": address.thread_key}
                # the status of the agent session, which has a stop button, or else that of the assistant thread
                if _SET_STATUS not in client.unavailable_methods:
                    try:
                        await client.write(_SET_STATUS, {**thread, "status": "processing" if is_busy else "active"})
                        return
                    except SurfaceRefused as error:
                        if error.code not in _NO_SESSIONS:
                            raise
                        log.info("slack: agent sessions are not available (%s)", error.code)
                        client.unavailable_methods.add(_SET_STATUS)
                line = "is working…" if is_busy else ""
                await client.write("assistant.threads.setStatus", {**thread, "status": line})
    except (SurfaceError, StorageUnavailable, TimeoutError) as error:
        log.debug("slack: the busy status cannot be set: %s", error)


EMOJI: dict[Reaction, str] = {
    "seen": "eyes",
    "queued": "hourglass_flowing_sand",
    "done": "white_check_mark",
    "failed": "x",
    "asking": "question",
    "limited": "warning",
}


async def change_reaction(
    client: SlackClient,
    channel: str,
    ts: str,
    precondition: Precondition | None,
    method: str,
    accepted_code: str,
    emoji: str,
) -> None:
    """Calls the method for an emoji. The error code `fine` counts as success."""
    try:
        await client.write_form(method, {"channel": channel, "timestamp": ts, "name": emoji}, precondition=precondition)
    except SurfaceRefused as error:
        if error.code != accepted_code:
            raise


async def fetch_own_reactions(client: SlackClient, channel: str, ts: str) -> list[str] | None:
    """Fetches the bot's reactions on the message. Returns None if Slack refuses."""
    try:
        answer = await client.read("reactions.get", {"channel": channel, "timestamp": ts, "full": True})
    except SurfaceRefused as error:
        log.info("slack: the reactions on a message cannot be read: %s", error)
        return None
    ours = client.identity.user_id
    return [
        get_text(entry, "name")
        for entry in get_objects(answer, "message", "reactions")
        if get_text(entry, "name") in EMOJI.values() and ours in get_strings(entry, "users")
    ]
