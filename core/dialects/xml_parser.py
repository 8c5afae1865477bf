"""Parses the calls of the XML dialect in a streamed answer. All other text is shown to users."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from core.context.code_tracker import CODE_CHARACTERS_MAX, MarkdownCodeTracker
from core.dialects.dialect import (
    CUT_CHARACTERS_MAX,
    CallComplete,
    DisplayText,
    ParsedPart,
    ToolSpec,
    as_cut_off_call,
    xml_tag_name,
)
from core.dialects.xml_call_reader import ElementReader, InvokeReader
from core.dialects.xml_lexer import BLOCK_TAGS, Lexer, TagGrammar, Token
from core.domain.ids import new_call_id
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

BLOCK_END = "\n</function_calls>"
RESULT_TAGS = frozenset({"function_results", "function_result", "tool_results", "tool_result", "tool_response"})
"""Tags in which models invent the results of calls that they have just written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlTools:
    """The tools of an answer by name, and by tag in the older call format. `grammar` recognizes the same tags.

    The answer ends with its call number `calls_max`; 0 means no limit."""

    by_name: Mapping[str, ToolSpec]
    by_tag: Mapping[str, ToolSpec]
    grammar: TagGrammar
    calls_max: int = 0


@dataclass(slots=True)
class _Block:
    """An open `<function_calls>` block. `space` is white space that is shown only if words follow it."""

    start: int
    has_calls: bool = False
    space: list[str] = field(default_factory=list[str])


