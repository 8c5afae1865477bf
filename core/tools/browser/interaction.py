"""Browser tools for input: clicks, text, keys, dropdowns, dragging, dialogs, uploads and downloads."""

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from core.domain.call_consent import STAYS
from core.tools.browser.action import ACTS_ON_PAGE, FILLS_PAGE, browser_tool, reach_of_address
from core.tools.workspace.paths import FilePathParams

TEXT_CHARACTERS_MAX = 100_000
DOWNLOAD_SECONDS = 700.0
TOOL_SECONDS = 800.0
Index = Annotated[int, Field(ge=0, description="The element's number.")]
Coordinate = Annotated[int | None, Field(ge=0, le=10_000)]


class ElementParams(BaseModel):
    index: Index


class ClickCoordinatesParams(BaseModel):
    """Click a point of the newest picture (1280 by 800 pixels), for what has no number."""

    x: int = Field(ge=0, le=10_000)
    y: int = Field(ge=0, le=10_000)


class InputTextParams(BaseModel):
    """Replace the text of a field; empty text clears it. Write dates as 2026-01-31 and times as 13:05."""

    index: Index
    text: str = Field(max_length=TEXT_CHARACTERS_MAX)


class SendKeysParams(BaseModel):
    """Press keys, separated by spaces: Enter, Escape, Tab, ArrowDown, Control+a."""

    keys: str = Field(min_length=1, max_length=500)


class SelectParams(BaseModel):
    """Select an option of a dropdown by its text."""

    index: Index
    text: str = Field(max_length=1000)


class DragDropParams(BaseModel):
    """Drag from one place of the page to another. Each is an element's number or CSS selector, or a point in pixels."""

    element_source: str | None = Field(default=None, max_length=500)
    element_target: str | None = Field(default=None, max_length=500)
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


class NextDialogParams(BaseModel):
    """Set the answer to dialogs of the next browser action, which are dismissed otherwise. Then repeat the action."""

    accept: bool = Field(description="True for OK, false for Cancel.")
    text: str = Field(default="", max_length=2000, description="The text for a prompt.")


class UploadParams(FilePathParams):
    """Upload a file through a file field or a button that asks for one."""

    index: Index


class DownloadParams(BaseModel):
    """Download a file to /workspace/downloads with the browser's logins, by clicking an element or from an address.
    Returns its path."""

    index: int | None = Field(default=None, ge=0, description="The element's number.")
    url: str | None = Field(default=None, max_length=8192)

    @model_validator(mode="after")
    def _has_one(self) -> "DownloadParams":
        if (self.index is None) == (self.url is None):
            raise ValueError("give index or url, one of them")
        return self


browser_click_element = browser_tool(
    "click_element",
    ElementParams,
    "Clicking [{index}]",
    {"index": 12},
    description="Click an element of the page by its number.",
    announcement="Clicking",
    reach=ACTS_ON_PAGE,
)
browser_click_coordinates = browser_tool(
    "click_coordinates", ClickCoordinatesParams, "Clicking at ({x}, {y})", {"x": 640, "y": 400}, reach=ACTS_ON_PAGE
)
browser_input_text = browser_tool(
    "input_text",
    InputTextParams,
    "Typing into [{index}]",
    {"index": 3, "text": "weather in Oslo"},
    announcement="Typing into",
    reach=FILLS_PAGE,
)
browser_send_keys = browser_tool("send_keys", SendKeysParams, "Pressing {keys}", {"keys": "Enter"}, reach=ACTS_ON_PAGE)
browser_get_dropdown_options = browser_tool(
    "get_dropdown_options",
    ElementParams,
    "Looking at the options of [{index}]",
    {"index": 5},
    description="List the options of a dropdown.",
    effect="reads",
    is_idempotent=True,
    reach=STAYS,
)
browser_select_dropdown_option = browser_tool(
    "select_dropdown_option",
    SelectParams,
    "Selecting {text}",
    {"index": 5, "text": "Norway"},
    announcement="Selecting in",
    reach=FILLS_PAGE,
)
browser_drag_drop = browser_tool(
    "drag_drop",
    DragDropParams,
    "Dragging and dropping",
    {"element_source": "4", "element_target": "9"},
    reach=ACTS_ON_PAGE,
)
browser_answer_dialog = browser_tool(
    "answer_dialog",
    NextDialogParams,
    lambda params: f"{'Accepting' if params.accept else 'Dismissing'} the next dialog",
    {"accept": True, "text": ""},
    reach=STAYS,
)
browser_upload_file = browser_tool(
    "upload_file",
    UploadParams,
    "Uploading {file_path}",
    {"index": 7, "file_path": "report.pdf"},
    subject="",
    announcement="Uploading to",
    reach=FILLS_PAGE,
)
browser_download = browser_tool(
    "download",
    DownloadParams,
    "Downloading a file",
    {"index": 8},
    subject="",
    within_seconds=lambda _params: DOWNLOAD_SECONDS,
    timeout_seconds=TOOL_SECONDS,
    reach=lambda params: ACTS_ON_PAGE if params.url is None else reach_of_address(params.url),
)
