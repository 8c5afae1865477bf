"""Commands in words: each is the whole message."""

import pytest

from bots.inbound.commands.grammar import parse_admin_command, parse_command, suggest_command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("follow", ("follow", "follow")),
        ("follow quiet", ("follow", "quiet")),
        ("Follow mention channel", ("follow", "mention channel")),
        ("follow default", ("follow", "default")),
        ("follow me home", None),
        ("stay quiet here", None),
        ("stop", ("stop", "")),
        ("stop the server", None),
        ("forget me yes", ("forget", "me yes")),
        ("forget me please", ("forget", "me")),
        ("pair ABCD EFGH", ("pair", "ABCD EFGH")),
        ("unpair Bob Smith", ("unpair", "Bob Smith")),
        ("audit 1000", ("audit", "1000")),
        ("audit this code please", None),
        ("use thesis-writer", ("use", "thesis-writer")),
        ("use both", None),
        ("Use it", None),
        ("use the", None),
        ("knowledge list", ("knowledge", "list")),
        ("knowledge is power", None),
    ],
)
def test_a_command_is_the_whole_message(text: str, command: tuple[str, str] | None) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("budgt", "budget"),
        ("forget everything", "forget"),
        ("usage report", "usage"),
        ("forget me please", None),
        ("status", None),
        ("plan a trip to Rome", None),
        ("summarize this", None),
        ("", None),
    ],
)
def test_a_mistyped_slash_command_is_told_from_a_request(text: str, command: str | None) -> None:
    assert suggest_command(text) == command


def test_only_knowledge_is_a_command_with_files() -> None:
    assert parse_command("knowledge add", has_files=True) == ("knowledge", "add")
    assert parse_command("status", has_files=True) is None


@pytest.mark.parametrize("text", ["pair programming", "pair them", "pair together", "pair up"])
def test_talk_of_pairs_is_no_command(text: str) -> None:
    assert parse_admin_command(text) is None


@pytest.mark.parametrize("code", ["ABCD-2345", "abcd2345", "`ABCD-2345`"])
def test_a_code_is_paired(code: str) -> None:
    assert parse_admin_command(f"pair {code}") == ("pair", code)
