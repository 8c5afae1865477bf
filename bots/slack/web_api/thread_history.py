"""What people said in a Slack thread beside the agent."""

from datetime import UTC, datetime

from bots.slack import limits
from bots.slack.events.payload import children, text
from bots.slack.render.mrkdwn import people_mentioned, plain
from bots.slack.render.rich_text import mrkdwn_of
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.people import People
from core.domain.messages import JsonObject
from core.domain.threads import Address, Heard, Person
from core.failpoints import Failpoint

READ = Failpoint("slack.read_talk")
PAGES_MAX = 5
"""conversations.replies starts at the oldest message: of a longer thread only the first pages are looked through."""


class SlackTalk:
    """ThreadTalk of one workspace."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._people = People(client)

    async def read(
        self, address: Address, *, before: datetime, limit: int, after: datetime | None = None
    ) -> tuple[Heard, ...]:
        if float(address.thread_key) >= before.timestamp():
            return ()
        messages = [one for one in await self._replies(address, before, after) if self._counts(one)]
        newest = messages[-limit:]
        ids = {text(one, "user") for one in newest}
        for one in newest:
            ids |= people_mentioned(mrkdwn_of(one))
        names = await self._people.names(ids - {""})
        return tuple(
            Heard(
                author=Person(
                    person_id=text(one, "user"),
                    name=names.get(text(one, "user"), text(one, "user")),
                ),
                text=plain(mrkdwn_of(one), names),
                sent_at=datetime.fromtimestamp(float(text(one, "ts")), UTC),
                message_ref=text(one, "ts"),
            )
            for one in newest
        )

    async def _replies(
        self, address: Address, before: datetime, after: datetime | None
    ) -> list[JsonObject]:
        found: list[JsonObject] = []
        parameters: dict[str, str | int | bool] = {
            "channel": address.channel_id,
            "ts": address.thread_key,
            "latest": f"{before.timestamp():.6f}",
            "oldest": f"{after.timestamp():.6f}" if after else "0",
            "limit": limits.THREAD_PAGE_MAX,
        }
        for _ in range(PAGES_MAX):
            with READ:
                page = await self._client.read("conversations.replies", parameters)
            found += children(page, "messages")
            cursor = text(page, "response_metadata", "next_cursor")
            if not cursor:
                break
            parameters["cursor"] = cursor
        # the first message of the thread comes with every page, whatever the moments asked for
        earliest = after.timestamp() if after else 0.0
        unique = {text(one, "ts"): one for one in found if text(one, "ts")}
        return [
            one for ts, one in sorted(unique.items()) if earliest < float(ts) < before.timestamp()
        ]

    def _counts(self, message: JsonObject) -> bool:
        is_own = text(message, "user") == self._client.identity.user_id
        is_said = text(message, "subtype") in ("", "file_share", "thread_broadcast")
        return is_said and not is_own and bool(mrkdwn_of(message)) and bool(text(message, "user"))
