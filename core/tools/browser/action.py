"""Performs browser actions and turns the resulting page state into tool output."""

import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from core.context.untrusted_text import clean_line
from core.domain.call_consent import OPEN_PAGE, Reach
from core.domain.call_targets import is_local
from core.domain.errors import RunError, ToolError
from core.domain.events import ActivityChanged
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.sources import sources_read_now
from core.ports import BrowserResult, PageState
from core.tools.tool import Effect, ParamsT, Tool, ToolContext, ToolOutput

ACTION_SECONDS = 75.0
NAME_SECONDS = 3.0
TITLE_CHARACTERS_MAX = 200
URL_CHARACTERS_MAX = 1000
FILLS_PAGE = Reach("writes_outside", (OPEN_PAGE,))
"""The reach of an action that enters something into the open page."""
ACTS_ON_PAGE = replace(FILLS_PAGE, moves_page=True)
"""The reach of an action that can also open another page, as any click can."""
MOVES_PAGE = Reach("none", moves_page=True)


def browser_tool(
    action: str,
    params: type[ParamsT],
    title: str | Callable[[ParamsT], str],
    example: JsonObject,
    *,
    reach: Reach | Callable[[ParamsT], Reach],
    run: Callable[[ParamsT, ToolContext], Awaitable[ToolOutput]] | None = None,
    description: str = "",
    effect: Effect = "acts",
    subject: str = "browser",
    is_idempotent: bool = False,
    content_parameter: str | None = None,
    announcement: str = "",
    within_seconds: Callable[[ParamsT], float] = lambda _params: ACTION_SECONDS,
    timeout_seconds: float = 900,
) -> Tool[ParamsT]:
    """Builds the tool that performs a browser action with its parameters and returns the resulting state of the page.

    If `title` is a text, it may contain names of parameters in braces. `announcement` is shown in the status message
    before the action, followed by the name of the element."""

    async def perform(params: ParamsT, context: ToolContext) -> ToolOutput:
        arguments = params.model_dump()
        if announcement:
            await announce_element(context, announcement, arguments["index"])
        seconds = within_seconds(params)
        seen, state = await perform_action(context, action, within_seconds=seconds, **arguments)
        return page_output(seen, state, context)

    def fill_in(params: ParamsT) -> str:
        values = {name: clean_line(str(value), 60) for name, value in params.model_dump().items()}
        return title.format(**values) if isinstance(title, str) else title(params)

    return Tool(
        name=f"browser_{action}",
        effect=effect,
        reach=reach,
        params=params,
        run=run or perform,
        subject=subject,
        title=fill_in,
        example=example,
        content_parameter=content_parameter,
        is_idempotent=is_idempotent,
        timeout_seconds=timeout_seconds,
        requires=("sandbox", "browser"),
        description=description,
    )


def reach_of_address(url: str) -> Reach:
    """Returns the reach of a call that opens an address in the browser."""
    return Reach("none" if is_local(url) else "reads_outside", (url,), moves_page=True)


async def perform_action(
    context: ToolContext, action: str, *, within_seconds: float = ACTION_SECONDS, **arguments: object
) -> tuple[BrowserResult, PageState]:
    """Performs a browser action. Returns its result and the state of the page. Raises ToolError without a page."""
    browser = (await context.sandbox()).browser
    told = {name: value for name, value in arguments.items() if isinstance(value, str | int | bool)}
    seen = await browser.act(action, {**told}, timeout_seconds=within_seconds)
    if seen.state is None:
        raise ToolError(seen.error or "The browser did not do this.")
    return seen, seen.state


def page_output(
    seen: BrowserResult, state: PageState, context: ToolContext, *, message: str | None = None
) -> ToolOutput:
    """Returns the tool output for a browser result.

    The page state, with its screenshot, is attached as a separate message.
    """
    output: JsonObject = {
        "message": seen.said if message is None else message,
        "url": clean_line(state.url, URL_CHARACTERS_MAX),
        "title": clean_line(state.title, TITLE_CHARACTERS_MAX),
        "element_count": state.element_count,
        "pixels_above": state.pixels_above,
        "pixels_below": state.pixels_below,
    }
    if seen.error is not None:
        output["message"] = seen.error
    if len(state.tabs) > 1:
        output["tabs"] = list(state.tabs)
    if seen.happened:
        output["happened"] = [clean_line(sentence, 500) for sentence in seen.happened]
    content: JsonObject = {
        "url": clean_line(state.url, URL_CHARACTERS_MAX),
        "title": clean_line(state.title, TITLE_CHARACTERS_MAX),
        "tabs": list(state.tabs),
        "scroll": {"pixels_above": state.pixels_above, "pixels_below": state.pixels_below},
        "elements": [clean_line(one, 1000) for one in state.elements],
    }
    if state.picture:
        content["screenshot"] = base64.b64encode(state.picture).decode("ascii")
    shown = Message(
        type="browser_state", content=content, is_llm_message=False, thread_id=context.thread_id, run_id=context.run_id
    )
    done = ToolOutput(output=output, messages=(shown,), sources=sources_read_now(("browser", state.url)))
    return done if seen.error is None else replace(done, is_success=False, error=seen.error)


async def announce_element(context: ToolContext, doing: str, index: int) -> None:
    """Shows in the status message which element of the page the browser is about to use."""
    with suppress(ToolError, RunError):
        browser = (await context.sandbox()).browser
        seen = await browser.act("name", {"index": index}, timeout_seconds=NAME_SECONDS)
        if name := clean_line(seen.said, 80):
            context.emit(ActivityChanged(text=f"{doing} [{index}] {name}"))
