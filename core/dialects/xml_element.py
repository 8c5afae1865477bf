"""Reading one call in the older XML form: `<create-file file_path="a">content</create-file>`."""

import re

from core.dialects.spec import ToolSpec
from core.dialects.xml_lexer import Grammar, Token
from core.dialects.xml_values import typed
from core.domain.messages import JsonObject, ToolCall

_CHILD = re.compile(r"\s*+<([\w-]++)\s*+>")


class ElementReader:
    """One element from its opening tag on. The content is verbatim; elements of the same name inside it are counted.

    Attributes are parameters. The content is the tool's content parameter; where the tool has none it may be child
    elements, each named as a parameter.
    """

    __slots__ = ("_depth", "_opening", "_parts", "_spec", "grammar")

    def __init__(self, opening: Token, spec: ToolSpec) -> None:
        self.grammar = Grammar(block=False, tool_names=(opening.name,))
        self._opening = opening
        self._spec = spec
        self._parts: list[str] = []
        self._depth = 1

    @property
    def name(self) -> str:
        return self._spec.name

    def take_plain(self, text: str) -> None:
        """Content without any `<`."""
        self._parts.append(text)

    def take(self, token: Token) -> bool:
        """The next token; whether the element ends with it."""
        self._parts.append(token.raw)
        if token.kind == "open":
            self._depth += 1
        elif token.kind == "close":
            self._depth -= 1
        return self._depth == 0

    def call(self, *, call_id: str, is_ended: bool) -> ToolCall:
        """What was read. Not ended: the answer was over before the element was."""
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
            problem = self._add_content(values, content)
        schema = self._spec.parameters
        arguments: JsonObject = (
            {} if problem else {name: typed(text, name, schema) for name, text in values.items()}
        )
        return ToolCall(
            name=self.name, arguments=arguments, call_id=call_id, raw=raw, problem=problem
        )

    def _add_content(self, values: dict[str, str], content: str) -> str | None:
        if self._spec.content_parameter is not None:
            values.setdefault(self._spec.content_parameter, content)
            return None
        children = _children(content)
        if children is None:
            return (
                f"{self.name} takes no text between its tags. Nothing was run; "
                "give every argument as a parameter."
            )
        values.update(children)
        return None


def _children(content: str) -> dict[str, str] | None:
    """The child elements, if the content is nothing else; each reaches to its own next closing tag."""
    found: dict[str, str] = {}
    position = 0
    while match := _CHILD.match(content, position):
        closing = f"</{match[1]}>"
        end = content.find(closing, match.end())
        if end < 0:
            return None
        found[match[1].replace("-", "_")] = content[match.end() : end]
        position = end + len(closing)
    return found if not content[position:].strip() else None
