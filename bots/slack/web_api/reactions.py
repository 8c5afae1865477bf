"""The one reaction of the bot on a message, changed as the work goes on."""

import asyncio
import logging
from weakref import WeakValueDictionary

from bots.delivery.shown_reactions import ShownSigns
from bots.slack.events.payload import children, strings, text
from bots.slack.web_api.client import SlackClient
from core.domain.errors import SurfaceRefused
from core.ports import Reaction

EMOJI: dict[Reaction, str] = {
    "seen": "eyes",
    "queued": "hourglass_flowing_sand",
    "done": "white_check_mark",
    "failed": "x",
    "asking": "question",
}

log = logging.getLogger(__name__)


class Reactions:
    """Remembers for a moment what it put where; for what another process may have put there it asks Slack."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._signs = ShownSigns()
        self._showing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def show(self, channel: str, ts: str, reaction: Reaction | None) -> None:
        """Makes this the bot's only reaction on the message. The new one comes first: it is what people wait for.

        One after the other: the end of a run and the start of the next one may meet on a message.
        """
        lock = self._showing.setdefault((channel, ts), asyncio.Lock())
        async with lock:
            await self._exchange(channel, ts, reaction)

    async def _exchange(self, channel: str, ts: str, reaction: Reaction | None) -> None:
        message, wanted = f"{channel}:{ts}", EMOJI[reaction] if reaction else ""
        last, is_sure = self._signs.last(message), self._signs.is_sure(message)
        self._signs.put(message, last or "", is_sure=False)
        if wanted and not (is_sure and wanted == last):
            await self._change("reactions.add", channel, ts, wanted, fine="already_reacted")
        if last is None and reaction in ("seen", "queued"):
            # what an earlier life left is taken away with this one, by the last sign
            self._signs.put(message, wanted, is_sure=False)
            return
        others = {last or ""} if is_sure else {last or "", *await self._ours(channel, ts)}
        for name in others - {wanted, ""}:
            await self._change("reactions.remove", channel, ts, name, fine="no_reaction")
        self._signs.put(message, wanted)

    async def _change(self, method: str, channel: str, ts: str, name: str, *, fine: str) -> None:
        try:
            await self._client.write_form(
                method, {"channel": channel, "timestamp": ts, "name": name}
            )
        except SurfaceRefused as error:
            if error.code != fine:
                raise

    async def _ours(self, channel: str, ts: str) -> set[str]:
        """The reactions of ours that stand there; none where Slack refuses to tell."""
        try:
            answer = await self._client.read(
                "reactions.get", {"channel": channel, "timestamp": ts, "full": True}
            )
        except SurfaceRefused as error:
            log.info("slack does not tell the reactions on a message: %s", error)
            return set()
        ours = self._client.identity.user_id
        return {
            text(entry, "name")
            for entry in children(answer, "message", "reactions")
            if text(entry, "name") in EMOJI.values() and ours in strings(entry, "users")
        }
