"""Parses one call of the XML dialect: finds where each value ends, and builds the tool call.

Values are verbatim: white space is kept, and entities and CDATA are not decoded. A value may therefore contain text
that looks like call markup, so the end of a value depends on the tags that follow. A `</parameter>` ends the value if
`</invoke>` or another parameter follows it, unless it closes a `<parameter ...>` tag inside the value. Whole calls
inside a value are balanced in the same way. If the tags inside a value are not balanced, the call is parsed again
without balancing. A value cannot contain an unopened `</parameter></invoke>`, because a call runs as soon as it is
complete and does not wait for the text that follows."""

import re
from collections.abc import Mapping
from typing import Literal

from core.dialects.arguments import fit_arguments
from core.dialects.dialect import ToolSpec, find_tool_name
from core.dialects.xml_lexer import BLOCK_TAGS, TagGrammar, Token
from core.domain.json import JsonObject
from core.domain.messages import ToolCall

_MAY_BE_TAG = re.compile(r"<(?:/?(?:[ipf]|\Z))", re.IGNORECASE)
Taken = Literal["more", "ended", "broken"]
"""The effect of a token on a call.

`more`: the call continues. `ended`: the token ends the call. `broken`: the call has no closing tag, and the token
belongs to the text after the call."""


class InvokeReader:
    """Reads one `<invoke>` element after its opening tag.

    Keeps the tokens of the element's body and the current position in the element."""

    __slots__ = (
        "_candidate", "_found", "_is_unbalanced", "_open_counts", "_opening",
        "_parameter", "_place", "_problem", "_spec", "_stack", "_start", "_tokens",
        "_trail", "name",
    )  # fmt: skip

    grammar = TagGrammar(block=True)

    def __init__(self, opening: Token, tools: Mapping[str, ToolSpec]) -> None:
        self.name = find_tool_name(opening.attributes.get("name", "").strip(), tools)
        self._spec = tools.get(self.name)
        self._opening = opening
        self._tokens: list[Token] = []
        self._found: dict[str, tuple[int, int]] = {}
        self._parameter = ""
        self._place: Literal["between", "value", "closing"] = "between"
        self._stack: list[str] = []
        self._open_counts: dict[str, int] = dict.fromkeys(BLOCK_TAGS, 0)
        self._start = self._candidate = 0
        self._is_unbalanced = False
        self._trail: Literal["", "parameter", "invoke"] = ""
        self._problem = ""

    def accepts_plain(self, text: str) -> bool:
        """Returns whether the text belongs to the current value as it is, without looking for tokens."""
        return self._place == "value" and not self._trail and not _MAY_BE_TAG.search(text)

    def take_plain(self, text: str) -> None:
        """Adds text to the current value. Call it only if `accepts_plain` returned True for the text."""
        self._tokens.append(Token("text", text))

    def feed(self, token: Token) -> Taken:
        """Processes the next token of the body."""
        if self._place == "between":
            taken = self._between(token)
        elif self._place == "closing":
            taken = self._closing(token)
        else:
            taken = self._value(token)
        if taken != "broken":
            self._tokens.append(token)
        return taken

    def call(self, *, call_id: str, is_ended: bool) -> ToolCall:
        """Returns the call.

        `is_ended` is False if the answer or the block ended before the call did. An unreadable call is returned with
        its `problem` set."""
        if not is_ended and self._place == "value" and self._trail == "invoke":
            # the text ends with `</parameter></invoke>`, although by balanced tags these belong to the value
            self._is_unbalanced = is_ended = True
        raw = (self._opening.raw + "".join(token.raw for token in self._tokens)).rstrip()
        values: dict[str, str] | None = None
        problem = self._problem
        if not self.name:
            problem = "An <invoke> came without a name. Nothing was run; call it again."
        elif not is_ended:
            open_value = f"the parameter {self._parameter!r} has no </parameter> followed by </invoke>"
            missing = open_value if self._place == "value" else "it has no </invoke>"
            problem = (
                f"The call of {self.name} is not complete: {missing}. Nothing was run; write the whole call again."
            )
        elif self._is_unbalanced and not problem:
            values = _values_by_what_follows(self._tokens, self._spec)
            if values is None:
                problem = (
                    f"The call of {self.name} cannot be told apart from the text in it. Nothing was run; write one"
                    " call, with every <parameter> closed."
                )
        if problem:
            return ToolCall(name=self.name, arguments={}, call_id=call_id, raw=raw, problem=problem)
        if values is None:
            places = self._found.items()
            values = {name: "".join(token.raw for token in self._tokens[start:end]) for name, (start, end) in places}
        schema: JsonObject = self._spec.parameters if self._spec is not None else {}
        return ToolCall(name=self.name, arguments=fit_arguments(values, schema), call_id=call_id, raw=raw)

    def _between(self, token: Token) -> Taken:
        match token.kind, token.name:
            case ("close", "invoke"):
                return "ended"
            case ("open" | "empty", "invoke") | ("close", "function_calls"):
                return "broken"
            case ("open" | "empty", "parameter"):
                self._open(token, len(self._tokens))
            case _:
                if not token.raw.isspace():
                    self._problem = (
                        f"The call of {self.name} holds text outside of <parameter name=...> tags. "
                        "Nothing was run; write each argument as a parameter."
                    )
        return "more"

    def _open(self, token: Token, position: int) -> None:
        """Starts a parameter. `position` is the index of its opening tag in the body."""
        self._parameter = token.attributes.get("name", "").strip()
        if not self._parameter:
            self._problem = f"A parameter of {self.name} has no name. Nothing was run; write the call again."
        self._start = position + 1
        self._found[self._parameter] = (self._start, self._start)
        while self._stack:
            self._pop()
        self._trail = ""
        self._place = "between" if token.kind == "empty" else "value"

    def _closing(self, token: Token) -> Taken:
        """Processes a token after a `</parameter>` that may end the value.

        Only white space has followed that tag so far."""
        match token.kind, token.name:
            case ("close", "invoke"):
                self._found[self._parameter] = (self._start, self._candidate)
                return "ended"
            case ("open" | "empty", "invoke") | ("close", "function_calls"):
                self._found[self._parameter] = (self._start, self._candidate)
                return "broken"
            case ("close", "parameter"):
                self._candidate = len(self._tokens)
                return "more"
            case ("open" | "empty", "parameter") if (
                name := token.attributes.get("name", "").strip()
            ) and name not in self._found:
                self._found[self._parameter] = (self._start, self._candidate)
                self._open(token, len(self._tokens))
                return "more"
            case ("text", _) if token.raw.isspace():
                return "more"
            case _:
                self._place = "value"
                return self._value(token)

    def _value(self, token: Token) -> Taken:
        if token.kind == "close":
            if token.name == "parameter":
                if not self._stack:
                    self._place = "closing"
                    self._candidate = len(self._tokens)
                elif self._stack[-1] == "parameter":
                    self._pop()
                self._trail = "parameter"
                return "more"
            if self._open_counts[token.name]:
                while self._pop() != token.name:
                    pass
                is_call = token.name == "invoke" and self._trail == "parameter"
                self._trail = "invoke" if is_call else ""
                return "more"
            if token.name == "invoke" and self._trail == "parameter":
                self._is_unbalanced = True
                return "ended"
            if token.name == "function_calls" and self._trail == "invoke":
                return "broken"
            self._trail = ""
            return "more"
        if token.kind == "open":
            self._stack.append(token.name)
            self._open_counts[token.name] += 1
            self._trail = ""
        elif not token.raw.isspace():
            self._trail = ""
        return "more"

    def _pop(self) -> str:
        name = self._stack.pop()
        self._open_counts[name] -= 1
        return name


