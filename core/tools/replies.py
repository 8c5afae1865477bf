"""The tools `ask`, `complete` and `web_browser_takeover`, which post a message to people and end the run."""

from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from core.dialects.arguments import parse_json
from core.domain.errors import AgentError, ToolError
from core.domain.threads import Reply
from core.ports import Files
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import workspace_path


def _as_tuple(value: object) -> object:
    """Converts a string to a list, and None to an empty tuple; other values are returned unchanged.

    The string is either a JSON list or a comma-separated list.
    """
    if value is None:
        return ()
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        with suppress(ValueError):
            return parse_json(value)
    return tuple(piece for piece in (part.strip() for part in value.split(",")) if piece)


StringList = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=4096)], ...],
    BeforeValidator(_as_tuple, json_schema_input_type=list[str] | str),
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
    """Ask the people in the thread a question and wait for the answer. Use it only for what you cannot find out or
    decide yourself. Attach every file that they should see. Nothing after it runs until somebody answers."""

    text: str = Field(
        min_length=1, description="The question, in Markdown, with what is needed to answer it."
    )
    attachments: StringList = Field(
        default=(),
        max_length=ATTACHMENTS_MAX,
        description="Files of the workspace or URLs to show: a list, or one string separated by commas.",
    )
    options: StringList = Field(
        default=(),
        max_length=25,
        description="Answers to choose from, shown as buttons. Other answers stay possible.",
    )


async def run_ask(params: AskParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    reply = Reply(
        kind="ask", text=params.text, attachments=params.attachments, options=params.options
    )
    return ToolOutput(
        output="The question was asked. The answer comes as the next message.", reply=reply
    )


class CompleteParams(BaseModel):
    """End the work when everything that was asked for is done. Attach every file that the people should get."""

    text: str = Field(
        default="",
        description="The final answer, in Markdown. Empty: what you wrote before counts.",
    )
    attachments: StringList = Field(
        default=(),
        max_length=ATTACHMENTS_MAX,
        description="Files of the workspace or URLs to hand over: a list, or one string separated by commas.",
    )


async def run_complete(params: CompleteParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    reply = Reply(kind="answer", text=params.text, attachments=params.attachments)
    return ToolOutput(output="The work is marked as complete.", reply=reply)


class TakeoverParams(BaseModel):
    """Ask a person to do something in the browser that you cannot do: solve a CAPTCHA, log in, confirm a payment.
    The run waits until they hand it back."""

    text: str = Field(min_length=1, description="What the person should do, step by step.")
    attachments: StringList = Field(
        default=(), max_length=ATTACHMENTS_MAX, description="Files or URLs that help."
    )


async def run_takeover(params: TakeoverParams, context: ToolContext) -> ToolOutput:
    await check_attachments(params.attachments, context)
    link = context.links.takeover_url()
    offer = f"\n\n[Open the browser]({link}) (for one person, within half an hour)" if link else ""
    reply = Reply(kind="takeover", text=params.text + offer, attachments=params.attachments)
    return ToolOutput(
        output="A person was asked to take over. What they say comes next.", reply=reply
    )


ask = Tool(
    name="ask",
    params=AskParams,
    run=run_ask,
    title=lambda params: "Asking a question",
    example={"text": "Which quarter should the report cover?", "options": ["Q1", "Q2"]},
    content_parameter="text",
    is_idempotent=True,
)
complete = Tool(
    name="complete",
    params=CompleteParams,
    run=run_complete,
    title=lambda params: "Finishing",
    example={"text": "The report is done.", "attachments": "report.md"},
    content_parameter="text",
    is_idempotent=True,
)
web_browser_takeover = Tool(
    name="web_browser_takeover",
    params=TakeoverParams,
    run=run_takeover,
    title=lambda params: "Asking a person to take over the browser",
    example={"text": "Please log in on the open page, then answer here."},
    content_parameter="text",
    is_idempotent=True,
)
