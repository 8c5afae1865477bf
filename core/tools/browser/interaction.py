"""Browser tools for input: clicks, text, keys, dropdowns, dragging, dialogs, uploads and downloads."""

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from core.context.untrusted_text import clean_line
from core.tools.browser.action import announce_element, run_browser_action
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import FilePathParams

TEXT_CHARACTERS_MAX = 100_000
DOWNLOAD_SECONDS = 700.0
TOOL_SECONDS = 800.0
Index = Annotated[
    int, Field(ge=0, description="The number in brackets before the element in the newest state.")
]
Coordinate = Annotated[
    int | None, Field(ge=0, le=10_000, description="Pixels in the newest picture.")
]


class ClickParams(BaseModel):
    """Click an element of the page by its number."""

    index: Index


async def run_click(params: ClickParams, context: ToolContext) -> ToolOutput:
    await announce_element(context, "Clicking", params.index)
    return await run_browser_action(context, "click_element", index=params.index)


class ClickCoordinatesParams(BaseModel):
    """Click a point of the page, for what has no number: maps, drawings, games. The picture is 1280 by 800 pixels."""

    x: int = Field(ge=0, le=10_000, description="Pixels from the left of the newest picture.")
    y: int = Field(ge=0, le=10_000, description="Pixels from the top of the newest picture.")


