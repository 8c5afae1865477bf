"""Defines and parses the YAML scenarios that the scripted model plays; `simulator.model.server` serves them.

An example of a scenario:

    conversations:
      - name: sums                      # unique
        when:                           # the user message that starts the conversation, and required tools
          user: {contains: "add up"}    # any of contains, lacks (text or list), matches (regular expression)
          system: {contains: "Slack"}
          tools: [create_file]          # tools that the request must offer, natively or in the prompt
        capture: {file: 'uploads/(\\S+\\.csv)'}
        steps:
          - thinking: "Let me see."
            text: "I read {{file}}."
            calls: [{name: read_file, arguments: {file_path: "uploads/{{file}}"}}]
          - expect: {tool: read_file, success: true, last: {contains: "total"}, messages_min: 4}
            text: "Done."
            delay_seconds: 0.5          # seconds before the first piece
            chunk_characters: 12        # characters per piece
            chunk_delay_seconds: 0.02   # seconds between pieces
            usage: {input_tokens: 900, output_tokens: 20, cached_tokens: 0, cost_usd: 0.001}
            fault: {kind: status, status: 429, retry_after_seconds: 1, times: 1}

Only the request decides which step is played, so many threads can play one conversation at the same time and a repeated
request gets the same answer. If several conversations match, the one with the newest start is played: the words that
come last in the newest message that matches. The step is the number of assistant messages after the starting message.

- `{{name}}` is replaced by the newest match of the capture pattern in the messages since the starting message: the
  pattern's first group or, without groups, the whole match.
- `calls` become native tool calls, or an XML block if the request offers no native tools.
- Arguments that are a string are sent unchanged, even if they are invalid. So are the pieces of `raw`.
- A step with `optional: true` is not reported if it is never played.

A fault replaces or interrupts the answer the first `times` times that the step is played. The kinds of faults are
`status` (an HTTP error with `status`, `code`, `message` and `retry_after_seconds`) and, after `after_characters` of the
answer, `cut` (the connection breaks), `end` (the stream ends too early), `hang` (silence for `hang_seconds`), `garbage`
(invalid JSON) and `error` (an error inside the stream, with `code` and `message`).
"""

import re
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

JsonObject = dict[str, JsonValue]
Texts = str | tuple[str, ...]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextCondition(_Strict):
    """What a text must and must not hold; an empty condition holds always."""

    contains: Texts = ()
    lacks: Texts = ()
    matches: str | None = None

    @field_validator("matches")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        return _pattern(value) if value is not None else None

    def mismatch(self, text: str) -> str | None:
        """Returns a description of the first condition that the text does not meet, or None."""
        for wanted in _many(self.contains):
            if wanted not in text:
                return f"it lacks {wanted!r}"
        for unwanted in _many(self.lacks):
            if unwanted in text:
                return f"it holds {unwanted!r}"
        if self.matches is not None and not re.search(self.matches, text, re.DOTALL):
            return f"it does not match {self.matches!r}"
        return None

    def last_position(self, text: str) -> int:
        """Returns where the last of the wanted words begin in a text that meets the condition, or -1."""
        found = [text.rfind(wanted) for wanted in _many(self.contains)]
        found += [match.start() for match in re.finditer(self.matches, text, re.DOTALL)] if self.matches else []
        return max(found, default=-1)


class ConversationStart(_Strict):
    """`after` names a tool with a result among those right before the message, so that an answer to a question is told
    from a new request."""

    user: TextCondition = TextCondition()
    after: str | None = None
    system: TextCondition = TextCondition()
    tools: tuple[str, ...] = ()


class Expectation(_Strict):
    """`last` is the newest message; `tool` and `success` are about the newest tool result."""

    last: TextCondition = TextCondition()
    system: TextCondition = TextCondition()
    tool: str | None = None
    success: bool | None = None
    messages_min: int = 0
    messages_max: int | None = None
    tools: tuple[str, ...] = ()
    lacks_tools: tuple[str, ...] = ()


class ScriptedCall(_Strict):
    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict[str, JsonValue])
    id: str | None = None


class ScriptedUsage(_Strict):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


class Fault(_Strict):
    kind: Literal["status", "cut", "end", "hang", "garbage", "error"]
    times: int = Field(default=1, ge=1)
    after_characters: int = Field(default=0, ge=0)
    status: int = Field(default=500, ge=300, le=599)
    code: str | int | None = None
    message: str = "scripted fault"
    retry_after_seconds: float | None = None
    hang_seconds: float = 3600


class Step(_Strict):
    expect: Expectation = Expectation()
    thinking: str = ""
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    raw: Texts = ()
    chunk_characters: int = Field(default=24, ge=1)
    delay_seconds: float = Field(default=0, ge=0)
    chunk_delay_seconds: float = Field(default=0, ge=0)
    usage: ScriptedUsage | None = None
    finish_reason: str | None = None
    fault: Fault | None = None
    optional: bool = False


class Conversation(_Strict):
    name: str
    when: ConversationStart = ConversationStart()
    capture: dict[str, str] = Field(default_factory=dict[str, str])
    steps: tuple[Step, ...] = Field(min_length=1)

    @field_validator("capture")
    @classmethod
    def _compile(cls, value: dict[str, str]) -> dict[str, str]:
        return {name: _pattern(pattern) for name, pattern in value.items()}


class Scenario(_Strict):
    conversations: tuple[Conversation, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Scenario":
        names = [conversation.name for conversation in self.conversations]
        if len(set(names)) < len(names):
            raise ValueError("two conversations have the same name")
        return self


class ScenarioError(ValueError):
    """A scenario has mistakes. The message names the place of each."""


def load_scenario(text: str) -> Scenario:
    """Parses a scenario written in YAML. Raises ScenarioError."""
    try:
        return Scenario.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ScenarioError(f"The scenario is not valid YAML: {error}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)[:5]
        )
        raise ScenarioError(f"The scenario has mistakes: {problems}") from error


def _many(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text
