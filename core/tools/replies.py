"""The tools that end the run: `ask`, `complete` and `web_browser_takeover` post a message, `no_reply` posts none."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from core.dialects.arguments import parse_json
from core.domain.call_consent import STAYS
from core.domain.errors import RunError, ToolError
from core.domain.json import JsonObject
from core.domain.threads import Reply, ReplyKind, unique_texts
from core.tools.pictures import is_web_url
from core.tools.tool import ParamsT, Requirement, Tool, ToolContext, ToolOutput
from core.tools.workspace.charts import render_svg_files
from core.tools.workspace.paths import workspace_path


def _as_tuple(value: object) -> object:
    """Converts None, numbers, and a string with a JSON list or commas to texts. Drops blank and repeated texts."""
    if isinstance(value, str):
        parsed: object = value.split(",")
        if value.lstrip().startswith("["):
            with suppress(ValueError):
                parsed = parse_json(value)
        value = parsed
    if not isinstance(value, list | tuple | None):
        return value
    texts = [str(one) if type(one) in (int, float) else one for one in cast(Sequence[object], value or ())]
    words = [one for one in texts if isinstance(one, str)]
    return unique_texts(words) if len(words) == len(texts) else texts


StringList = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=4096)], ...],
    BeforeValidator(_as_tuple, json_schema_input_type=list[str]),
]
ATTACHMENTS_MAX = 20


async def check_attachments(attachments: tuple[str, ...], context: ToolContext) -> tuple[str, ...]:
    """Returns the attachments, and a picture of each chart that chats do not show. Raises ToolError if a path is not a
    file, because people would otherwise get the message without its attachment.

    If no sandbox is available, nothing is checked here, and the delivery later reports missing files in the
    thread.
    """
    paths = [one for one in attachments if not is_web_url(one)]
    if not paths:
        return attachments
    try:
        sandbox = await context.sandbox()
        problems = list[str]()
        for path in paths:
            try:
                entries = await sandbox.files.list(workspace_path(path))
            except ToolError as error:
                why = str(error).rstrip(".")
                problems.append(why if why.startswith(path) else f"{path}: {why}")
                continue
            if [(entry.path, entry.kind) for entry in entries] != [(workspace_path(path), "file")]:
                problems.append(f"{path} is not a file")
        drawn = await render_svg_files(sandbox, paths) if not problems else ()
    except RunError:
        return attachments
    if problems:
        raise ToolError(
            f"Nothing was sent: {'; '.join(problems)}. list_files shows what there is. Make the files first or leave"
            " them out, then call it again."
        )
    return (*attachments, *drawn)


def _reply_tool(
    name: str,
    kind: ReplyKind,
    params: type[ParamsT],
    *,
    title: str,
    output: str,
    example: JsonObject,
    requires: tuple[Requirement, ...] = ("thread",),
) -> Tool[ParamsT]:
    """Builds the tool that ends the run with its parameters as the reply."""

    async def run(given: ParamsT, context: ToolContext) -> ToolOutput:
        if kind == "silence" and context.must_answer():
            raise ToolError("They addressed you by name: answer them.")
        fields: dict[str, Any] = {"text": "", **given.model_dump()}
        reply = Reply(kind=kind, **fields)
        reply = replace(reply, attachments=await check_attachments(reply.attachments, context))
        if kind == "takeover" and (link := context.links.takeover_url()):
            offer = f"\n\n[Open the browser]({link}) (for one person, within half an hour)"
            reply = replace(reply, text=reply.text + offer)
        return ToolOutput(output=output, reply=reply)

    return Tool(
        name=name,
        effect="acts",
        reach=STAYS,
        params=params,
        run=run,
        title=lambda _params: title,
        example=example,
        content_parameter="text" if "text" in params.model_fields else None,
        is_idempotent=True,
        requires=requires,
    )


class AskParams(BaseModel):
    """Ask people a question and wait for the answer. Nothing after it runs. Only for what you can neither find out nor
    decide."""

    text: str = Field(min_length=1, description="The question in Markdown, with what people need to answer it.")
    attachments: StringList = Field(default=(), max_length=ATTACHMENTS_MAX, description="Files or URLs to show.")
    options: StringList = Field(default=(), max_length=500, description="Answers to offer, as buttons or in menus.")


class CompleteParams(BaseModel):
    """End the work when everything that was asked for is done."""

    text: str = Field(default="", description="The answer in Markdown; empty if you have just written it.")
    attachments: StringList = Field(
        default=(), max_length=ATTACHMENTS_MAX, description="Every file or URL that people should get."
    )


class TakeoverParams(BaseModel):
    """Ask a person to do something in the browser that you cannot do, such as a CAPTCHA, a login or a payment, and
    wait."""

    text: str = Field(min_length=1, description="What to do, step by step.")
    attachments: StringList = Field(default=(), max_length=ATTACHMENTS_MAX)


class NoReplyParams(BaseModel):
    """Say nothing, because the newest message was people talking to each other and not meant for you. Only for messages
    that do not mention you. The people see no trace of it."""


no_reply = _reply_tool(
    "no_reply", "silence", NoReplyParams, title="Staying silent", output="Nothing is posted.", example={}
)
ask = _reply_tool(
    "ask",
    "ask",
    AskParams,
    title="Asking a question",
    output="The question was asked. The answer comes as the next message.",
    example={"text": "Which quarter should the report cover?", "options": ["Q1", "Q2"]},
)
complete = _reply_tool(
    "complete",
    "answer",
    CompleteParams,
    title="Finishing",
    output="The work is marked as complete.",
    example={"text": "The report is done.", "attachments": "report.md"},
)
web_browser_takeover = _reply_tool(
    "web_browser_takeover",
    "takeover",
    TakeoverParams,
    title="Asking a person to take over the browser",
    output="A person was asked to take over. What they say comes next.",
    example={"text": "Please log in on the open page, then answer here."},
    requires=("thread", "browser"),
)