async def run_click_coordinates(params: ClickCoordinatesParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(context, "click_coordinates", x=params.x, y=params.y)


class InputTextParams(BaseModel):
    """Put text into a field, in place of what is in it. To send a form off afterwards use browser_send_keys with Enter
    or click its button. Dates are written 2026-01-31, times 13:05."""

    index: Index
    text: str = Field(
        max_length=TEXT_CHARACTERS_MAX, description="The whole text; empty clears the field."
    )


async def run_input_text(params: InputTextParams, context: ToolContext) -> ToolOutput:
    await announce_element(context, "Typing into", params.index)
    return await run_browser_action(context, "input_text", index=params.index, text=params.text)


class SendKeysParams(BaseModel):
    """Press keys, where the focus is: Enter, Escape, Tab, ArrowDown, Control+a; several with spaces between."""

    keys: str = Field(min_length=1, max_length=500, description="The keys.")


async def run_send_keys(params: SendKeysParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(context, "send_keys", keys=params.keys)


class DropdownParams(BaseModel):
    """List the options of a dropdown."""

    index: Index


async def run_options(params: DropdownParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(context, "get_dropdown_options", index=params.index)


class SelectParams(BaseModel):
    """Select an option of a dropdown by its text."""

    index: Index
    text: str = Field(
        max_length=1000, description="The option's text, as browser_get_dropdown_options lists it."
    )


async def run_select(params: SelectParams, context: ToolContext) -> ToolOutput:
    await announce_element(context, "Selecting in", params.index)
    return await run_browser_action(
        context, "select_dropdown_option", index=params.index, text=params.text
    )


class DragDropParams(BaseModel):
    """Drag something and drop it elsewhere. Name both ends by elements or by coordinates."""

    element_source: str | None = Field(
        default=None, max_length=500, description="What to drag: its number, or a CSS selector."
    )
    element_target: str | None = Field(
        default=None, max_length=500, description="Where to drop it: a number, or a CSS selector."
    )
    coord_source_x: Coordinate = None
    coord_source_y: Coordinate = None
    coord_target_x: Coordinate = None
    coord_target_y: Coordinate = None

    @model_validator(mode="after")
    def _has_ends(self) -> "DragDropParams":
        source = self.element_source or None not in (self.coord_source_x, self.coord_source_y)
        target = self.element_target or None not in (self.coord_target_x, self.coord_target_y)
        if not source or not target:
            raise ValueError("both ends are needed, each as an element or as x and y")
        return self


async def run_drag_drop(params: DragDropParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(context, "drag_drop", **params.model_dump())


class DialogParams(BaseModel):
    """Say how the confirm and prompt dialogs of the next browser action are answered. Without it they are dismissed,
    and the result tells what they asked. Call this, then repeat the action."""

    accept: bool = Field(description="True presses OK, false presses Cancel.")
    text: str = Field(default="", max_length=2000, description="What a prompt is to be given.")


async def run_dialog(params: DialogParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(
        context, "answer_dialog", accept=params.accept, text=params.text
    )


class UploadParams(FilePathParams):
    """Give a file of the workspace to the page: to a file field, or to a button that asks for a file."""

    index: Index


async def run_upload(params: UploadParams, context: ToolContext) -> ToolOutput:
    await announce_element(context, "Uploading to", params.index)
    return await run_browser_action(
        context, "upload_file", index=params.index, file_path=params.file_path
    )


class DownloadParams(BaseModel):
    """Download a file into /workspace/downloads: by clicking an element, or from an address, with the browser's own
    logins. The result names the file."""

    index: int | None = Field(
        default=None, ge=0, description="The number of the link or button that downloads."
    )
    url: str | None = Field(
        default=None, max_length=8192, description="The address, when there is nothing to click."
    )

    @model_validator(mode="after")
    def _has_one(self) -> "DownloadParams":
        if (self.index is None) == (self.url is None):
            raise ValueError("give index or url, one of them")
        return self


async def run_download(params: DownloadParams, context: ToolContext) -> ToolOutput:
    return await run_browser_action(
        context, "download", within_seconds=DOWNLOAD_SECONDS, index=params.index, url=params.url
    )


browser_click_element = Tool(
    name="browser_click_element",
    params=ClickParams,
    run=run_click,
    title=lambda params: f"Clicking [{params.index}]",
    example={"index": 12},
    requires=("sandbox", "browser"),
)
browser_click_coordinates = Tool(
    name="browser_click_coordinates",
    params=ClickCoordinatesParams,
    run=run_click_coordinates,
    title=lambda params: f"Clicking at ({params.x}, {params.y})",
    example={"x": 640, "y": 400},
    requires=("sandbox", "browser"),
)
browser_input_text = Tool(
    name="browser_input_text",
    params=InputTextParams,
    run=run_input_text,
    title=lambda params: f"Typing into [{params.index}]",
    example={"index": 3, "text": "weather in Oslo"},
    requires=("sandbox", "browser"),
)
browser_send_keys = Tool(
    name="browser_send_keys",
    params=SendKeysParams,
    run=run_send_keys,
    title=lambda params: f"Pressing {clean_line(params.keys, 40)}",
    example={"keys": "Enter"},
    requires=("sandbox", "browser"),
)
browser_get_dropdown_options = Tool(
    name="browser_get_dropdown_options",
    params=DropdownParams,
    run=run_options,
    title=lambda params: f"Looking at the options of [{params.index}]",
    example={"index": 5},
    is_idempotent=True,
    requires=("sandbox", "browser"),
)
browser_select_dropdown_option = Tool(
    name="browser_select_dropdown_option",
    params=SelectParams,
    run=run_select,
    title=lambda params: f"Selecting {clean_line(params.text, 60)}",
    example={"index": 5, "text": "Norway"},
    requires=("sandbox", "browser"),
)
browser_drag_drop = Tool(
    name="browser_drag_drop",
    params=DragDropParams,
    run=run_drag_drop,
    title=lambda params: "Dragging and dropping",
    example={"element_source": "4", "element_target": "9"},
    requires=("sandbox", "browser"),
)
browser_answer_dialog = Tool(
    name="browser_answer_dialog",
    params=DialogParams,
    run=run_dialog,
    title=lambda params: f"{'Accepting' if params.accept else 'Dismissing'} the next dialog",
    example={"accept": True, "text": ""},
    requires=("sandbox", "browser"),
)
browser_upload_file = Tool(
    name="browser_upload_file",
    params=UploadParams,
    run=run_upload,
    title=lambda params: f"Uploading {params.file_path}",
    example={"index": 7, "file_path": "report.pdf"},
    requires=("sandbox", "browser"),
)
browser_download = Tool(
    name="browser_download",
    params=DownloadParams,
    run=run_download,
    title=lambda params: "Downloading a file",
    example={"index": 8},
    timeout_seconds=TOOL_SECONDS,
    requires=("sandbox", "browser"),
)
