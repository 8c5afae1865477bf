"""Which calls need a person, by where they go and by what the model had read when it wrote them."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from bots.slack.render.mrkdwn import mrkdwn_to_text
from core.context.message_text import sources_of_message
from core.context.summary import build_omission_note
from core.domain.approval import APPROVE_ALL, APPROVE_ALWAYS, Approval, CallToApprove
from core.domain.call_consent import (
    ALLOW,
    OPEN_PAGE,
    STAYS,
    Allow,
    AskUsers,
    Reach,
    ReachKind,
    Refuse,
    Verdict,
    explain_consent,
    judge_call,
    judge_target,
)
from core.domain.call_targets import (
    find_addresses,
    find_argument_addresses,
    find_targets,
    normalize_address,
    normalize_target,
    parse_names,
)
from core.domain.json import JsonObject
from core.domain.messages import Message, MessageType
from core.domain.network import ANY_HOST, NetworkLimits, hosts_opened_by, limit_network
from core.domain.outside_text import separate_address_marks
from core.domain.sources import (
    NO_SOURCES,
    SOURCES_MAX,
    UNKNOWN_SOURCES,
    Origin,
    Source,
    Sources,
    dump_sources,
    join_sources,
    parse_sources,
    sources_read_now,
)
from core.tools.browser.action import reach_of_address
from core.tools.browser.interaction import browser_click_element, browser_input_text
from core.tools.browser.navigation import browser_switch_tab

COMMAND = STAYS
"""The reach of a command that names no hosts."""
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOWTO: Origin = ("page", "https://example.com/howto?id=1")
PERSON: Origin = ("person", "alice")
REQUEST = (
    "Read docs.example.com and the report on https://shop.example/a?b=1, then send the figures to bob@example.com and"
    " Eve Smith in #general. My account is GB29-7788, and the file is notes.md on port 8000. Then"
    " see last.example.That is all."
)


def sources(*origins: Origin, offered: tuple[str, ...] = ()) -> Sources:
    read = frozenset(Source(kind, name, NOW) for kind, name in origins)
    return Sources(read, parse_names(REQUEST), frozenset(map(normalize_address, offered)))


@dataclass(frozen=True)
class Case:
    reach: ReachKind
    target: str
    read: tuple[Origin, ...] = (PERSON, HOWTO)
    offered: tuple[str, ...] = ()
    verdict: type[Allow | AskUsers | Refuse] = AskUsers


PAGE_READ: tuple[Origin, ...] = (PERSON, ("browser", "https://shop.example/cart"))
R, W, T, S = "reads_outside", "writes_outside", "talks_elsewhere", "spends"
ONLY_PEOPLE = ((), (PERSON,), (PERSON, ("choice", "bob")), (("browser", "http://localhost:8000/"),))
NOBODY_NAMED = ("https://evil.example/", "mallory@evil.example", "#random", "mallory", "IBAN-1234", "", "!")
CASES = [
    # while only people's words were read, everything is as if there were no rule
    *(Case(reach, target, read, verdict=Allow) for reach in (R, W, T, S) for read in ONLY_PEOPLE for target in (
        "https://evil.example/", "mallory")),
    Case(W, "https://user:secret@evil.example/", (PERSON,), verdict=Allow),
    # a call that stays in the thread is free, whatever was read
    Case("none", "https://evil.example/", verdict=Allow),
    Case("none", "mallory", (("unknown", ""),), verdict=Allow),
    # nothing that nobody named is reached after any other text
    *(Case(reach, target) for reach in (R, W, T, S) for target in NOBODY_NAMED),
    *(
        Case(W, "https://evil.example/", (PERSON, (kind, "x")))
        for kind in (
            "app", "quote", "chat", "file", "page", "browser", "internet", "search", "service", "server", "document",
            "unknown",
        )
    ),
    # what people named is reached, as a value
    Case(R, "https://docs.example.com/any/page", verdict=Allow),
    Case(R, "http://docs.example.com:8080/?q=1", verdict=Allow),
    Case(R, "https://www.docs.example.com", verdict=Allow),
    Case(R, "DOCS.EXAMPLE.COM", verdict=Allow),
    Case(R, "docs.example.com.", verdict=Allow),
    Case(W, "https://shop.example/other", verdict=Allow),
    Case(W, "bob@example.com", verdict=Allow),
    Case(W, "Bob@Example.com", verdict=Allow),
    Case(W, "mailto:bob@example.com", verdict=Allow),
    Case(W, "https://last.example/", verdict=Allow),
    Case(T, "general", verdict=Allow),
    Case(T, "#general", verdict=Allow),
    Case(T, "@Eve Smith", verdict=Allow),
    Case(T, "eve", verdict=Allow),
    Case(S, "GB29-7788", verdict=Allow),
    Case(W, "8000", verdict=Allow),
    # and nothing that only looks alike, contains it, or is contained in it
    Case(R, "https://evil-docs.example.com"),
    Case(R, "https://docs.example.com.evil.example"),
    Case(R, "https://evil.example/docs.example.com"),
    Case(R, "https://evil.example/?docs.example.com"),
    Case(R, "https://evil.example#docs.example.com"),
    Case(R, "https://sub.docs.example.com"),
    Case(R, "https://example.com"),
    Case(R, "https://shop.exampl"),
    Case(R, "https://dоcs.example.com"),  # the second letter is Cyrillic
    Case(R, "https://notes.md/"),
    Case(R, "https://general/"),
    Case(R, "https://93.184.216.34/"),
    Case(R, "https://0x5db8d822/"),
    Case(W, "bob@evil.example"),
    Case(W, "bobby@example.com"),
    Case(W, "mallory@evil.example/bob@example.com"),
    Case(W, "mallory@evil.example, bob@example.com"),
    Case(T, f"general{' ' * 400}mallory"),
    Case(T, "general, mallory"),
    Case(W, "ob@example.com"),
    Case(W, "bob@example.com.evil.example"),
    Case(T, "gen"),
    Case(T, "general-private"),
    Case(T, "Eve Smithers"),
    Case(T, "Smith Eve"),
    Case(S, "GB29-7789"),
    Case(W, "800"),
    # an address that the search gave word for word may be read, and nothing more
    Case(R, "https://found.example/page", offered=("https://found.example/page",), verdict=Allow),
    Case(R, "https://found.example/page/", offered=("https://found.example/page",), verdict=Allow),
    Case(R, "https://found.example/page#part", offered=("https://found.example/page#part",), verdict=Allow),
    Case(R, "https://found.example/page#secret", offered=("https://found.example/page",)),
    Case(R, "https://found.example/page?data=secret", offered=("https://found.example/page",)),
    Case(R, "https://found.example/", offered=("https://found.example/page",)),
    Case(W, "https://found.example/page", offered=("https://found.example/page",)),
    Case(T, "https://found.example/page", offered=("https://found.example/page",)),
    # what people could not check is refused
    Case(R, "https://docs.example.com@evil.example/", verdict=Refuse),
    Case(R, "https://docs.example.com\\@evil.example/", verdict=Refuse),
    Case(R, "https://evil.example\\@docs.example.com/", verdict=Refuse),
    Case(W, "bob\u202e@example.com", verdict=Refuse),
    Case(W, "general\u200b", verdict=Refuse),
    Case(R, f"https://evil.example/{'x' * 2000}", verdict=Refuse),
]  # fmt: skip


def test_the_table_is_as_long_as_promised() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.reach}-{case.target[:40]}-{len(case.read)}")
def test_a_call_is_judged_by_its_target_and_by_what_was_read(case: Case) -> None:
    known = sources(*case.read, offered=case.offered)
    assert type(judge_target(case.reach, case.target, known, known.named)) is case.verdict


def test_a_call_is_asked_about_for_all_its_targets_that_nobody_named() -> None:
    reach = Reach("writes_outside", ("general", "mallory", "https://evil.example/x"))
    assert judge_call(reach, sources(HOWTO)) == AskUsers(("mallory", "https://evil.example/x"))
    assert judge_call(reach, sources(PERSON)) == ALLOW
    assert judge_call(STAYS, UNKNOWN_SOURCES) == ALLOW


def test_a_call_that_chooses_no_place_goes_to_the_services_of_the_operator() -> None:
    assert judge_call(Reach("reads_outside"), sources(HOWTO)) == ALLOW


def test_an_action_in_the_browser_goes_to_the_page_that_is_open() -> None:
    reach = Reach("writes_outside", (OPEN_PAGE,))
    evil: Origin = ("browser", "https://evil.example/form")
    named = Source("browser", "https://shop.example/cart", NOW + timedelta(minutes=1))
    local = Source("browser", "http://localhost:8000/", NOW + timedelta(minutes=2))
    known = sources(evil)
    assert judge_call(reach, known) == AskUsers(("https://evil.example/form",))
    known = join_sources([known, Sources(frozenset({named}))])
    assert judge_call(reach, known) == ALLOW
    known = join_sources([known, Sources(frozenset({Source("page", "https://docs.example.com", NOW)}))])
    assert judge_call(reach, join_sources([known, Sources(frozenset({local}))])) == ALLOW
    assert judge_call(reach, sources(HOWTO)) == AskUsers((OPEN_PAGE,))


@pytest.mark.parametrize(
    ("earlier", "read", "verdict"),
    [
        ((reach_of_address("https://docs.example.com/"),), PAGE_READ, Refuse),
        ((reach_of_address("localhost:8000"),), PAGE_READ, Refuse),
        ((STAYS, browser_switch_tab.reach), PAGE_READ, Refuse),
        ((browser_click_element.reach,), PAGE_READ, Refuse),
        ((browser_input_text.reach, STAYS), PAGE_READ, Allow),
        ((), PAGE_READ, Allow),
        ((reach_of_address("https://docs.example.com/"),), (PERSON,), Allow),
    ],
)  # fmt: skip
def test_an_action_on_a_page_that_may_have_changed_waits_for_a_look(
    earlier: tuple[Reach, ...], read: tuple[Origin, ...], verdict: type[Verdict]
) -> None:
    assert isinstance(browser_input_text.reach, Reach)
    assert type(judge_call(browser_input_text.reach, sources(*read), earlier)) is verdict


def test_the_card_names_the_cause_and_offers_nothing_for_good() -> None:
    known = sources(PERSON, HOWTO, ("file", "a`b.csv"))
    cause = explain_consent(AskUsers(("https://files.example.com/in",)), known, NOW + timedelta(minutes=2))
    call = CallToApprove(index=0, tool="send", headline="Send report.csv (14 kB)", arguments={"to": "x"}, cause=cause)
    one = Approval(turn_id="t", calls=(call,))
    assert "Because of: " in one.card
    assert "the page `example.com/howto`, read 2 minutes ago" in one.card
    assert "the file `a'b.csv`, read 2 minutes ago" in one.card
    assert one.card.endswith("Nobody in this thread named `files.example.com`.")
    assert call.grant == ""
    assert APPROVE_ALWAYS not in one.options
    both = Approval(turn_id="t", calls=(call, replace(call, index=1, cause=None)))
    assert APPROVE_ALL in both.options
    assert "Because of: " in both.text


def test_a_card_without_a_cause_is_as_ever() -> None:
    call = CallToApprove(index=0, tool="send", headline="Send", arguments={})
    assert "Because" not in Approval(turn_id="t", calls=(call,)).card
    assert call.grant


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "just now"), (60, "1 minute ago"), (7200, "2 hours ago"), (90_000, "1 day ago")]
)
def test_the_age_of_a_source_is_said_in_words(seconds: int, words: str) -> None:
    assert words in explain_consent(AskUsers(("x",)), sources(HOWTO), NOW + timedelta(seconds=seconds)).because


def test_a_long_list_of_sources_is_cut_and_counted() -> None:
    read = tuple(("page", f"https://example.com/{number}") for number in range(9))
    assert explain_consent(AskUsers(("x",)), sources(*read), NOW).because.endswith("; and 6 more")


def test_joined_sources_are_stored_and_read_back() -> None:
    known = join_sources([sources(PERSON, HOWTO, offered=("https://found.example/",)), UNKNOWN_SOURCES])
    assert parse_sources(dump_sources(known)) == known
    assert parse_sources(dump_sources(NO_SOURCES)) == NO_SOURCES


@pytest.mark.parametrize("broken", [None, "x", [], {"read": [["page"]]}, {"read": [["no kind", "", ""]]}])
def test_what_cannot_be_read_is_unknown_and_never_nothing(broken: Any) -> None:
    assert parse_sources(broken) == UNKNOWN_SOURCES


def test_no_number_of_sources_makes_one_from_outside_forgotten() -> None:
    many = [Sources(frozenset({Source("person", str(number), NOW)})) for number in range(SOURCES_MAX + 5)]
    old = Sources(frozenset({Source("page", "https://example.com", NOW - timedelta(days=1))}))
    joined = join_sources([old, *many])
    assert len(joined.read) == SOURCES_MAX
    assert [source.kind for source in joined.outside] == ["page"]


def test_the_newest_reading_of_a_source_counts() -> None:
    twice = [Sources(frozenset({Source("page", "a", NOW + timedelta(hours=hours))})) for hours in (0, 2, 1)]
    assert [source.read_at for source in join_sources(twice).read] == [NOW + timedelta(hours=2)]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("See https://a.example/x?y=1.", ["https://a.example/x?y=1"]),
        ("(a.example), <https://b.example|B> and [c](https://c.example)", ["a.example", "https://b.example",
        "https://c.example"]),
        ("![x](https://a.example/p.png?d=SGVsbG8)", ["https://a.example/p.png?d=SGVsbG8"]),
        ("url=https://a.example", ["url=https://a.example"]),
        ("https://a.example/?u=https://b.example/", ["https://a.example/?u=https://b.example/"]),
        ("write to x/bob@a.example or mailto:eve@b.example", ["x/bob@a.example", "mailto:eve@b.example"]),
        ("report.csv, main.py, e.g. 3.14 and v1.2", []),
        ("10.0.0.1 and [::1]", ["10.0.0.1"]),
        ("@bob #general", []),
    ],
)  # fmt: skip
def test_addresses_are_found_in_a_text(text: str, addresses: list[str]) -> None:
    assert find_addresses(text)[: len(addresses)] == addresses
    assert bool(find_addresses(text)) is bool(addresses)


def test_every_address_of_a_piece_counts() -> None:
    values = [normalize_target(address) for address in find_addresses("https://a.example/?u=https://b.example/")]
    assert values == ["host:a.example", "host:b.example"]


@pytest.mark.parametrize("host", ["https://müller.example/x", "MÜLLER.example", "www.xn--mller-kva.example"])
def test_a_host_has_one_value_in_whichever_letters(host: str) -> None:
    assert normalize_target(host) == "host:xn--mller-kva.example"


def test_the_targets_of_a_call_are_its_addresses_and_its_places() -> None:
    arguments = {
        "channelId": "C1",
        "body": "Look at https://evil.example/x and write to eve@evil.example.",
        "recipients": ["bob", {"email": "bob@a.example"}],
        "title": "Hello",
        "is_to": True,
        "nested": {"user_name": 7, "text": "plain"},
    }
    assert find_targets(arguments) == (
        "C1", "https://evil.example/x", "eve@evil.example", "bob", "bob@a.example", "7",
    )  # fmt: skip
    assert find_argument_addresses(arguments) == ("https://evil.example/x", "eve@evil.example", "bob@a.example")


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "Eve evil\uff0eexample",
        "x mallory@evil.example",
        "https://evil",
        "evil\u3002example",
        "E\n//evil.example",
    ],
)
def test_the_name_of_somebody_who_is_mentioned_is_no_address(name: str) -> None:
    for text in (
        separate_address_marks(name),
        f"hi{separate_address_marks(name)}",
        mrkdwn_to_text("ask<@U1>", {"U1": name}),
    ):
        assert find_addresses(text) == []


def test_a_name_that_is_mentioned_stays_readable() -> None:
    assert separate_address_marks("J.R. Smith-O'Hara") == "J. R. Smith-O'Hara"


@pytest.mark.parametrize(
    "address",
    [
        "https://[2001:db8::1]/in", "https://evil.example:0000000443/", "https://evil\u3002example/",
        "https://evil\uff0eexample/",
        "https:evil.example/", "http:/evil.example/", "https:\\\\evil.example/", "HTTPS:/\\evil/",
        "//evil.example/", "src=//evil.sh/x",
        "//[2001:db8::1]/", "//2130706433/", "//evil%2eexample/", "x//y://evil/","https://evil%2eexample/",
        "https://evil%252eexample/", "https://evil..example/",
        "https\uff1a//evil.example/", "https://\u24d4vil.example/", "https://evil\u200b.example/",
        f"https://{'a' * 300}.example/",
        "ssh://git@evil.example:x.git", "git@evil.example:x/y.git", "mailto:mallory%40evil.example",
        "mallory\uff20evil.example",
        "mallory@[IPv6:2001:db8::1]", "mallory@evil.example?//docs.example.com",
        "mallory@evil.example?x=https://docs.example.com",
    ],
)  # fmt: skip
def test_no_way_to_write_an_address_hides_it(address: str) -> None:
    known = sources(HOWTO)
    for arguments in (
        {"body": address},
        {"body": f"See ({address})."},
        {"headers": {address: "x"}},
        {"to": [{address: 1}]},
    ):
        for targets in (find_targets(arguments), find_argument_addresses(arguments)):
            assert judge_call(Reach("writes_outside", targets), known) != ALLOW


@pytest.mark.parametrize(
    "text",
    ["a // b", "a//b", "//comment", "https://", "https: the protocol", "rows:5", "file:///etc/hosts", "50%20off",
    "@bob",
     "a@b", "x == [1:2]", "12:30", "C:/a/b", "https://docs.example.com:443/[a:b]", "https://DOCS%2Eexample.com/"],
)  # fmt: skip
def test_what_is_no_address_is_not_asked_about(text: str) -> None:
    targets = find_targets({"body": text})
    assert judge_call(Reach("writes_outside", targets), sources(HOWTO)) == ALLOW


@pytest.mark.parametrize(
    ("name", "is_place"),
    [
        ("destination", True), ("webhook", True), ("assignee", True), ("attendee_emails_list", True),
        ("channelName", True),
        ("userIds", True), ("callbackUrlV2", True), ("email_body", False), ("title", False),
        ("projectDescription", False),
    ],
)  # fmt: skip
def test_the_name_of_an_argument_says_whether_it_is_a_place(name: str, is_place: bool) -> None:
    assert find_targets({name: "mallory"}) == (("mallory",) if is_place else ())


def test_deep_arguments_are_searched_to_their_end() -> None:
    deep: Any = "https://evil.example/"
    for _ in range(5_000):
        deep = [deep]
    assert find_targets({"x": deep}) == ("https://evil.example/",)
    assert find_argument_addresses({"x": deep}) == ("https://evil.example/",)


def message(kind: MessageType, **metadata: JsonValue) -> Message:
    content: JsonObject = {"role": "user", "content": "Send it to bob@example.com."}
    return Message(type=kind, content=content, is_llm_message=True, thread_id="t", metadata=metadata)


def test_a_summary_carries_the_sources_of_what_it_replaces() -> None:
    page = message("tool", sources=dump_sources(Sources(frozenset({Source("page", "https://example.com", NOW)}))))
    asked = message("user", sources=dump_sources(Sources(frozenset({Source("person", "", NOW)}))))
    known = join_sources(map(sources_of_message, [asked, page]))
    assert "mail:bob@example.com" in known.named
    assert sources_of_message(build_omission_note([asked, page], run_id="r", room=1_000)) == known


def test_a_message_that_does_not_state_its_sources_has_an_unknown_one() -> None:
    assert sources_of_message(message("tool")) == sources_of_message(message("user")) == UNKNOWN_SOURCES
    assert sources_of_message(message("assistant")) == sources_of_message(message("status")) == NO_SOURCES


NAMED = frozenset({"host:docs.example.com", "mail:bob@example.com", "word:report"})
OPENED = frozenset({"host:opened.example"})
OWN_PAGE: Origin = ("browser", "http://localhost:8000/")
ALLOWED = {"host:docs.example.com", "host:opened.example"}


@pytest.mark.parametrize(
    ("call", "read", "commands", "browser"),
    [
        (COMMAND, (PERSON,), None, None),
        (COMMAND, (PERSON, OWN_PAGE), None, None),
        (COMMAND, (PERSON, HOWTO), ALLOWED, None),
        (Reach("connects", ("new.example",)), (HOWTO,), {*ALLOWED, "host:new.example"}, None),
        (Reach("writes_outside", ("new.example",)), (HOWTO,), ALLOWED, None),
        (Reach("reads_outside", ("https://new.example/a",)), (HOWTO,), ALLOWED, None),
        (COMMAND, (HOWTO, OWN_PAGE), ALLOWED, ALLOWED),
        (reach_of_address("file:///workspace/a.html"), (HOWTO,), ALLOWED, ALLOWED),
        (
            reach_of_address("https://new.example/a"),
            (HOWTO, OWN_PAGE),
            ALLOWED,
            {*ALLOWED, "host:new.example"},
        ),
    ],
)  # fmt: skip
def test_programs_reach_what_a_call_could(
    call: Reach, read: tuple[Origin, ...], commands: set[str] | None, browser: set[str] | None
) -> None:
    sources = replace(sources_read_now(*read), named=NAMED)
    expected = NetworkLimits(commands and frozenset(commands), browser and frozenset(browser))
    assert limit_network(call, sources, OPENED) == expected
    assert (expected == ANY_HOST) == (HOWTO not in read)


def test_a_page_of_the_sandbox_limits_the_calls_beside_it_too() -> None:
    """They were written before the page was open, so it is not among their sources."""
    opened = hosts_opened_by(reach_of_address("http://localhost:8000/"))
    assert limit_network(COMMAND, sources_read_now(HOWTO), opened) == NetworkLimits(frozenset(), frozenset())
    assert limit_network(COMMAND, sources_read_now(PERSON), opened) == ANY_HOST