def _values_by_what_follows(body: list[Token], spec: ToolSpec | None) -> dict[str, str] | None:
    """Returns the values of a call whose values contain unbalanced tags, or None if a value contains the end of a call.

    Each value ends before a known parameter or at the end of the call."""
    properties = spec.parameters.get("properties") if spec is not None else None
    known = frozenset[str](properties if isinstance(properties, dict) else ())
    values: dict[str, str] = {}
    name, pieces, after = "", list[str](), list[str]()
    for token in body:
        is_parameter = token.name == "parameter"
        opened = token.attributes.get("name", "").strip() if is_parameter and token.kind == "open" else ""
        is_next = opened not in ("", name) and opened not in values and (not known or opened in known)
        if is_parameter and token.kind == "close":
            pieces.extend(after)
            after = [token.raw]
        elif is_next and (after or not name):
            if name:
                values[name] = "".join(pieces)
            name, pieces, after = opened, [], []
        elif after and token.raw.isspace():
            after.append(token.raw)
        else:
            pieces.extend((*after, token.raw))
            after = []
    # the last value still contains the </parameter></invoke> at the end of the body
    ending = "".join(pieces)
    values[name] = ending[: ending.rfind("</", 0, ending.rfind("</"))]
    return None if any("</invoke" in value.lower() for value in values.values()) else values


