"""Parses the calls of the XML dialect in a streamed answer. All other text is shown to people."""

import re
from collections.abc import Mapping, Sequence

from core.dialects.dialect import CallComplete, DisplayText, ParsedPart, ToolSpec
from core.dialects.xml_calls import ElementReader, InvokeReader
from core.dialects.xml_lexer import CodeTracker, InlineCodeEnd, Lexer, TagGrammar, Token
from core.domain.ids import new_id
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

BLOCK_END = "\n</function_calls>"
_SPECIAL = re.compile(r"[<`~\\]")
_MAY_BE_TAG = re.compile(r"<(?:/?(?:[ipf]|\Z))", re.IGNORECASE)
_VALUES = TagGrammar(block=True)


class XmlParser:
    """Parses one streamed answer in the XML dialect.

    The total work is linear in the length of the text, regardless of how the text was split. `tools_by_tag` maps
    tag names of the older call format to tools; `grammar` must recognize the same tag names.
    """

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        tools_by_tag: Mapping[str, ToolSpec],
        grammar: TagGrammar,
        *,
        calls_max: int = 0,
    ) -> None:
        self._tools = tools
        self._tools_by_tag = tools_by_tag
        self._grammar = grammar
        self._calls_max = calls_max
        self._raw: list[str] = []
        self._offset = 0
        self._lexer = Lexer()
        self._prose = CodeTracker()
        self._code_end: InlineCodeEnd | None = None
        self._unended: dict[int, int] = {}
        self._invoke: InvokeReader | None = None
        self._element: ElementReader | None = None
        self._call_start = 0
        self._is_in_block = False
        self._empty_block_start: int | None = None
        self._calls_count = 0
        self._stored: tuple[int, str] | None = None
        self._is_ending = False
        self._is_done = False
        self._parsed: list[ParsedPart] = []
        self._visible: list[str] = []
        self._space: list[str] = []

    @property
    def text(self) -> str:
        """The original text of the answer.

        If the answer was cut, it ends with its last complete call and the closing tag of its block.
        """
        raw = "".join(self._raw)
        if self._stored is None:
            return raw
        end, suffix = self._stored
        return raw[:end] + suffix

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text and calls that are certain after this delta. Native tool calls are ignored."""
        if isinstance(delta, ToolCallDelta) or self._is_done or not delta.text:
            return ()
        text = delta.text
        self._raw.append(text)
        if self._code_end is not None:
            self._look_for_code_end(self._code_end, text)
        elif self._is_plain(text):
            return self._take_plain(text)
        else:
            self._lexer.feed(text)
        self._read()
        return self._taken()

    def close(self, *, is_whole: bool) -> Sequence[ParsedPart]:
        """Returns the remaining text and calls at the end of the answer.

        An incomplete call is returned with its `problem` set. If the answer was interrupted, an incomplete call
        is discarded and removed from `text`.
        """
        if self._is_done:
            return ()
        self._is_ending = True
        if is_whole:
            self._lexer.close()
        if self._code_end is not None:
            self._look_for_code_end(self._code_end, "")
        self._read()
        if self._is_done:
            return self._taken()
        if is_whole:
            self._finish_open_call()
            self._stored = (sum(map(len, self._raw)), "")
        else:
            self._forget_open_call()
        self._is_done = True
        return self._taken()

    def _is_plain(self, text: str) -> bool:
        if not self._lexer.is_empty:
            return False
        if self._invoke is not None:
            return self._invoke.takes_plain_text and not _MAY_BE_TAG.search(text)
        if self._element is not None:
            return "<" not in text
        return not self._is_in_block and not _SPECIAL.search(text)

    def _take_plain(self, text: str) -> Sequence[ParsedPart]:
        self._offset += len(text)
        reader = self._invoke or self._element
        if reader is None:
            self._prose.take_plain(text)
            return (DisplayText(text=text),)
        reader.take_plain(text)
        return ()

    def _read(self) -> None:
        while not self._is_done and self._code_end is None:
            token = self._lexer.next(self._grammar_now())
            if token is None:
                return
            self._take(token)

    def _grammar_now(self) -> TagGrammar:
        if self._invoke is not None:
            return _VALUES
        return self._element.grammar if self._element is not None else self._grammar

    def _take(self, token: Token) -> None:
        is_tag = token.kind in ("open", "close", "empty")
        if is_tag and self._is_in_possible_code:
            if not self._has_no_code_end:
                self._code_end = InlineCodeEnd(self._prose.inline_length)
                self._look_for_code_end(self._code_end, token.raw + self._lexer.take_all())
                return
            self._prose.decide(is_code=False)
        self._offset += len(token.raw)
        if self._element is not None:
            if self._element.take(token):
                self._complete(self._element.call(call_id=_call_id(), is_ended=True))
        elif self._invoke is not None:
            self._take_in_invoke(self._invoke, token)
        elif is_tag and not self._prose.is_fence:
            self._take_tag(token)
        else:
            self._show(token)

    @property
    def _is_in_possible_code(self) -> bool:
        return self._prose.is_undecided and self._invoke is None and self._element is None

    @property
    def _has_no_code_end(self) -> bool:
        """Whether an earlier search has shown that the rest of the line does not close the inline code.

        Remembering this keeps the work linear for lines with many backticks.
        """
        return self._offset < self._unended.get(self._prose.inline_length, 0)

    def _look_for_code_end(self, code_end: InlineCodeEnd, text: str) -> None:
        length = code_end.feed(text, is_last=self._is_ending)
        if length is None:
            return
        if length == 0:
            self._unended[self._prose.inline_length] = self._offset + code_end.searched
        whole = code_end.text()
        self._prose.decide(is_code=length > 0, has_other_run=code_end.has_other_run)
        self._code_end = None
        self._visible.append(whole[:length])
        self._offset += length
        self._lexer.unread(whole[length:])

    def _take_in_invoke(self, invoke: InvokeReader, token: Token) -> None:
        taken = invoke.take(token)
        if taken == "more":
            return
        if taken == "ended":
            self._complete(self._read_invoke(invoke, is_ended=True))
            return
        self._offset -= len(token.raw)
        self._complete(self._read_invoke(invoke, is_ended=False))
        if not self._is_done:
            self._offset += len(token.raw)
            self._take_tag(token)

    def _take_tag(self, token: Token) -> None:
        """Processes a tag outside of calls.

        A closing tag without an opening tag is dropped, so that people never see call markup.
        """
        start = self._offset - len(token.raw)
        if token.name == "parameter" and token.kind != "close" and not self._is_in_block:
            self._show(token)
            return
        self._prose.call_passed()
        self._space.clear()
        if token.name == "function_calls":
            self._is_in_block = token.kind == "open"
            self._empty_block_start = start if self._is_in_block else None
        elif token.kind != "close" and token.name != "parameter":
            self._begin_call(token, start)

    def _begin_call(self, token: Token, start: int) -> None:
        self._call_start = start
        if token.name == "invoke":
            self._invoke = InvokeReader(token)
            if token.kind == "empty":
                self._complete(self._read_invoke(self._invoke, is_ended=True))
            return
        self._element = ElementReader(token, self._tools_by_tag[token.name])
        if token.kind == "empty":
            self._complete(self._element.call(call_id=_call_id(), is_ended=True))

    def _read_invoke(self, invoke: InvokeReader, *, is_ended: bool) -> ToolCall:
        return invoke.call(self._tools.get(invoke.name), call_id=_call_id(), is_ended=is_ended)

    def _complete(self, call: ToolCall) -> None:
        self._invoke = self._element = None
        self._empty_block_start = None
        self._flush_visible()
        self._parsed.append(CallComplete(index=self._calls_count, call=call))
        self._calls_count += 1
        self._stored = (self._offset, BLOCK_END if self._is_in_block else "")
        if self._calls_count == self._calls_max:
            self._is_done = True

    def _finish_open_call(self) -> None:
        if self._invoke is not None:
            self._complete(self._read_invoke(self._invoke, is_ended=False))
        elif self._element is not None:
            self._complete(self._element.call(call_id=_call_id(), is_ended=False))

    def _forget_open_call(self) -> None:
        """Discards an incomplete call or tag at the end of an interrupted answer, and keeps the text before it."""
        if self._invoke is not None or self._element is not None:
            end = self._call_start
        else:
            rest = self._lexer.take_all()
            if not rest.startswith("<"):
                self._visible.append(rest)
                self._offset += len(rest)
            end = self._offset
        if self._is_in_block and self._empty_block_start is not None:
            self._stored = (self._empty_block_start, "")
        else:
            self._stored = (end, BLOCK_END if self._is_in_block else "")

    def _show(self, token: Token) -> None:
        self._prose.take(token)
        if not self._is_in_block:
            self._visible.append(token.raw)
            return
        # white space between the tags of a block is not shown, but white space between words is
        words = token.raw.rstrip()
        if words:
            self._visible.extend((*self._space, words))
            self._space.clear()
        self._space.append(token.raw[len(words) :])

    def _flush_visible(self) -> None:
        text = "".join(self._visible)
        self._visible.clear()
        if text:
            self._parsed.append(DisplayText(text=text))

    def _taken(self) -> Sequence[ParsedPart]:
        self._flush_visible()
        parsed, self._parsed = self._parsed, []
        return parsed


def _call_id() -> str:
    return f"call_{new_id()}"
