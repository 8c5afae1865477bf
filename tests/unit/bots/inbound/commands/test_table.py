"""Commands in words: each is the whole message."""

import pytest

from bots.inbound.commands.table import COMMANDS, HELP, USAGE_HINT, parse_command, suggest_command

USAGE_HINT_MAX = 1000


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("status", ("status", "")),
        ("Status!", ("status", "")),
        ("files please", ("files", "")),
        ("files about our trip", None),
        ("follow", ("follow", "")),
        ("follow quiet", ("follow", "quiet")),
        ("Follow mention channel", ("follow", "mention channel")),
        ("follow channel", ("follow", "channel")),
        ("follow default", ("follow", "default")),
        ("follow me home", None),
        ("stay quiet here", None),
        ("stop", ("stop", "")),
        ("halt", ("stop", "")),
        ("stop the server", None),
        ("forget", ("forget", "")),
        ("Forget  me", ("forget", "me")),
        ("forget yes!", ("forget", "yes")),
        ("forget me yes.", ("forget", "me yes")),
        ("forget me please", ("forget", "me")),
        ("forget me yes and go on", None),
        ("never forget me", None),
        ("forget everything", None),
        ("pair ABCD EFGH", ("pair", "ABCD EFGH")),
        ("pair ABCD-2345", ("pair", "ABCD-2345")),
        ("pair abcd2345", ("pair", "abcd2345")),
        ("pair `ABCD-2345`", ("pair", "ABCD-2345")),
        ("pair programming", None),
        ("pair them", None),
        ("pair together", None),
        ("unpair Bob Smith", ("unpair", "Bob Smith")),
        ("who", ("who", "")),
        ("who is that", None),
        ("audit", ("audit", "")),
        ("audit 1000", ("audit", "1000")),
        ("audit this code please", None),
        ("use", ("use", "")),
        ("use thesis-writer", ("use", "thesis-writer")),
        ("use `Coding`", ("use", "Coding")),
        ("use both", None),
        ("Use it", None),
        ("use the", None),
        ("knowledge", ("knowledge", "")),
        ("knowledge list", ("knowledge", "list")),
        ("Knowledge remove My plan.pdf", ("knowledge", "remove My plan.pdf")),
        ("knowledge is power", None),
        ("plan", ("plan", "")),
        ("plan add Compare `a` and `b`", ("plan", "add Compare `a` and `b`")),
        ("plan skip 2", ("plan", "skip 2")),
        ("plan a trip to Rome", None),
        ("agents versions coding", ("agents", "versions coding")),
        ("Agents compare coding 1 3", ("agents", "compare coding 1 3")),
        ("agents compare coding 1", ("agents", "compare coding 1")),
        ("agents rollback `coding` 1", ("agents", "rollback coding 1")),
        ("agents reset coding", ("agents", "reset coding")),
        ("agents versions of coding, please", None),
        ("the agents reset x", None),
        ("budget", ("budget", "")),
        ("budget run 5", ("budget", "run 5")),
        ("Budget  person $20 ", ("budget", "person $20")),
        ("budget workspace 2000000 tokens", ("budget", "workspace 2000000 tokens")),
        ("budget channel none", ("budget", "channel none")),
        ("budget for 2027, please", None),
        ("budget run the numbers for me", None),
        ("the budget run 5", None),
        ("mcp connect tickets", ("mcp", "connect tickets")),
        ("MCP  Connect Tickets", ("mcp", "connect Tickets")),
        ("mcp connect the two servers", None),
        ("help", ("help", "")),
        ("help all", ("help", "all")),
        ("help knowledge", ("help", "knowledge")),
        ("help me with this", None),
        ("", None),
    ],
)
def test_a_command_is_the_whole_message(text: str, command: tuple[str, str] | None) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "pair",
        "pair ABC-123",
        "pair 1234 5678",
        "unpair",
        "audit 10x",
        "mcp connect",
        "agents rollback coding",
        "agents compare coding",
        "budget run much",
        "plan remove",
        "knowledge remove",
        "forget me now",
    ],
)
def test_a_command_of_the_wrong_form_is_no_request(text: str) -> None:
    name, argument = parse_command(text) or ("", "")
    assert COMMANDS[name].match_words(argument.split()) is None
    assert parse_command(text, may_be_wrong=False) is None


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


def test_the_short_help_is_three_lines_and_three_examples() -> None:
    said, _, examples = HELP.partition("\n\nFor example:\n")
    assert (len(said.splitlines()), len(examples.splitlines())) == (3, 3)


def test_slack_takes_the_hint_which_names_no_command_of_admins() -> None:
    assert len(USAGE_HINT) <= USAGE_HINT_MAX
    assert "status" in USAGE_HINT
    assert "pair" not in USAGE_HINT


@pytest.mark.parametrize(
    ("text", "is_for_admins"),
    [
        ("pair ABCD-2345", True),
        ("unpair bob", True),
        ("who", True),
        ("audit", True),
        ("audit 5", True),
        ("mcp connect notes", True),
        ("agents rollback coding 2", True),
        ("agents reset coding", True),
        ("follow quiet channel", True),
        ("follow quiet", False),
        ("budget run 5", True),
        ("budget", False),
        ("forget yes", False),
    ],
)
def test_what_only_admins_may_write(text: str, is_for_admins: bool) -> None:
    name, *words = text.split()
    form = COMMANDS[name].match_words(words)
    assert form is not None
    assert form[0].is_for_admins is is_for_admins


def test_a_command_that_means_nothing_by_itself_has_an_option_that_must_be_filled_in() -> None:
    needy = [command for command in COMMANDS.values() if command.match_words([]) is None]
    assert [command.name for command in needy] == ["agents", "pair", "unpair", "mcp"]
    assert all(any(option.is_required for option in command.options) for command in needy)
