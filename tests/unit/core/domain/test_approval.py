"""What people see of the calls that they approve, and what their answer is bound to."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.content import AskPrompt
from bots.discord.render.components import ASK_TEXT_MAX
from bots.discord.render.components import render_content as render_for_discord
from bots.slack.render.messages import render_content as render_for_slack
from core.domain.approval import (
    APPROVE_ALL,
    APPROVE_ALWAYS,
    APPROVE_ONCE,
    CARD_CHARACTERS_MAX,
    CHANGED,
    DENY,
    NOBODY_APPROVED,
    ONE_BY_ONE,
    Approval,
    CallToApprove,
    escape_invisible,
    grants_of_always,
    is_allowed,
    is_denied,
    needs_question,
    refusal_reason,
)
from core.domain.json import JsonObject
from core.domain.outside_text import utf16_length
from core.domain.threads import Ask, Person

ALICE = Person(person_id="U1", name="alice")


def call(index: int = 0, /, **arguments: object) -> CallToApprove:
    values: JsonObject = json.loads(json.dumps(arguments))
    return CallToApprove(index=index, tool="send", headline="mail: send", arguments=values)


def approval(*calls: CallToApprove) -> Approval:
    return Approval(turn_id="t1", calls=calls)


def test_what_a_headline_says_is_not_shown_twice_unless_the_headline_is_cut() -> None:
    said = replace(call(to="bob", text="hi"), in_headline=frozenset({"to"}))
    assert said.line == "mail: send, with text `hi`"
    assert said.digest == call(to="bob", text="hi").digest
    assert "to `bob`" in replace(said, headline="x" * 400).line


def test_a_call_is_the_same_if_a_later_version_knows_more_parameters():
    before = replace(call(to="bob"), given=frozenset({"to"}))
    after = replace(call(to="bob", priority="normal"), given=frozenset({"to"}))
    chosen = replace(call(to="bob", priority="high"), given=frozenset({"to", "priority"}))
    assert before.digest == after.digest != chosen.digest


def answered(asked: Approval, answer: str) -> Ask:
    return Ask(
        ask_id="a1",
        run_id="r1",
        text=asked.text,
        kind="approval",
        subject=asked.subject,
        state="answered",
        answer=answer,
        answered_by=ALICE,
    )


def test_a_short_call_is_shown_whole_on_the_card() -> None:
    asked = approval(call(to="bob@example.org", text="Hello `Bob`\nBye", copies=2))
    assert asked.file_text == ""
    shown = r"- mail: send, with to `bob@example.org`, text `Hello \u0060Bob\u0060\nBye`, copies `2`"
    assert shown in asked.card
    assert "“Always in this thread” allows `send` with the same to, copies; text may differ." in asked.card


def test_a_long_value_is_whole_in_the_file_and_the_card_says_what_follows_its_cut() -> None:
    sql = "SELECT * FROM orders -- " + "x" * 3000 + "\n; DROP TABLE users"
    asked = approval(call(query=sql))
    assert "; DROP TABLE users" in asked.card
    assert "more characters of 2 lines …**" in asked.card
    assert f"`{asked.file_name}`" in asked.card
    assert f"({len(asked.file_text.splitlines())} lines)" in asked.card
    assert "; DROP TABLE users" in asked.file_text
    assert asked.file_text.count("x") >= 3000
    assert len(max(asked.file_text.splitlines(), key=len)) < 200


def test_what_cannot_be_seen_is_drawn() -> None:
    hidden = "pay\u202e\u200b\u2066\u00ad\u3164\ufe0f\U000e0041\u2028\x1b\xa0me"
    drawn = r"pay\u202e\u200b\u2066\u00ad\u3164\ufe0f\U000e0041\u2028\u001b\u00a0me"
    assert escape_invisible(hidden) == drawn
    assert drawn in approval(call(text=hidden)).card
    asked = replace(call(text="x"), headline="Deploy \u202egpj.exe")
    assert "\u202e" not in approval(asked).card


TEXTS = st.tuples(st.text(max_size=12), st.sampled_from([1, 1, 20, 100])).map(lambda one: one[0] * one[1])
VALUES = st.one_of(st.none(), st.integers(), TEXTS, st.lists(TEXTS, max_size=2))
CALLS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=6), min_size=1, max_size=18)


@given(CALLS)
def test_every_value_is_on_the_card_or_in_the_file_that_it_names(arguments: list[JsonObject]) -> None:
    asked = approval(*(call(at, **one) for at, one in enumerate(arguments)))
    assert utf16_length(asked.card) <= ASK_TEXT_MAX - 250
    where = asked.file_text.replace("\n    > ", "") or asked.card
    for one in asked.calls:
        for value in one.arguments.values():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines = text.split("\n") if asked.file_text else [text.replace("`", "\\u0060")]
            assert all(escape_invisible(line) in where for line in lines)
    assert asked.file_text == "" or f"`{asked.file_name}`" in asked.card


@given(CALLS)
def test_platforms_show_the_whole_card(arguments: list[JsonObject]) -> None:
    asked = approval(*(call(at, **one) for at, one in enumerate(arguments)))
    ask = Ask(ask_id="a", run_id="r", text=asked.card, options=asked.options, kind="approval")
    for drawn in (render_for_slack(AskPrompt(ask=ask)).blocks, render_for_discord(AskPrompt(ask=ask))):
        shown = json.dumps(drawn, ensure_ascii=False)
        assert "May I do this?" in shown
        assert "read it before you approve." in shown or not asked.file_text
        assert "“Always in this thread” allows `send`" in shown or len(asked.calls) > 1


def test_many_calls_are_counted_on_the_card_and_whole_in_the_file() -> None:
    asked = approval(*(call(at, to=f"person{at}") for at in range(32)))
    assert "and 16 more calls that do not fit here" in asked.card
    assert all(f"| person{at}" in asked.file_text for at in range(32))
    assert asked.summary.endswith("and 31 more")
    assert len(asked.card) < CARD_CHARACTERS_MAX + 400


def test_an_approval_is_bound_to_the_exact_call() -> None:
    ask = answered(approval(call(to="bob", text="hello")), APPROVE_ONCE)
    assert refusal_reason(ask, "t1", call(to="bob", text="hello")) is None
    assert refusal_reason(ask, "t1", call(to="bob", text="hello ")) == CHANGED
    assert refusal_reason(ask, "t1", call(1, to="bob", text="hello")) == NOBODY_APPROVED
    assert refusal_reason(ask, "t2", call(to="bob", text="hello")) == NOBODY_APPROVED
    renamed = replace(call(to="bob", text="hello"), tool="delete")
    assert refusal_reason(ask, "t1", renamed) == CHANGED


def test_always_is_bound_to_the_tool_and_its_target() -> None:
    granted = grants_of_always(answered(approval(call(to="bob", text="hello")), APPROVE_ALWAYS))
    assert call(to="bob", text="other words").grant in granted
    assert call(to="eve", text="hello").grant not in granted
    assert call(to="bob", text="hello", cc="eve").grant not in granted
    assert replace(call(to="bob", text="hello"), tool="delete").grant not in granted
    assert grants_of_always(answered(approval(call(to="bob")), APPROVE_ONCE)) == frozenset()


def test_without_a_target_always_means_exactly_this_call() -> None:
    """A shell command, or SQL in an argument that is called text."""
    for name in ("command", "text"):
        granted = grants_of_always(answered(approval(call(**{name: "ls"})), APPROVE_ALWAYS))
        assert call(**{name: "ls"}).grant in granted
        assert call(**{name: "rm -r ."}).grant not in granted


@pytest.mark.parametrize(
    ("seen", "other"),
    [
        # the target is in an object that is named like a text
        ({"to": "ada", "message": {"repo": "ours"}}, {"to": "ada", "message": {"repo": "theirs"}}),
        ({"content": {"repo": "ours"}, "dry_run": False}, {"content": {"repo": "theirs"}, "dry_run": False}),
        ({"path": "a", "content": ["ls"]}, {"path": "a", "content": ["rm"]}),
        # what is left cannot be a target
        ({"text": "ls", "verbose": True}, {"text": "rm", "verbose": True}),
        ({"text": "ls", "to": None}, {"text": "rm", "to": None}),
        ({"text": "ls", "to": ""}, {"text": "rm", "to": ""}),
        ({"text": "ls", "to": []}, {"text": "rm", "to": []}),
        ({"text": "ls", "timeout": 30}, {"text": "rm", "timeout": 30}),
        ({"text": "ls", "page_size": 30}, {"text": "rm", "page_size": 30}),
        ({"text": "ls", "dialect": "bash"}, {"text": "rm", "dialect": "bash"}),
        # a title or subject may be the target itself
        ({"title": "Notes", "content": "a"}, {"title": "Accounts", "content": "a"}),
        ({"repo": "ours", "title": "Notes"}, {"repo": "ours", "title": "Accounts"}),
        ({"subject": "ls", "verbose": True}, {"subject": "rm", "verbose": True}),
        ({"subject": "ls", "to": None}, {"subject": "rm", "to": None}),
    ],
)
def test_always_frees_no_argument_that_may_be_the_target(seen: Any, other: Any) -> None:
    asked = approval(call(**seen))
    assert "may differ" not in asked.card
    granted = grants_of_always(answered(asked, APPROVE_ALWAYS))
    assert call(**seen).grant in granted
    assert call(**other).grant not in granted


@pytest.mark.parametrize(
    "target", [{"to": "ada"}, {"channelId": "C1"}, {"recipient_email": "ada@example.org"}, {"user_id": 7}]
)
def test_always_frees_the_subject_of_what_goes_to_a_recipient(target: Any) -> None:
    seen = call(**target, subject="s", body="b")
    assert call(**target, subject="t", body="c").grant == seen.grant
    assert "subject, body may differ" in approval(seen).card


@pytest.mark.parametrize("target", [{"path": "a.txt"}, {"issue_number": 7}, {"repo": "ours"}, {"pageId": "7"}])
def test_always_frees_the_text_of_what_goes_to_a_place(target: Any) -> None:
    assert call(**target, content="x").grant == call(**target, content="y").grant


def test_an_answer_for_one_call_asks_about_each_of_several() -> None:
    both = approval(call(0, to="bob"), call(1, to="eve"))
    for answer in (ONE_BY_ONE, APPROVE_ONCE, APPROVE_ALWAYS):
        ask = answered(both, answer)
        assert not is_allowed(ask)
        assert not is_denied(ask)
        assert needs_question(ask, "t1", 0)
        assert grants_of_always(ask) == frozenset()
    ask = answered(both, APPROVE_ALL)
    assert is_allowed(ask)
    assert not needs_question(ask, "t1", 1)
    assert needs_question(answered(approval(call(0, to="bob")), DENY), "t1", 1)


def test_an_answer_that_an_earlier_version_stored_approves_nothing() -> None:
    ask = replace(answered(approval(call(to="bob")), APPROVE_ALWAYS), subject="t1 send")
    assert refusal_reason(ask, "t1", call(to="bob")) == NOBODY_APPROVED
    assert grants_of_always(ask) == frozenset()
    assert needs_question(ask, "t1", 0)
