"""Questions that an MCP server asks users during a call (elicitation).

Users may answer hours later, so a call does not wait for them: the question ends the run as an `ask`, the server is
told that it was cancelled, and the model calls the tool again with the answers. Answers are passed on only if the same
question was asked in an earlier run of the thread, because a model must not answer for users. One connection serves the
calls of all threads, so a question is posted only if it is certain which call it belongs to."""

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import cast

from mcp.types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from core.context.untrusted_text import clean_line, clean_text
from core.domain.json import JsonObject, json_fields
from core.domain.outside_text import quote_lines
from core.domain.threads import Reply
from core.mcp.arguments import ANSWERS, find_problems
from core.tools.tool import ToolContext, ToolOutput

QUESTION_CHARACTERS_MAX = 2_000
FIELDS_MAX = 20
_MARK = re.compile(r"\[question ([0-9a-f]{16})\]")
_NOBODY_ASKED = (
    "[While this call and others ran, the server asked people a question and was told that nobody answered. Nobody has "
    "seen it. If this result lacks their answer, call the tool again.]"
)


@dataclass(slots=True)
class RunningCall:
    """A call that waits for its result. `answers` are those of users. `asked` are the digests of the questions that
    were asked in earlier runs of the thread. `questions` are those that the server asks during this call, by digest.
    `may_have_asked`: the server asked a question that belongs to this call or to another one."""

    thread_id: str
    server: str
    tool: str
    answers: JsonObject | None
    asked: frozenset[str]
    questions: dict[str, str] = field(default_factory=dict[str, str])
    may_have_asked: bool = False


async def find_asked_questions(context: ToolContext) -> frozenset[str]:
    """Returns the digests of the questions asked in earlier runs of the thread."""
    if context.messages is None:
        return frozenset()
    told = await context.messages.read_all()
    earlier = (one for one in told if one.type == "tool" and one.run_id != context.run_id)
    return frozenset(found for one in earlier for found in _MARK.findall(json.dumps(one.content)))


def answer_elicitation(params: ElicitRequestParams, call: RunningCall) -> ElicitResult:
    """Returns the answers of users, or cancels and notes the question on the call that it belongs to."""
    schema = params.requested_schema if isinstance(params, ElicitRequestFormParams) else None
    question = _question(params)
    # the thread's id is random and unknown outside, so that no page or server can write the mark of a question
    marked = json.dumps([call.thread_id, call.server, call.tool, question])
    digest = hashlib.sha256(marked.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if schema is not None and digest in call.asked and call.answers is not None:
        properties = cast(JsonObject, schema).get("properties")
        content: JsonObject = {}
        for name, one in (properties if isinstance(properties, dict) else {}).items():
            if name in call.answers:
                content[name] = call.answers[name]
            elif isinstance(one, dict) and "default" in one:
                content[name] = one["default"]
        problems = find_problems(cast(JsonObject, schema), content)
        if not problems:
            return ElicitResult.model_validate({"action": "accept", "content": content})
        question = f"{question}\n\nThe answers do not fit: {'; '.join(problems)}"
    call.questions[digest] = question
    return ElicitResult(action="cancel")


def add_questions(call: RunningCall, output: ToolOutput) -> ToolOutput:
    """Returns the output of a call with what its server asked: the question for users, what the server returned
    without an answer, and what the model should do next."""
    if call.may_have_asked:
        output = replace(output, output=f"{output.output}\n\n{_NOBODY_ASKED}")
    if not call.questions:
        return output
    said = "\n\n".join(call.questions.values())
    marks = " ".join(f"[question {digest}]" for digest in call.questions)
    text = (
        f"The server asked people a question and was told that they did not answer. {marks}\n{said}\n\n"
        f"Without an answer it returned:\n{output.output}\n\nThe question was posted in the thread. When people have "
        "answered, and unless the server has done the work without an answer, call the tool again with the same "
        f'arguments and "{ANSWERS}": an object with the fields that they named; the defaults fill the others. If they '
        "refuse, do not call it again."
    )
    asks = f"The tool {call.tool} of the MCP server {call.server} asks:\n\n{quote_lines(said)}"
    return replace(output, output=text, is_success=False, reply=Reply(kind="ask", text=asks))


def _question(params: ElicitRequestParams) -> str:
    lines = [clean_text(params.message, QUESTION_CHARACTERS_MAX)]
    if not isinstance(params, ElicitRequestFormParams):
        lines.append(f"It wants you to open {clean_line(params.url, 500)}")
        return "\n".join(lines)
    named = json_fields(params.requested_schema.get("properties"))
    for name, one in list(named.items())[:FIELDS_MAX]:
        schema = json_fields(one)
        facts = [
            f"{key} {clean_line(json.dumps(schema[key], ensure_ascii=False), 200)}"
            for key in ("type", "enum", "default", "description")
            if key in schema
        ]
        lines.append(f"- {clean_line(name, 80)}: {', '.join(facts)}")
    return "\n".join(lines)
