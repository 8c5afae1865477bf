"""What the agent can do in the browser: one function an action, each answering a sentence about what was done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox.inside.browser import page, transfers
from sandbox.inside.browser.arguments import (
    ActionContext,
    describe_navigation_error,
    drag_point,
    is_outside_workspace,
    playwright_key,
    resolve_address,
    screenshot_path,
    upload_path,
)
from sandbox.inside.browser.page import drag
from sandbox.inside.browser.page_state import single_line
from sandbox.inside.browser.protocol import HEIGHT, WIDTH, ActionRefused

NAVIGATION_MS = 30_000
CLICK_MS = 4000
CALL_SECONDS = 3.0
KEPT = """(element, text) => element.value === text
  || !/^(date|time|month|week|datetime-local|color)$/.test(element.type || '')"""
KIND = "element => [element.tagName, element.type || '', element.disabled === true].join(' ')"


async def navigate_to(act: ActionContext) -> str:
    root = act.chromium.setting.root
    url = resolve_address(act.text("url"), root)
    if act.tab.is_silent:  # a page that hangs would not let go of its tab
        stuck, act.tab = act.tab, await act.chromium.new_tab()
        with contextlib.suppress(TimeoutError):  # then it stays behind
            await stuck.close()
    try:
        answer = await act.tab.page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATION_MS)
    except PlaywrightTimeout:
        raise ActionRefused(
            f"{url} did not answer within {NAVIGATION_MS // 1000} s. Try again, or another page."
        ) from None
    except Error as error:
        if "Download is starting" in error.message:
            await act.chromium.downloaded()
            return f"{url} is a file, not a page; it is being downloaded."
        raise ActionRefused(describe_navigation_error(url, error)) from error
    if is_outside_workspace(act.tab.page.url, root):
        await act.tab.page.goto("about:blank")
        raise ActionRefused("Of the machine's files only those under /workspace can be opened.")
    status = f" (HTTP {answer.status})" if answer and answer.status >= 400 else ""
    return f"Opened {act.tab.page.url}{status}."


async def go_back(act: ActionContext) -> str:
    before = act.tab.page.url
    await act.tab.page.go_back(wait_until="domcontentloaded", timeout=NAVIGATION_MS)
    if act.tab.page.url == before:
        raise ActionRefused("There is no earlier page in this tab.")
    return f"Went back to {act.tab.page.url}."


async def wait(act: ActionContext) -> str:
    seconds = act.number("seconds")
    await asyncio.sleep(seconds)
    return f"Waited for {seconds} s."


async def click_element(act: ActionContext) -> str:
    element = await act.element()
    tag, kind, disabled = str(await element.evaluate(KIND)).split(" ")
    number = act.number("index")
    if tag == "SELECT":
        raise ActionRefused(
            f"[{number}] is a dropdown: use browser_get_dropdown_options and browser_select_dropdown_option."
        )
    if tag == "INPUT" and kind == "file":
        raise ActionRefused(f"[{number}] takes a file: use browser_upload_file.")
    if disabled == "true":
        raise ActionRefused(
            f"[{number}] is disabled; something else on the page has to be done first."
        )
    act.tab.chooser = None
    how = ""
    try:
        await element.click(timeout=CLICK_MS)
    except PlaywrightTimeout:
        # something moves or lies over it; the element itself takes a click all the same
        await asyncio.wait_for(element.evaluate("element => element.click()"), CALL_SECONDS)
        how = " (by a call: the pointer could not reach it)"
    if act.tab.chooser is not None:
        how += " The page asks for a file: use browser_upload_file with this index."
    return f"Clicked [{number}]{how}."


async def click_coordinates(act: ActionContext) -> str:
    x, y = act.number("x"), act.number("y")
    if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
        raise ActionRefused(
            f"({x}, {y}) is outside of the picture of {WIDTH} x {HEIGHT} pixels; scroll first."
        )
    await act.tab.page.mouse.click(x, y)
    return f"Clicked at ({x}, {y})."


async def input_text(act: ActionContext) -> str:
    element = await act.element()
    text, number = act.text("text"), act.number("index")
    try:
        await element.fill(text, timeout=CLICK_MS)
    except PlaywrightTimeout:
        raise ActionRefused(
            f"[{number}] takes no text now: it is hidden, disabled or read-only."
        ) from None
    except Error as error:
        if "Cannot type text" in error.message:
            raise ActionRefused(f"[{number}] takes a number.") from error
        await element.click(timeout=CLICK_MS)
        await act.tab.page.keyboard.type(text)
    if not await element.evaluate(KEPT, text):
        raise ActionRefused(
            f"[{number}] wants another form: dates as 2026-01-31, times as 13:05, colours as #aabbcc."
        )
    return f"Typed into [{number}]."


async def send_keys(act: ActionContext) -> str:
    keys = act.text("keys")
    keyboard = act.tab.page.keyboard
    try:
        for key in keys.split(" ") if keys.strip() else [keys]:
            if key:
                await keyboard.press(playwright_key(key))
    except Error as error:
        if "Unknown key" not in error.message:
            raise
        raise ActionRefused(
            f"{keys!r} holds a key that is not known. Examples: Enter, Escape, Tab, ArrowDown, Control+a; several with"
            " spaces between. For text use browser_input_text."
        ) from error
    return f"Pressed {keys}."


async def switch_tab(act: ActionContext) -> str:
    tab = act.chromium.numbered(act.number("page_id"))
    await tab.page.bring_to_front()
    act.chromium.show(tab)
    return f"Tab {tab.number} is in front."


async def close_tab(act: ActionContext) -> str:
    tab = act.chromium.numbered(act.number("page_id"))
    await tab.close()
    return f"Closed tab {tab.number}."


async def scroll_down(act: ActionContext) -> str:
    return await page.scroll(act.tab, _amount(act))


async def scroll_up(act: ActionContext) -> str:
    return await page.scroll(act.tab, -_amount(act))


async def scroll_to_text(act: ActionContext) -> str:
    return await page.scroll_to_text(act.tab, act.text("text"))


async def get_dropdown_options(act: ActionContext) -> str:
    return await page.list_options(await act.element(), act.number("index"))


async def select_dropdown_option(act: ActionContext) -> str:
    return await page.select_option(await act.element(), act.number("index"), act.text("text"))


async def drag_drop(act: ActionContext) -> str:
    source = await drag_point(act, "source")
    target = await drag_point(act, "target")
    await drag(act.tab.page, source, target)
    return f"Dragged {source.name} onto {target.name}."


async def read_page(act: ActionContext) -> str:
    return await page.read_text(act.tab)


async def screenshot(act: ActionContext) -> str:
    try:
        path = screenshot_path(act)
        is_whole = act.arguments.get("full_page") is True
        return await transfers.screenshot(act.tab, path, act.text("file_path"), is_whole=is_whole)
    except OSError as error:
        raise ActionRefused(f"The picture cannot be saved there: {error.strerror}.") from error


async def upload_file(act: ActionContext) -> str:
    return await transfers.upload(
        act.tab, await act.element(), act.number("index"), upload_path(act)
    )


async def download(act: ActionContext) -> str:
    if act.arguments.get("index") is not None:
        return await transfers.download_by_click(act.chromium, act.tab, await act.element())
    url = resolve_address(act.text("url"), act.chromium.setting.root)
    if urlsplit(url).scheme == "file":
        raise ActionRefused("This file is in the workspace already.")
    return await transfers.download_address(act.chromium, act.tab, url)


async def answer_dialog(act: ActionContext) -> str:
    accepts = act.arguments.get("accept") is True
    act.chromium.accepts_dialogs = accepts, act.text("text")
    return (
        f"The dialogs of the next action will be {'accepted' if accepts else 'dismissed'}. Now repeat the action that"
        " opens them."
    )


async def look(act: ActionContext) -> str:
    """Nothing but the state."""
    return f"The page is {single_line(act.tab.page.url, 300)}."


Action = Callable[[ActionContext], Awaitable[str]]
ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (
        navigate_to, go_back, wait, click_element, click_coordinates, input_text, send_keys, switch_tab, close_tab,
        scroll_down, scroll_up, scroll_to_text, get_dropdown_options, select_dropdown_option, drag_drop, read_page,
        screenshot, upload_file, download, answer_dialog, look,
    )
}  # fmt: skip


def _amount(act: ActionContext) -> int:
    value = act.arguments.get("amount")
    return HEIGHT - 80 if value is None else act.number("amount")
