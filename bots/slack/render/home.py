"""Renders the App Home: a person's runs, limits and agent; pure functions."""

from collections.abc import Iterator

from bots.delivery.markdown import truncate
from bots.inbound.actions import conversation_link
from bots.inbound.home import HomePage
from bots.slack import limits
from bots.slack.render.block_kit import context_block, divider_block, escape_and_truncate, header_block, section_block
from core.domain.json import JsonObject
from core.domain.threads import RunStatus

_SIGNS: dict[RunStatus, str] = {
    "queued": ":hourglass_flowing_sand: Waiting in line",
    "running": ":gear: Working",
    "waiting": ":question: Waiting for an approval",
    "completed": ":white_check_mark: Done",
    "failed": ":x: Failed",
    "stopped": ":octagonal_sign: Stopped",
}
REQUEST_SHOWN_MAX = 80
_ADMIN_HINT = (
    "You are an admin: `who`, `audit` and `budget` work here as messages. `threadhand doctor`, where the program runs,"
    " tries every key, scope and limit and names what is wrong."
)


def home_view(page: HomePage) -> JsonObject:
    """Returns the Home tab with a person's page."""
    return {"type": "home", "blocks": list(_blocks(page))}


def home_view_without_access(sentence: str) -> JsonObject:
    """Returns the Home tab of a person without access."""
    return {"type": "home", "blocks": [section_block(escape_and_truncate(sentence, 3000))]}


def _blocks(page: HomePage) -> Iterator[JsonObject]:
    yield header_block("Your runs")
    for run, thread, request in page.runs:
        place = thread.address
        words = " ".join(request.split())
        asked = f" “{escape_and_truncate(truncate(words, REQUEST_SHOWN_MAX), 4 * REQUEST_SHOWN_MAX)}”" if words else ""
        who = f" as `{escape_and_truncate(run.agent_id, 80)}`" if run.agent_id else ""
        began = int(run.created_at.timestamp())
        when = f"<!date^{began}^{{date_short_pretty}} {{time}}|{run.created_at:%Y-%m-%d %H:%M} UTC>"
        where = "a direct message" if place.channel_id.startswith("D") else f"<#{place.channel_id}>"
        yield section_block(f"{_SIGNS[run.status]}{asked}{who} in {where}, {when} · <{conversation_link(place)}|open>")
    if not page.runs:
        yield section_block("None yet. Mention me in a channel, or write to me under *Messages*.")
    if page.schedules:
        yield divider_block()
        yield header_block("Your schedules")
        lines = "\n".join(f"• {one}" for one in page.schedules)
        yield section_block(escape_and_truncate(lines, limits.SECTION_TEXT_MAX))
    yield divider_block()
    yield header_block("Spending and limits")
    yield section_block(escape_and_truncate(page.limits, limits.SECTION_TEXT_MAX))
    yield divider_block()
    yield header_block("Who works for you here")
    yield section_block(escape_and_truncate(page.agent, limits.SECTION_TEXT_MAX))
    if page.abilities:
        yield context_block(escape_and_truncate(f"It may {page.abilities}.", 2000))
    if not page.is_admin:
        return
    if page.findings:
        yield divider_block()
        yield header_block("What needs attention")
        lines = "\n".join(f"• {finding}" for finding in page.findings)
        yield section_block(escape_and_truncate(lines, limits.SECTION_TEXT_MAX))
    yield context_block(_ADMIN_HINT)
