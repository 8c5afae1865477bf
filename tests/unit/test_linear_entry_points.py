"""Everything that parses or draws outside text takes linear time, whatever the text repeats."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import cast

import discord
import pytest

from bots.delivery.answer_stream import STREAM_CHARACTERS_MAX, AnswerStream
from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.markdown import split_markdown
from bots.delivery.run_view import RunView, Task
from bots.discord.gateway.parse import text_with_names
from bots.discord.render import components as discord_render
from bots.inbound.actions import split_agent_prefix
from bots.inbound.commands.table import parse_command
from bots.observability.logs import redact_secrets
from bots.slack.events.parse import ParseContext, find_user_ids, parse_click, parse_event
from bots.slack.render import messages as slack
from bots.slack.render.block_kit import simplify_blocks
from bots.slack.web_api.client import Identity
from core.context.todo_file import parse_checklist
from core.context.untrusted_text import clean_line, clean_text, wrap_untrusted
from core.dialects.arguments import parse_arguments
from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.answer_links import LinkGate, LinkRule, hide_links
from core.domain.approval import Approval, CallToApprove
from core.domain.errors import ToolError
from core.domain.events import ChecklistItem, ResponseStarted, TextStreamed
from core.domain.json import JsonObject
from core.domain.sources import UNKNOWN_SOURCES
from core.domain.threads import Ask
from core.knowledge.chunk import split_into_chunks
from core.knowledge.document import Document, Page
from core.knowledge.parsing.plain import split_at_headings
from core.knowledge.terms import index_terms, query_terms
from core.llm.thinking import ThinkingReader
from core.ports import TextDelta, ToolCallDelta
from core.tools.workspace.file_changes import ReplaceParams, replace_once
from sandbox.client.terminal_output import render_terminal
from sandbox.local.egress_proxy import RefusedRequest, parse_proxy_request
from tests.fakes.cpu_seconds import seconds_of
from tests.fakes.llm_xml_reading import TOOLS

LENGTH = 10_000
"""A quarter of the longest message that Slack delivers. Quadratic code takes seconds for it."""
ENTRY_SECONDS_MAX = 1.5
"""A Markdown parser takes half a second for a table of 8,000 cells, and longer beside other work. Quadratic code takes
many seconds."""
UNITS = (
    *(" ", "\t", "\n", "`", "```", "~~~\n", "*", "**a", "_", "#", "# ", "<", ">", "&", "@", "!", "[", "|", "|\n", "-"),
    *("<@U1|", "<@U1> ", "<!here", "<#C1|x", "![", "![x](", "[x](http://", "<https://a|", "&lt;", "@everyone", "<@&1"),
    *("a\n", "| a |\n|---|\n", "- [ ] x\n", "1", "{", '{"a":', "[", '"', "\\", "<invoke", '<invoke name="wait">', "</"),
    *("<function_calls>", '<parameter name="', "Action: x\n", "Thought:", "Action Input: {", "\u202e", "input_value="),
    *("xoxb-", "Bearer a", "http://a:", "\x1b[", "\x1b]", ",}", "plan add ", "use ", "agent:", "knowledge remove "),
    *("\u0301\u0327", "\u1100\u1161\u11a8", "\ufb03\u0130", "\ud800", "\U0001f469\u200d", "\u2603\ufe0f\U0001f3fb"),
    *("> ", "- ", "[a]: b\n", "~~a", "\r\n"),
)  # fmt: skip
"""The last but one line: combining marks, Hangul, letters whose folded forms are longer, half a pair of surrogates, and
what joins the character before it."""
TEXTS = (
    "|" * 4_001 + "\n|" + "-|" * 4_000 + "\n" + "|\n" * 4_000,  # a wide table
    "[" * 20_000 + "](a)",
    "`" * 7_000 + "a\n" * 7_000,
)
"""What no repetition of one unit builds."""
BOT = Identity(user_id="U1", team_id="T1", bot_id="B1")


def _slack_event(text: str) -> object:
    event: JsonObject = {"type": "app_mention", "channel": "C1", "ts": "1700000000.000100", "user": "U2"}
    rich: JsonObject = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    block: JsonObject = {"type": "rich_text", "elements": [rich]}
    context = ParseContext(identity=BOT)
    find_user_ids({**event, "text": text})
    return (
        parse_event({**event, "text": text}, context),
        parse_event({**event, "text": f"{text}<@U1>{text}"}, context),
        parse_event({**event, "text": "", "blocks": [block]}, context),
    )


def _slack_click(text: str) -> object:
    action: JsonObject = {"action_id": f"ask:{text}", "value": text, "action_ts": text}
    payload: JsonObject = {
        "actions": [action],
        "user": {"id": "U2"},
        "channel": {"id": "C1"},
        "message": {"ts": "1700000000.000100"},
    }
    return parse_click(payload, ParseContext(identity=BOT))


def _discord_text(text: str) -> object:
    user = SimpleNamespace(id=2, display_name="Ada")
    snapshot = SimpleNamespace(content=text, embeds=[], components=[])
    message = SimpleNamespace(content=text, mentions=[user], guild=None, message_snapshots=[snapshot], stickers=[])
    words = text_with_names(cast(discord.Message, message), 1)
    return parse_command(words), split_agent_prefix(words)


def _contents(text: str) -> tuple[Content, ...]:
    ask = Ask(ask_id="a1", run_id="r1", kind="question", text=text, options=(text, "b"))
    view = RunView(
        state="working",
        activity=text,
        preview=text,
        message=text,
        checklist=(ChecklistItem(text=text, state="active"),),
        tasks=(Task(call_id="t", title=text, state="running", detail=text),),
    )
    part = AnswerPart(markdown=text)
    return RunStatus(run_id="r1", view=view), part, AskPrompt(ask=ask), Notice(markdown=text)


def _slack_render(text: str) -> object:
    return [simplify_blocks(slack.render_content(one).blocks) for one in _contents(text)]


def _discord_render(text: str) -> object:
    return [discord_render.render_content(one, delivery_id="d") for one in _contents(text)]


def _parse_with(dialect: Dialect, text: str) -> object:
    parser = dialect.parser(TOOLS)
    for at in range(0, len(text), 400):
        parser.feed(TextDelta(text=text[at : at + 400]))
    return parser.close(is_whole=True), parser.raw_answer


def _native_call(text: str) -> object:
    parser = NativeDialect().parser(TOOLS)
    for at in range(0, len(text), 400):
        part = text[at : at + 400]
        parser.feed(ToolCallDelta(index=0, call_id="c", name="wait", arguments=part))
    return parser.close(is_whole=True)


def _egress(text: str) -> object:
    with suppress(RefusedRequest):
        parse_proxy_request(f"GET http://a.org/ HTTP/1.1\r\na: {text}\r\n\r\n".encode(errors="replace"))
    with suppress(RefusedRequest):
        parse_proxy_request(f"GET http://{text} HTTP/1.1\r\n\r\n".encode(errors="replace"))
    return None


def _thinking(text: str) -> object:
    reader = ThinkingReader()
    deltas = [reader.read(text[at : at + 40]) for at in range(0, len(text), 40)]
    return deltas, reader.flush()


def _approval(text: str) -> object:
    text = text[: LENGTH // 4]
    call = CallToApprove(index=0, tool="wait", headline=text, arguments={"text": text})
    return Approval(turn_id="t", calls=(call,)).is_too_long, call.grant


def _chunks(text: str) -> object:
    page = Page(None, text[:100], text[: LENGTH // 2])
    return list(split_into_chunks(Document(title="", kind="txt", pages=(page,))))


def _edit(text: str) -> object:
    with suppress(ToolError, ValueError):
        return replace_once(text, ReplaceParams(file_path="a", old_str=f"{text} a", new_str=""))
    return None


def _stream_links(text: str) -> object:
    gate = LinkGate(LinkRule(UNKNOWN_SOURCES))
    return [gate.feed(text[at : at + 40]) for at in range(0, len(text), 40)], gate.flush()


def _arguments(text: str) -> object:
    with suppress(ValueError):
        return parse_arguments(text)
    return None


ENTRY_POINTS: dict[str, Callable[[str], object]] = {
    "a slack event": _slack_event,
    "a slack click": _slack_click,
    "a discord message": _discord_text,
    "slack's renderer": _slack_render,
    "discord's renderer": _discord_render,
    "splitting for slack": lambda text: split_markdown(text, 12_000),
    "splitting for discord": lambda text: split_markdown(text, 4_000),
    "the log's redaction": lambda text: redact_secrets(text, ["0123456789abcdef"]),
    "xml calls": partial(_parse_with, XmlDialect()),
    "react calls": partial(_parse_with, ReactDialect()),
    "native arguments": _native_call,
    "json arguments": _arguments,
    "untrusted text": lambda text: wrap_untrusted(clean_text(text, LENGTH), source=text),
    "todo.md": parse_checklist,
    "headings": split_at_headings,
    "search terms": lambda text: (index_terms(text), query_terms(text)),
    "terminal output": render_terminal,
    "egress requests": _egress,
    "a line of a stranger": lambda text: clean_line(text, LENGTH),
    "a model's thinking": _thinking,
    "an approval": _approval,
    "chunks of a document": _chunks,
    "an edit that does not fit": _edit,
    "the links of an answer": lambda text: hide_links(text, LinkRule(UNKNOWN_SOURCES)),
    "the links of a streamed answer": _stream_links,
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_takes_linear_time(name: str):
    slow: list[str] = []
    repeated = (
        (unit * (LENGTH // len(unit) + 1))[: LENGTH - len(end)] + end
        for unit, end in zip(UNITS, cycle(("", "\0")), strict=False)
    )
    for text in (*repeated, *TEXTS):
        seconds = seconds_of(partial(ENTRY_POINTS[name], text), seconds_max=ENTRY_SECONDS_MAX)
        if seconds > ENTRY_SECONDS_MAX:
            slow.append(f"{text[:20]!r}: {seconds:.2f} s")
    assert not slow, ", ".join(slow)


@pytest.mark.parametrize("text", [" " * 90_000 + "```" + "\n" * 90_000, "é " * 500_000])
def test_a_long_answer_is_split_in_linear_time(text: str):
    work = partial(split_markdown, text, 1_800)
    assert seconds_of(work, seconds_max=ENTRY_SECONDS_MAX) <= ENTRY_SECONDS_MAX


def test_an_unbalanced_call_of_an_unknown_tool_is_read_in_linear_time():
    parameters = "".join(f'<parameter name="p{number}">v</parameter>' for number in range(16_000))
    text = f'<invoke name="unknown"><parameter name="a"><parameter name="b">{parameters}</invoke>'
    work, most = partial(_parse_with, XmlDialect(), f"<function_calls>{text}</function_calls>"), 2 * ENTRY_SECONDS_MAX
    assert seconds_of(work, seconds_max=most) <= most


def test_no_more_of_a_streamed_answer_is_kept_than_a_message_may_show():
    stream = AnswerStream()
    stream.apply(ResponseStarted())
    for sequence in range(4_000):
        stream.apply(TextStreamed(text="word " * 20, sequence=sequence))
    # to add to 2 MB in 40,000 pieces takes 10 s
    assert len(stream._text) == STREAM_CHARACTERS_MAX
