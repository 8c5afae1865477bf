"""Messages that say with blocks what others say with their text."""

from bots.slack.events.parse import ParseContext, find_user_ids, parse_event
from bots.slack.web_api.client import Identity
from core.domain.actions import IncomingMessage
from core.domain.json import JsonObject

KNOWN = ParseContext(identity=Identity(team_id="T1", user_id="U0", bot_id="B0"), names={"U2": "bob"})


def message(text: str, blocks: list[JsonObject]) -> JsonObject:
    facts: JsonObject = {"type": "message", "user": "U1", "channel": "C1", "channel_type": "channel"}
    return {**facts, "ts": "1700000000.000100", "text": text, "blocks": list(blocks)}


def rich(*elements: JsonObject) -> JsonObject:
    section: JsonObject = {"type": "rich_text_section", "elements": list(elements)}
    return {"type": "rich_text", "elements": [section]}


def test_blocks_without_a_text_say_what_they_show():
    blocks = [
        rich(
            {"type": "user", "user_id": "U0"},
            {"type": "text", "text": " a < b & "},
            {"type": "link", "url": "https://example.com/?a=1&b=2", "text": "the page"},
            {"type": "emoji", "name": "tada"},
            {"type": "user", "user_id": "U2"},
        ),
        {"type": "section", "text": {"type": "mrkdwn", "text": "in *sections* &amp; all"}},
        {"type": "context", "elements": [{"type": "plain_text", "text": "<small>"}, 7]},
        {"type": "header", "text": "broken"},
    ]
    written = message("", blocks)
    assert find_user_ids(written) == {"U0", "U1", "U2"}
    parsed = parse_event(written, KNOWN)
    assert isinstance(parsed, IncomingMessage)
    assert parsed.is_addressed
    assert parsed.text == (
        "a < b & the page [leads to https://example.com/?a=1&b=2]:tada:@bob\nin *sections* & all\n<small>"
    )


def test_the_text_goes_before_the_blocks():
    parsed = parse_event(message("<@U0> hello", [rich({"type": "text", "text": "hello, twice"})]), KNOWN)
    assert isinstance(parsed, IncomingMessage)
    assert parsed.text == "hello"
