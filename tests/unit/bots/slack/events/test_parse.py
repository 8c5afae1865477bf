"""Slack's payloads, parsed: who wrote what where, under which key; everything else is left alone."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bots.inbound.actions import CommandCalled
from bots.slack.events.parse import Ignored, ParseContext, concerns_bot, parse_event, parse_ts
from bots.slack.web_api.client import Identity
from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.json import JsonObject
from core.domain.messages import JsonValue
from core.domain.threads import Address, IncomingFile, Person
from tests.fakes.cpu_seconds import seconds_of
from tests.paths import FIXTURES
from tests.support.narrow import require_type

SLACK_FIXTURES = FIXTURES / "slack"
IDENTITY = Identity(team_id="T1", user_id="U0", bot_id="B0")
KNOWN = ParseContext(identity=IDENTITY, names={"U1": "alice", "U2": "bob"})
ALICE = Person(person_id="U1", name="alice")
ROOT = "1700000000.000100"
REPLY = "1700000002.000100"


def fixture(name: str) -> dict[str, Any]:
    return json.loads((SLACK_FIXTURES / f"{name}.json").read_text())


def thread(channel: str = "C1", key: str = ROOT) -> Address:
    return Address(platform="slack", workspace_id="T1", channel_id=channel, thread_key=key)


def message(text: str, **more: object) -> JsonObject:
    base = {"type": "message", "user": "U1", "text": text, "ts": ROOT, "channel": "C1"}
    return {**base, "channel_type": "channel", **more}  # pyright: ignore[reportReturnType] - JSON


def test_a_message_with_files_says_everything_that_its_writer_saw():
    parsed = parse_event(fixture("message_with_file"), KNOWN)
    assert parsed == IncomingMessage(
        address=thread(),
        dedupe_key=f"slack:T1:C1:{ROOT}",
        message_ref=ROOT,
        person=ALICE,
        text="sum & plot the columns [leads to https://example.com/docs] for @bob\n[Linked file: plan (https://example.com/plan)]\n"
        "[A file was removed.]",
        sent_at=datetime.fromtimestamp(1700000000.0001, UTC),
        is_addressed=True,
        files=(
            IncomingFile(
                file_ref="F1 https://files.slack.com/files-pri/T1-F1/download/sales.csv",
                name="sales.csv",
                mime_type="text/csv",
                size_bytes=120,
            ),
            IncomingFile(file_ref="F4", name="shared.bin"),
        ),
    )


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (
            {"type": "image", "image_url": "https://x.example/1.gif", "alt_text": "a cat", "title": {"text": "Cat"}},
            "[image] Cat https://x.example/1.gif",
        ),
        (
            {"type": "image", "image_url": "https://x.example/1.gif", "alt_text": "a < b"},
            "[image] a < b https://x.example/1.gif",
        ),
        (
            {"type": "video", "title": {"type": "plain_text", "text": "Talk"}, "title_url": "https://x.example/v"},
            "[video] Talk https://x.example/v",
        ),
        (
            {"type": "call", "call": {"v1": {"name": "Stand-up", "join_url": "https://x.example/j"}}},
            "[call] Stand-up https://x.example/j",
        ),
        ({"type": "image"}, "[image]"),
        ({"type": "image", "title": 3, "call": [1]}, "[image]"),
        (
            {
                "type": "rich_text",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [{"type": "date", "timestamp": 1, "format": "{date}", "fallback": "1 May"}],
                    }
                ],
            },
            "1 May",
        ),
    ],
)
def test_blocks_without_text_say_what_they_show(block: JsonObject, shown: str):
    parsed = require_type(parse_event(message("", channel="D1", blocks=[block]), KNOWN), IncomingMessage)
    assert parsed.text == shown


def test_a_file_in_a_drive_and_a_removed_one_are_named():
    files = [
        {"id": "F1", "title": "Plan", "is_external": True, "url_private": "https://drive.example/1"},
        {"id": "F2", "name": "old.csv", "mode": "tombstone"},
    ]
    parsed = require_type(parse_event(message("<@U0> read", files=files), KNOWN), IncomingMessage)
    assert parsed.text == "read\n[Linked file: Plan (https://drive.example/1)]\n[The file 'old.csv' was removed.]"


def test_a_mention_and_its_message_have_the_same_key():
    mention = {**message("<@U0> hello"), "type": "app_mention"}
    first, second = parse_event(mention, KNOWN), parse_event(message("<@U0> hello"), KNOWN)
    assert first == second
    assert isinstance(first, IncomingMessage)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("<@U0>: do it", "do it"),
        ("hey <@U0>, do it", "hey , do it"),
        ("<@U0|threadhand> a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
        ("<@U0> <#C9|random> <!here> <!subteam^S1|@crew> <@U7|carol>", "#random @here @crew @carol"),
        ("<@U0> <mailto:a@example.com|a@example.com> <https://example.com>", "a@example.com https://example.com"),
        ("<@U0> <!date^1^{date}|yesterday>", "yesterday"),
    ],
)
def test_text_is_what_people_see(written: str, text: str):
    parsed = require_type(parse_event(message(written), KNOWN), IncomingMessage)
    assert parsed.text == text


def test_a_link_that_only_the_rich_text_shows_is_kept():
    link = {"type": "link", "url": "https://example.com/hidden", "text": "here"}
    section = {"type": "rich_text_section", "elements": [link]}
    blocks = [{"type": "rich_text", "elements": [section]}]
    parsed = require_type(parse_event(message("<@U0> look here", blocks=blocks), KNOWN), IncomingMessage)
    assert parsed.text == "look here\n[Link: https://example.com/hidden]"


def test_a_forwarded_message_is_quoted():
    shared = {"is_share": True, "author_name": "bob", "text": "one\ntwo", "from_url": "x"}
    unfurled = {"text": "A page", "from_url": "https://example.com"}
    parsed = require_type(parse_event(message("<@U0> see", attachments=[shared, unfurled]), KNOWN), IncomingMessage)
    assert parsed.text == "see\nShown below a link:\n> A page\nForwarded from bob:\n> one\n> two"


def _rich(*texts: str) -> JsonObject:
    parts: list[JsonValue] = [{"type": "text", "text": one} for one in texts]
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": parts}]}


TABLE: JsonObject = {
    "type": "table",
    "rows": [
        [_rich("Item"), {"type": "raw_text", "text": "Amount | net"}],
        [_rich("<@U2> & co"), {"type": "raw_number", "value": 1200}],
        [_rich("two\nlines"), "nonsense", {"type": "unknown"}],
    ],
}
READ_TABLE = "| Item | Amount \\| net |\n| <@U2> & co | 1200 |\n| two lines |  |  |"


@pytest.mark.parametrize(
    "holder",
    [
        {"attachments": [{"id": 1, "blocks": [TABLE], "fallback": "[no preview available]"}]},
        {"blocks": [_rich("which is larger?"), TABLE]},
    ],
)
def test_a_pasted_table_is_read_with_the_words_beside_it(holder: dict[str, object]):
    event = message("<@U0> which is larger?", **holder)
    parsed = require_type(parse_event(event, KNOWN), IncomingMessage)
    assert parsed.text == f"which is larger?\nTable:\n{READ_TABLE}"


def test_a_message_that_is_only_a_pasted_table_is_read():
    attachments = [{"id": 1, "blocks": [TABLE], "fallback": "[no preview available]"}]
    event = message("", attachments=attachments, thread_ts=REPLY)
    parsed = require_type(parse_event(event, KNOWN), IncomingMessage)
    assert parsed.text == f"Table:\n{READ_TABLE}"


def test_of_a_huge_table_the_first_rows_are_read_and_the_rest_is_counted():
    rows = [[{"type": "raw_text", "text": "x" * 500}] for _ in range(200)]
    table = {"type": "table", "rows": rows}
    event = message("<@U0> sum", attachments=[{"blocks": [table, table, table]}])
    parsed = require_type(parse_event(event, KNOWN), IncomingMessage)
    assert len(parsed.text) < 45_000
    assert parsed.text.endswith("more rows are left out)")


def _table(rows: list[list[JsonObject]]) -> JsonObject:
    return {"blocks": [{"type": "table", "rows": rows}]}  # pyright: ignore[reportReturnType] - JSON


MANY_TABLES: dict[str, list[JsonObject]] = {
    "long cells": [_table([[_rich("<" * 300)] * 50] * 1000)],
    "short cells": [_table([[_rich("a")] * 10] * 1050)],
    "empty cells": [_table([[_rich("")] * 50] * 210)],
    "cells of many parts": [_table([[_rich(*"ab" * 150)] * 10] * 5)],
    "empty rows": [_table([[]] * 100_000)],
    "forwarded": [{"is_share": True, "attachments": [_table([[_rich("a")] * 10] * 100)]}] * 10,
}


@pytest.mark.parametrize("kind", MANY_TABLES)
def test_a_megabyte_of_table_costs_no_more_than_what_is_read_of_it(kind: str):
    event = message("<@U0> sum", attachments=MANY_TABLES[kind])
    assert seconds_of(lambda: parse_event(event, KNOWN), seconds_max=0.05) < 0.05


def test_a_row_that_is_wider_than_what_is_read_is_cut_and_not_left_out():
    event = message("<@U0> sum", attachments=[_table([[_rich("x" * 30_000)] * 3, [_rich("y")]])])
    parsed = require_type(parse_event(event, KNOWN), IncomingMessage)
    assert parsed.text.count("x") > 39_000
    assert parsed.text.endswith("(1 more rows are left out)")


SHARED_PARTS: dict[str, tuple[JsonObject, str]] = {
    "table": ({"attachments": [{"blocks": [TABLE], "fallback": "[no preview available]"}]}, ""),
    "table of an app": ({"blocks": [TABLE]}, ""),
    "words of an app": ({"blocks": [_rich("disk is full")]}, "> disk is full"),
    "alert": (
        {"attachments": [{"title": "Disk", "text": "97 %", "fields": [{"title": "Host", "value": "db1"}]}]},
        "> Disk\n> 97 %\n> Host: db1",
    ),
}


@pytest.mark.parametrize("kind", SHARED_PARTS)
@pytest.mark.parametrize("is_inside", [True, False])
def test_of_a_forwarded_message_also_tables_and_what_apps_show_is_read(kind: str, is_inside: bool):
    parts, shown = SHARED_PARTS[kind]
    shared: JsonObject = {"is_share": True, "author_name": "bob", "text": ""}
    shared |= {"message_blocks": [{"message": parts}]} if is_inside else parts
    parsed = require_type(parse_event(message("<@U0> see", attachments=[shared]), KNOWN), IncomingMessage)
    table = "\n".join(f"> {line}" for line in ("Table:", *READ_TABLE.split("\n")))
    assert parsed.text == f"see\nForwarded from bob:\n{shown or table}"


@pytest.mark.parametrize("around", ["\u200f", "\u200b", "\u2068", "\ufeff", "\u200e ", "\xa0"])
def test_invisible_characters_around_words_change_nothing(around: str):
    assert isinstance(parse_event(message(f"{around}stop{around}", ts=REPLY, thread_ts=ROOT), KNOWN), StopRequested)
    assert isinstance(parse_event(message(f"<@U0>{around}status{around}"), KNOWN), CommandCalled)
    nothing = require_type(parse_event(message(f"<@U0> {around}"), KNOWN), IncomingMessage)
    assert nothing.text == ""


def test_a_reply_needs_no_mention():
    parsed = require_type(parse_event(message("go on", ts=REPLY, thread_ts=ROOT), KNOWN), IncomingMessage)
    assert (parsed.address, parsed.is_addressed) == (thread(), False)


def test_each_top_message_of_a_direct_channel_is_its_own_thread():
    parsed = require_type(parse_event(message("hello", channel="D1", channel_type="im"), KNOWN), IncomingMessage)
    assert (parsed.address, parsed.is_addressed) == (thread("D1"), True)


@pytest.mark.parametrize(
    "event",
    [
        message("nobody called"),
        message("<@U2> look", type="app_mention"),
        message("<@U0> hi", subtype="bot_message"),
        message("<@U0> hi", user="U0"),
        message("<@U0> hi", user="USLACKBOT"),
        message("<@U0> joined", subtype="channel_join"),
        message("<@U0> hi", ts="later"),
        message("<@U0> hi", ts="999999999999.000100"),
        message("<@U0> hi", channel=""),
        message("hello all", channel_type="mpim"),
        {"type": "channel_created"},
        {},
    ],
)
def test_what_is_not_meant_for_the_agent_is_left_alone(event: JsonObject):
    assert isinstance(parse_event(event, KNOWN), Ignored)


@pytest.mark.parametrize("word", ["stop", "status", "files", "usage", "new", "forget", "help"])
def test_a_word_after_a_mention_is_a_command(word: str):
    called = require_type(parse_event(message(f"<@U0> {word.title()}!"), KNOWN), CommandCalled)
    assert called.message is not None
    assert called.message.text == f"{word.title()}!"
    assert replace(called, message=None) == CommandCalled(
        address=thread(), dedupe_key=f"slack:T1:C1:{ROOT}", name=word, argument="", person=ALICE, sent_at=parse_ts(ROOT)
    )


@pytest.mark.parametrize(
    ("said", "argument"),
    [
        ("knowledge", ""),
        ("Knowledge list", "list"),
        ("knowledge add", "add"),
        ("knowledge remove My File.pdf", "remove My File.pdf"),
    ],
)
def test_knowledge_takes_a_verb_and_files(said: str, argument: str):
    command = parse_event(message(f"<@U0> {said}", files=[{"id": "F1", "name": "a"}]), KNOWN)
    assert isinstance(command, CommandCalled)
    assert (command.name, command.argument) == ("knowledge", argument)
    assert [file.name for file in command.files] == ["a"]


def test_stop_alone_in_a_thread_is_a_wish_to_stop():
    assert parse_event(message("stop", ts=REPLY, thread_ts=ROOT), KNOWN) == StopRequested(
        address=thread(),
        dedupe_key=f"slack:T1:C1:{REPLY}",
        message_ref="",
        person=ALICE,
        sent_at=parse_ts(REPLY),
        is_addressed=False,
    )


def test_an_edit_by_a_person_counts_once_per_edit():
    assert parse_event(fixture("message_edited"), KNOWN) == MessageEdited(
        address=thread(),
        dedupe_key=f"slack:T1:C1:{ROOT}:edit:1700000009.000100",
        message_ref=ROOT,
        person=ALICE,
        text="count to four",
        sent_at=parse_ts("1700000009.000100"),
    )


def test_an_edit_that_changes_only_a_pasted_table_counts():
    event = fixture("message_edited")
    for key, amount in (("previous_message", "10"), ("message", "12")):
        part = require_type(event[key], dict)
        table: JsonObject = {"type": "table", "rows": [[{"type": "raw_text", "text": amount}]]}
        part |= {"text": "<@U0> sum", "blocks": [], "attachments": [{"blocks": [table]}]}
    parsed = require_type(parse_event(event, KNOWN), MessageEdited)
    assert parsed.text == "sum\nTable:\n| 12 |"


@pytest.mark.parametrize("mentions_in", [None, "message", "previous_message"])
def test_an_edit_is_for_the_bot_if_it_is_mentioned_before_or_now(mentions_in: str | None):
    event = fixture("message_edited")
    for key in ("message", "previous_message"):
        part = require_type(event[key], dict)
        part["text"] = "<@U0> please" if key == mentions_in else "among people"
    assert concerns_bot(event, IDENTITY) == (mentions_in is not None)


def test_a_deletion_names_the_message_and_its_thread():
    assert parse_event(fixture("message_deleted"), KNOWN) == MessageDeleted(
        address=thread(),
        dedupe_key=f"slack:T1:C1:{REPLY}:delete",
        message_ref=REPLY,
        person=ALICE,
        sent_at=datetime.fromtimestamp(1700000010.0001, UTC),
    )


def reaction(name: str, user: str = "U1") -> JsonObject:
    item: JsonObject = {"type": "message", "channel": "C1", "ts": REPLY}
    return {"type": "reaction_added", "user": user, "reaction": name, "item": item, "event_ts": "9.1"}


@pytest.mark.parametrize("name", ["x", "no_entry", "octagonal_sign"])
def test_a_stop_sign_on_a_message_is_a_wish_to_stop(name: str):
    known = ParseContext(identity=IDENTITY, names=KNOWN.names, reacted_thread_ts=ROOT)
    assert parse_event(reaction(name), known) == StopRequested(
        address=thread(),
        dedupe_key=f"slack:T1:C1:{REPLY}:reaction:9.1",
        message_ref=REPLY,
        person=ALICE,
        sent_at=parse_ts("9.1"),
    )


def test_other_reactions_and_our_own_mean_nothing():
    assert isinstance(parse_event(reaction("tada"), KNOWN), Ignored)
    assert isinstance(parse_event(reaction("x", user="U0"), KNOWN), Ignored)


APP = {"bot_id": "B7", "app_id": "A7", "username": "Alerts"}


@pytest.mark.parametrize("subtype", ["", "bot_message"])
def test_an_app_that_mentions_the_bot_asks_as_an_app(subtype: str):
    parsed = require_type(parse_event(message("<@U0> stop", user="", subtype=subtype, **APP), KNOWN), IncomingMessage)
    assert parsed.person == Person(person_id="app:A7", name="Alerts")
    assert (parsed.actor.app_ids, parsed.text) == ({"A7", "B7"}, "stop")


@pytest.mark.parametrize(
    ("text", "is_to_others"),
    [("<@U2> look", True), ("Hello <@U2>", True), ("Thanks <@U2>!", True), ("tell <@U2>", False), ("hi <@U0>", False)],
)
def test_a_message_that_begins_with_another_mention_is_to_others(text: str, is_to_others: bool):
    parsed = require_type(parse_event(message(text, ts=REPLY, thread_ts=ROOT), KNOWN), IncomingMessage)
    assert parsed.is_to_others == is_to_others


def test_a_leading_agent_is_who_is_asked_and_no_part_of_the_text():
    asked = require_type(parse_event(message("<@U0> agent:Research who was it?"), KNOWN), IncomingMessage)
    assert (asked.agent_id, asked.text) == ("research", "who was it?")


def test_an_edit_of_such_a_message_has_the_text_alone():
    edit = fixture("message_edited")
    edited = {**edit["message"], "text": "<@U0> agent:research count to four"}
    parsed = require_type(parse_event({**edit, "message": edited}, KNOWN), MessageEdited)
    assert parsed.text == "count to four"
