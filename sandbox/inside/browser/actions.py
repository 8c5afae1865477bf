"""The browser actions of the agent. Each function returns a sentence about what was done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser import page_operations, transfers
from sandbox.inside.browser.action_arguments import (
    ActionContext,
    describe_navigation_error,
    drag_point,
    is_outside_workspace,
    playwright_key,
    resolve_address,
    screenshot_path,
    upload_path,
)
from sandbox.inside.browser.page_operations import drag
from sandbox.inside.browser.page_state import single_line
from sandbox.inside.browser.protocol import HEIGHT, WIDTH, ActionRefused

NAVIGATION_MS = 30_000
CLICK_MS = 4000
CALL_SECONDS = 3.0
KEPT = """(element, text) => element.value === text
  || !/^(date|time|month|week|datetime-local|color)$/.test(element.type || '')"""
KIND = "element => [element.tagName, element.type || '', element.disabled === true].join(' ')"


async def navigate_to(context: ActionContext) -> str:
    root = context.chromium.settings.root
    url = resolve_address(context.text("url"), root)
    if context.tab.is_silent:  # a page that does not respond would block its tab
        stuck, context.tab = context.tab, await context.chromium.new_tab()
        with contextlib.suppress(TimeoutError):  # then the tab stays open
            await stuck.close()
    try:
        answer = await context.tab.page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATION_MS)
    except PlaywrightTimeout:
        raise ActionRefused(
            f"{url} did not answer within {NAVIGATION_MS // 1000} s. Try again, or another page."
        ) from None
    except Error as error:
        if "Download is starting" in error.message:
            await context.chromium.wait_for_downloads()
            return f"{url} is a file, not a page; it is being downloaded."
        raise ActionRefused(describe_navigation_error(url, error)) from error
    if is_outside_workspace(context.tab.page.url, root):
        await context.tab.page.goto("about:blank")
        raise ActionRefused("Only files under /workspace can be opened.")
    status = f" (HTTP {answer.status})" if answer and answer.status >= 400 else ""
    return f"Opened {context.tab.page.url}{status}."


async def go_back(context: ActionContext) -> str:
    before = context.tab.page.url
    await context.tab.page.go_back(wait_until="domcontentloaded", timeout=NAVIGATION_MS)
    if context.tab.page.url == before:
        raise ActionRefused("There is no earlier page in this tab.")
    return f"Went back to {context.tab.page.url}."


async def wait(context: ActionContext) -> str:
    seconds = context.number("seconds")
    await asyncio.sleep(seconds)
    return f"Waited for {seconds} s."


async def click_element(context: ActionContext) -> str:
    element = await context.element()
    tag, kind, disabled = str(await element.evaluate(KIND)).split(" ")
    number = context.number("index")
    if tag == "SELECT":
        options = await page_operations.list_options(element, number)
        raise ActionRefused(f"[{number}] is a dropdown: use browser_select_dropdown_option. {options}")
    if tag == "INPUT" and kind == "file":
        raise ActionRefused(f"[{number}] takes a file: use browser_upload_file.")
    if disabled == "true":
        raise ActionRefused(f"[{number}] is disabled; something else on the page has to be done first.")
    context.tab.file_chooser = None
    how = ""
    try:
        # a field that its label covers may have no position of its own
        await element.click(timeout=CLICK_MS if await element.is_visible() else 1)
    except PlaywrightTimeout:
        # something moves or covers it; a click by script still works
        await asyncio.wait_for(element.evaluate("element => element.click()"), CALL_SECONDS)
        how = " (by script: the pointer could not reach it)"
    if context.tab.file_chooser is not None:
        how += " The page asks for a file: use browser_upload_file with this index."
    return f"Clicked [{number}]{how}."


async def click_coordinates(context: ActionContext) -> str:
    x, y = context.number("x"), context.number("y")
    if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
        raise ActionRefused(f"({x}, {y}) is outside the picture of {WIDTH} x {HEIGHT} pixels; scroll first.")
    await context.tab.page.mouse.click(x, y)
    return f"Clicked at ({x}, {y})."


async def input_text(context: ActionContext) -> str:
    element = await context.element()
    text, number = context.text("text"), context.number("index")
    if str(await element.evaluate(KIND)).startswith("SELECT "):
        return await page_operations.select_option(element, number, text)
    try:
        await element.fill(text, timeout=CLICK_MS)
    except PlaywrightTimeout:
        raise ActionRefused(f"[{number}] accepts no text now: it is hidden, disabled or read-only.") from None
    except Error as error:
        if "Cannot type text" in error.message:
            raise ActionRefused(f"[{number}] accepts only numbers.") from error
        if "cannot be filled" in error.message:
            raise ActionRefused(f"[{number}] accepts no text: click it, or upload a file to it.") from error
        await element.click(timeout=CLICK_MS)
        await context.tab.page.keyboard.type(text)
    if not await element.evaluate(KEPT, text):
        raise ActionRefused(
            f"[{number}] expects another format: dates as 2026-01-31, times as 13:05, colours as #aabbcc."
        )
    return f"Typed into [{number}]."


async def send_keys(context: ActionContext) -> str:
    keys = context.text("keys")
    keyboard = context.tab.page.keyboard
    try:
        for key in keys.split(" ") if keys.strip() else [keys]:
            if key:
                await keyboard.press(playwright_key(key))
    except Error as error:
        if "Unknown key" not in error.message:
            raise
        raise ActionRefused(
            f"{keys!r} contains an unknown key. Examples: Enter, Escape, Tab, ArrowDown, Control+a; several with"
            " spaces between. For text use browser_input_text."
        ) from error
    return f"Pressed {keys}."


async def switch_tab(context: ActionContext) -> str:
    tab = context.chromium.tab_by_id(context.number("page_id"))
    await tab.page.bring_to_front()
    context.chromium.select_tab(tab)
    return f"Tab {tab.number} is in front."


async def close_tab(context: ActionContext) -> str:
    tab = context.chromium.tab_by_id(context.number("page_id"))
    await tab.close()
    return f"Closed tab {tab.number}."


async def scroll_down(context: ActionContext, direction: int = 1) -> str:
    amount = HEIGHT - 80 if context.arguments.get("amount") is None else context.number("amount")
    return await page_operations.scroll(context.tab, direction * amount)


async def scroll_up(context: ActionContext) -> str:
    return await scroll_down(context, -1)


async def scroll_to_text(context: ActionContext) -> str:
    return await page_operations.scroll_to_text(context.tab, context.text("text"))


async def get_dropdown_options(context: ActionContext) -> str:
    return await page_operations.list_options(await context.element(), context.number("index"))


async def select_dropdown_option(context: ActionContext) -> str:
    return await page_operations.select_option(await context.element(), context.number("index"), context.text("text"))


async def drag_drop(context: ActionContext) -> str:
    source = await drag_point(context, "source")
    target = await drag_point(context, "target")
    await drag(context.tab.page, source, target)
    return f"Dragged {source.name} onto {target.name}."


async def read_page(context: ActionContext) -> str:
    return await page_operations.read_text(context.tab)


async def screenshot(context: ActionContext) -> str:
    try:
        path = screenshot_path(context)
        is_whole = context.arguments.get("full_page") is True
        return await transfers.screenshot(context.tab, path, context.text("file_path"), is_whole=is_whole)
    except OSError as error:
        raise ActionRefused(f"The picture cannot be saved there: {error.strerror}.") from error


async def upload_file(context: ActionContext) -> str:
    return await transfers.upload(context.tab, await context.element(), context.number("index"), upload_path(context))


async def download(context: ActionContext) -> str:
    if context.arguments.get("index") is not None:
        return await transfers.download_by_click(context.chromium, context.tab, await context.element())
    url = resolve_address(context.text("url"), context.chromium.settings.root)
    if urlsplit(url).scheme == "file":
        raise ActionRefused("This file is in the workspace already.")
    return await transfers.download_address(context.chromium, context.tab, url)


async def answer_dialog(context: ActionContext) -> str:
    accepts = context.arguments.get("accept") is True
    context.chromium.accepts_dialogs = accepts, context.text("text")
    return (
        f"The dialogs of the next action will be {'accepted' if accepts else 'dismissed'}. Now repeat the action that"
        " opens them."
    )


async def look(context: ActionContext) -> str:
    """Does nothing, because every result already contains the state of the page."""
    return f"The page is {single_line(context.tab.page.url, 300)}."


Action = Callable[[ActionContext], Awaitable[str]]
ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (
        navigate_to, go_back, wait, click_element, click_coordinates, input_text, send_keys, switch_tab, close_tab,
        scroll_down, scroll_up, scroll_to_text, get_dropdown_options, select_dropdown_option, drag_drop, read_page,
        screenshot, upload_file, download, answer_dialog, look,
    )
}  # fmt: skip
GIVES_TO_PAGE = frozenset(
    action.__name__
    for action in (
        click_element, click_coordinates, input_text, send_keys, select_dropdown_option, drag_drop, upload_file,
        answer_dialog,
    )
)  # fmt: skip
"""The actions that give data to the open page. They were meant for the page that was shown, and must not reach another
page."""


def origin_of(url: str) -> str:
    """Returns scheme and host of an address, with the port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