class XmlParser:
    """Parses one streamed answer in the XML dialect.

    It is in text, in a block of calls or in a call. The total work is linear in the length of the text, regardless of
    how the text was split."""

    __slots__ = (
        "_block", "_call", "_call_start", "_calls_count", "_code", "_is_done", "_is_ending", "_lexer",
        "_offset", "_parsed", "_raw", "_stored", "_tools", "_visible",
    )  # fmt: skip

    def __init__(self, tools: XmlTools) -> None:
        self._tools = tools
        self._is_ending = self._is_done = False
        self._raw: list[str] = []
        self._offset = 0
        self._stored: tuple[int, str] | None = None
        self._lexer = Lexer()
        self._code = MarkdownCodeTracker()
        self._block: _Block | None = None
        self._call: InvokeReader | ElementReader | None = None
        self._call_start = self._calls_count = 0
        self._parsed: list[ParsedPart] = []
        self._visible: list[str] = []

    @property
    def raw_answer(self) -> str:
        """The original text of the answer.

        If the answer was cut, it ends with its last complete call and the closing tag of its block."""
        raw = "".join(self._raw)
        if self._stored is None:
            return raw
        end, suffix = self._stored
        return raw[:end] + suffix

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text and calls that are certain after this delta. Native tool calls are ignored."""
        if isinstance(delta, ToolCallDelta) or self._is_done or not delta.text:
            return ()
        self._raw.append(delta.text)
        if self._is_plain(delta.text):
            self._offset += len(delta.text)
            if self._call is not None:
                self._call.take_plain(delta.text)
                return ()
            self._code.feed(delta.text)
            return (DisplayText(text=delta.text),)
        self._lexer.feed(delta.text)
        self._read()
        return self._taken()

    def close(self, *, is_whole: bool, cut: str = "") -> Sequence[ParsedPart]:
        """Returns the remaining text and calls at the end of the answer.

        An incomplete call is returned with its `problem` set. If the answer was interrupted, an incomplete call is
        discarded and removed from `text`. If a limit cut the answer off, the incomplete call is returned with `cut` as
        its problem, and its start stays in `text`."""
        if self._is_done:
            return ()
        self._is_ending = True
        if is_whole:
            self._lexer.close()
        self._read()
        if not self._is_done:
            size = sum(map(len, self._raw))
            if cut and self._call is not None:
                end = min(size, self._call_start + CUT_CHARACTERS_MAX)
                self._complete(self._call, is_ended=False, cut=cut)
                self._stored = (end, "")
            elif not is_whole:
                self._forget_open_call()
            else:
                if self._call is not None:
                    self._complete(self._call, is_ended=False)
                self._stored = (size, "")
            self._is_done = True
        return self._taken()

    def _is_plain(self, text: str) -> bool:
        if not self._lexer.is_empty:
            return False
        if self._call is not None:
            return self._call.accepts_plain(text)
        return self._block is None and "<" not in text

    def _read(self) -> None:
        while not self._is_done:
            grammar = self._call.grammar if self._call is not None else self._tools.grammar
            token = self._lexer.next(grammar)
            if token is None:
                return
            if self._call is None and token.kind != "text":
                code = self._code.code_length(self._lexer.peek(CODE_CHARACTERS_MAX), is_end=self._is_ending)
                if code is None:
                    self._lexer.unread(token)
                    return
                if code >= 0:
                    token = Token("text", token.raw + self._lexer.take(code))
            self._offset += len(token.raw)
            if self._call is not None:
                taken = self._call.feed(token)
                if taken == "ended":
                    self._complete(self._call, is_ended=True)
                elif taken == "broken":
                    self._offset -= len(token.raw)
                    self._complete(self._call, is_ended=False)
                    if not self._is_done:
                        self._offset += len(token.raw)
                        self._take_tag(token)
            elif token.kind == "text":
                self._show(token)
            else:
                self._take_tag(token)

    def _take_tag(self, token: Token) -> None:
        """Processes a tag outside of calls. Parameters outside of blocks are text, perhaps of a call in another format.

        A closing tag without an opening tag is dropped, so that people never see call markup. Results that the model
        invents for its calls end the answer."""
        start = self._offset - len(token.raw)
        if token.name in RESULT_TAGS:
            if self._calls_count:
                self._stored = (start, BLOCK_END if self._block is not None else "")
                self._is_done = True
            else:
                self._show(token)
            return
        if token.name == "parameter" and self._block is None:
            self._show(token)
            return
        if token.name == "function_calls":
            self._block = _Block(start) if token.kind == "open" else None
            return
        if self._block is not None:
            self._block.space.clear()
        if token.kind != "close" and token.name != "parameter":
            self._call_start = start
            if token.name == "invoke":
                self._call = InvokeReader(token, self._tools.by_name)
            else:
                self._call = ElementReader(token, self._tools.by_tag[token.name])
            if token.kind == "empty":
                self._complete(self._call, is_ended=True)

    def _complete(self, reader: InvokeReader | ElementReader, *, is_ended: bool, cut: str = "") -> None:
        self._call = None
        call = reader.call(call_id=new_call_id(), is_ended=is_ended)
        call = as_cut_off_call(call, cut) if cut and call.problem else call
        self._parsed = self._taken()
        self._parsed.append(CallComplete(index=self._calls_count, call=call))
        self._calls_count += 1
        if self._block is not None:
            self._block.has_calls = True
        self._stored = (self._offset, BLOCK_END if self._block is not None else "")
        if self._calls_count == self._tools.calls_max:
            self._is_done = True

    def _forget_open_call(self) -> None:
        """Discards an incomplete call or tag at the end of an interrupted answer, and keeps the text before it."""
        if self._call is not None:
            end = self._call_start
        else:
            rest = self._lexer.take_all()
            if not rest.startswith("<"):
                self._visible.append(rest)
                self._offset += len(rest)
            end = self._offset
        if self._block is not None and not self._block.has_calls:
            self._stored = (self._block.start, "")
        else:
            self._stored = (end, BLOCK_END if self._block is not None else "")

    def _taken(self) -> list[ParsedPart]:
        """Returns the text and calls that the caller has not received yet."""
        if text := "".join(self._visible):
            self._parsed.append(DisplayText(text=text))
        self._visible.clear()
        parsed, self._parsed = self._parsed, []
        return parsed

    def _show(self, token: Token) -> None:
        self._code.feed(token.raw)
        visible = self._visible
        if self._block is None:
            visible.append(token.raw)
            return
        # white space between the tags of a block is not shown, but white space between words is
        space, words = self._block.space, token.raw.rstrip()
        if words:
            visible.extend((*space, words))
            space.clear()
        space.append(token.raw[len(words) :])


def new_xml_parser(tools: Mapping[str, ToolSpec], calls_max: int = 0) -> XmlParser:
    """Returns a parser for one answer. Tags of the older call format may use dashes or underscores."""
    by_tag = {
        tag.lower(): tool
        for tool in tools.values()
        for tag in (tool.name, xml_tag_name(tool.name))
        if tag.lower() not in BLOCK_TAGS
    }
    return XmlParser(XmlTools(by_name=tools, by_tag=by_tag, grammar=_build_grammar(tuple(by_tag)), calls_max=calls_max))


_PREFIX = re.compile(r"(</?)(?:antml:|minimax:|[|｜]{1,2}DSML[|｜]{1,2})(?=(?:invoke|parameter)\b)", re.IGNORECASE)


def read_invokes(body: str, tools: Mapping[str, ToolSpec]) -> Iterator[ToolCall]:
    """Yields the calls in a block of `<invoke>` elements. Tags may have the prefix of a model."""
    plain = _PREFIX.sub(r"\1", body)
    head, _, tag = plain.rstrip().rpartition("</")
    block = head if tag.lower() in ("function_calls>", "tool_call>", "tool_calls>") else plain
    parser = new_xml_parser(tools)
    delta = TextDelta(text=f"<function_calls>{block[block.find('<invoke') :]}</function_calls>")
    for part in (*parser.feed(delta), *parser.close(is_whole=True)):
        if isinstance(part, CallComplete):
            yield part.call


@lru_cache(maxsize=64)
def _build_grammar(tool_names: tuple[str, ...]) -> TagGrammar:
    return TagGrammar(block=True, tool_names=(*tool_names, *RESULT_TAGS))
