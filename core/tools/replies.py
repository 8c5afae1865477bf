"""The tools that end the run: `ask`, `complete` and `web_browser_takeover` post a message, `no_reply` posts none."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from core.dialects.arguments import parse_json
from core.domain.errors import AgentError, ToolError
from core.domain.threads import Reply, unique_texts
from core.ports import Files
from core.tools.tool import Tool, ToolContext, ToolOutput, ToolSet
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


async def check_attachments(attachments: tuple[str, ...], context: ToolContext) -> None:
    """Raises ToolError if a path is not a file, because people would otherwise get the message without its
    attachment.

    If no sandbox is available, nothing is checked here, and the delivery later reports missing files in the
    thread.
    """
    paths = [one for one in attachments if not one.startswith(("http://", "https://"))]
    if not paths:
        return
    try:
        files = (await context.sandbox()).files
        problems = [problem for path in paths if (problem := await _problem(files, path))]
    except AgentError:
        return
    if problems:
        raise ToolError(
            f"Nothing was sent: {'; '.join(problems)}. list_files shows what there is. Make the files first or leave"
            " them out, then call it again."
        )


async def _problem(files: Files, path: str) -> str:
    try:
        entries = await files.list(workspace_path(path))
    except ToolError as error:
        said = str(error).rstrip(".")
        return said if said.startswith(path) else f"{path}: {said}"
    is_file = len(entries) == 1 and entries[0].path == workspace_path(path)
    return "" if is_file and entries[0].kind == "file" else f"{path} is not a file"


class AskParams(BaseModel):
    """Ask people a question and wait for the answer. Nothing after it runs. Only for what you can neither find out nor
    decide."""

    text: str = Field(min_length=1, description="The question in Markdown, with what people need to answer it.")
    attachments: StringList = Field(default=(), max_length=ATTACHMENTS_MAX, description="Files or URLs to show.")
    options: StringList = Field(default=(), max_length=500, description="Answers to offer, as buttons or in menus.")


async def run_ask(params: AskParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    reply = Reply(kind="ask", text=params.text, attachments=params.attachments, options=params.options)
    return ToolOutput(output="The question was asked. The answer comes as the next message.", reply=reply)


class CompleteParams(BaseModel):
    """End the work when everything that was asked for is done."""

    text: str = Field(default="", description="The answer in Markdown; empty if you have just written it.")
    attachments: StringList = Field(
        default=(), max_length=ATTACHMENTS_MAX, description="Every file or URL that people should get."
    )


async def run_complete(params: CompleteParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    reply = Reply(kind="answer", text=params.text, attachments=params.attachments)
    return ToolOutput(output="The work is marked as complete.", reply=reply)


class TakeoverParams(BaseModel):
    """Ask a person to do something in the browser that you cannot do, such as a CAPTCHA, a login or a payment, and
    wait."""

    text: str = Field(min_length=1, description="What to do, step by step.")
    attachments: StringList = Field(default=(), max_length=ATTACHMENTS_MAX)


async def run_takeover(params: TakeoverParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    link = context.links.takeover_url()
    offer = f"\n\n[Open the browser]({link}) (for one person, within half an hour)" if link else ""
    reply = Reply(kind="takeover", text=params.text + offer, attachments=params.attachments)
    return ToolOutput(output="A person was asked to take over. What they say comes next.", reply=reply)


class NoReplyParams(BaseModel):
    """Say nothing, because the newest message was people talking to each other and not meant for you. Only for messages
    that do not mention you. The people see no trace of it."""


async def run_no_reply(params: NoReplyParams, context: ToolContext) -> ToolOutput:
    del params, context
    return ToolOutput(output="Nothing is posted.", reply=Reply(kind="silence", text=""))


async def _refuse_silence(params: NoReplyParams, context: ToolContext) -> ToolOutput:
    del params, context
    raise ToolError("They addressed you by name: answer them.")


def must_reply(toolbox: ToolSet) -> ToolSet:
    """Returns the tools for a request that addressed the agent. `no_reply` is refused, but described as ever, because
    requests to the model must begin the same in all runs of a thread."""
    if no_reply.name not in toolbox.tools:
        return toolbox
    return ToolSet({**toolbox.tools, no_reply.name: replace(no_reply, run=_refuse_silence)})


no_reply = Tool(
    name="no_reply",
    effect="acts",
    params=NoReplyParams,
    run=run_no_reply,
    title=lambda params: "Staying silent",
    example={},
    is_idempotent=True,
)
ask = Tool(
    name="ask",
    effect="acts",
    params=AskParams,
    run=run_ask,
    title=lambda params: "Asking a question",
    example={"text": "Which quarter should the report cover?", "options": ["Q1", "Q2"]},
    content_parameter="text",
    is_idempotent=True,
)
complete = Tool(
    name="complete",
    effect="acts",
    params=CompleteParams,
    run=run_complete,
    title=lambda params: "Finishing",
    example={"text": "The report is done.", "attachments": "report.md"},
    content_parameter="text",
    is_idempotent=True,
)
web_browser_takeover = Tool(
    name="web_browser_takeover",
    effect="acts",
    params=TakeoverParams,
    run=run_takeover,
    title=lambda params: "Asking a person to take over the browser",
    example={"text": "Please log in on the open page, then answer here."},
    content_parameter="text",
    is_idempotent=True,
    requires=("browser",),
)