_CHILD = re.compile(r"\s*+<([\w-]++)\s*+>")


class ElementReader:
    """Reads one call in the older format: an element whose tag is the tool's name.

    The content is verbatim. Nested elements with the same name are counted, so that the matching closing tag ends the
    call. Attributes are parameters. The content is the value of the tool's content parameter. If the tool has no
    content parameter, the content may be child elements that are named after parameters."""

    __slots__ = ("_depth", "_opening", "_parts", "_spec", "grammar")

    def __init__(self, opening: Token, spec: ToolSpec) -> None:
        self.grammar = TagGrammar(block=False, tool_names=(opening.name,))
        self._opening = opening
        self._spec = spec
        self._parts: list[str] = []
        self._depth = 1

    @property
    def name(self) -> str:
        return self._spec.name

    def accepts_plain(self, text: str) -> bool:
        """Returns whether the text is content without tags."""
        return "<" not in text

    def take_plain(self, text: str) -> None:
        """Adds text of the element that contains no `<`, without parsing it."""
        self._parts.append(text)

    def feed(self, token: Token) -> Literal["more", "ended"]:
        """Processes the next token."""
        self._parts.append(token.raw)
        if token.kind == "open":
            self._depth += 1
        elif token.kind == "close":
            self._depth -= 1
        return "more" if self._depth else "ended"

    def call(self, *, call_id: str, is_ended: bool) -> ToolCall:
        """Returns the call. `is_ended` is False if the answer ended before the element did."""
        raw = self._opening.raw + "".join(self._parts)
        content = "".join(self._parts[:-1] if is_ended else self._parts)
        problem: str | None = None
        if not is_ended and self._opening.kind != "empty":
            problem = (
                f"The call of {self.name} is not complete: <{self._opening.name}> has no end. "
                "Nothing was run; write the whole call again."
            )
        values = {name.replace("-", "_"): value for name, value in self._opening.attributes.items()}
        if problem is None and content.strip():
            if self._spec.content_parameter is not None:
                values.setdefault(self._spec.content_parameter, content)
            else:
                # each child ends at the next closing tag with its name
                position = 0
                while match := _CHILD.match(content, position):
                    closing = f"</{match[1]}>"
                    end = content.find(closing, match.end())
                    if end < 0:
                        break
                    values[match[1].replace("-", "_")] = content[match.end() : end]
                    position = end + len(closing)
                if content[position:].strip():
                    problem = (
                        f"{self.name} takes no text between its tags. Nothing was run; give every argument as a"
                        " parameter."
                    )
        arguments = {} if problem else fit_arguments(values, self._spec.parameters)
        return ToolCall(name=self.name, arguments=arguments, call_id=call_id, raw=raw, problem=problem)
