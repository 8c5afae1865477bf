"""Carries out a person's pointer, keyboard and clipboard input in the current tab, and shows native pickers to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from playwright.async_api import ElementHandle, Error, Page

from sandbox.inside.browser.action_arguments import resolve_address
from sandbox.inside.browser.chromium import Chromium
from sandbox.inside.browser.elements import frames_of
from sandbox.inside.browser.protocol import ActionRefused

ANSWER_SECONDS = 1.5
TEXT_CHARACTERS_MAX = 100_000
FRAMES_DEEP = 8
OPTIONS_MAX = 1000
PICKERS = ("date", "time", "month", "week", "datetime-local", "color")
HIT = """([x, y]) => {
  let found = document.elementFromPoint(x, y);
  while (found?.shadowRoot) {
    const inner = found.shadowRoot.elementFromPoint(x, y);
    if (!inner || inner === found) break;
    found = inner;
  }
  return found;
}"""
FACTS = """(element) => {
  const box = element.getBoundingClientRect();
  return { tag: element.tagName, type: element.type || '', disabled: element.disabled === true,
    left: box.left + element.clientLeft, top: box.top + element.clientTop };
}"""
LIST = """(element) => [...element.options].slice(0, 1000).map((o) => ({ text: o.text.slice(0, 200),
  group: o.parentElement?.label?.slice(0, 200) || '', disabled: o.disabled, selected: o.selected }))"""
ACTIVE = """() => {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  const isField = /^(INPUT|TEXTAREA)$/.test(at?.tagName || '');
  const isText = isField && !/^(button|submit|reset|checkbox|radio|file|range|color|image)$/.test(at.type);
  const picked = isText && at.type !== 'password' && at.selectionStart != null
    ? at.value.slice(at.selectionStart, at.selectionEnd) : getSelection()?.toString();
  return { takes_text: isText || at?.isContentEditable === true, picked: (picked || '').slice(0, 100000),
    kind: isText ? at.inputMode || at.type : '' };
}"""

Send = Callable[[dict[str, Any]], None]


class PersonInput:
    def __init__(self, chromium: Chromium, send: Send) -> None:
        self._chromium = chromium
        self._send = send
        self._picker: ElementHandle | None = None
        self._swallows_release = False
        self._pointer: tuple[Page, float, float] | None = None

    async def handle(self, message: dict[str, Any]) -> None:
        """Handles one message. Raises Error, or KeyError, TypeError or ValueError if the message is malformed."""
        work = {
            "down": self._press, "up": self._release, "move": self._move, "wheel": self._wheel, "text": self._type,
            "key": self._key, "copy": self._copy, "pick": self._pick, "go": self._go, "history": self._history,
            "tab": self._tab, "close": self._close, "new": self._new,
        }.get(str(message["t"]))  # fmt: skip
        if work is not None:
            await work(message, (await self._chromium.tab()).page)

    async def _press(self, message: dict[str, Any], page: Page) -> None:
        x, y = float(message["x"]), float(message["y"])
        await self._move(message, page)
        button = _button(message)
        if button == "left" and await self._opened_picker(page, x, y):
            self._swallows_release = True
            return
        await page.mouse.down(button=button, click_count=_clicks(message))

    async def _release(self, message: dict[str, Any], page: Page) -> None:
        if self._swallows_release:
            self._swallows_release = False
            return
        await self._move(message, page)
        await page.mouse.up(button=_button(message), click_count=_clicks(message))
        active = await self._active(page)
        self._send({"t": "focus", "text": active.get("takes_text") is True, "kind": str(active.get("kind", ""))[:20]})

    async def _move(self, message: dict[str, Any], page: Page) -> None:
        x, y = float(message["x"]), float(message["y"])
        if self._pointer != (page, x, y):  # each movement waits for the page
            await page.mouse.move(x, y)
            self._pointer = page, x, y

    async def _wheel(self, message: dict[str, Any], page: Page) -> None:
        await self._move(message, page)
        await page.mouse.wheel(_bounded(message["dx"]), _bounded(message["dy"]))

    async def _type(self, message: dict[str, Any], page: Page) -> None:
        text = str(message["text"])[:TEXT_CHARACTERS_MAX]
        if len(text) == 1 and text.isascii() and text.isprintable():
            await page.keyboard.press("Space" if text == " " else text)  # pages may listen for keys
        else:
            await page.keyboard.insert_text(text)

    async def _key(self, message: dict[str, Any], page: Page) -> None:
        key = str(message["key"])[:40]
        held = [name for name in ("Control", "Alt", "Shift", "Meta") if message.get(name) is True]
        if len(key) == 1 and set(held) <= {"Shift"}:
            held = []  # the character already includes Shift
        try:
            await page.keyboard.press("+".join([*held, "Space" if key == " " else key]))
        except Error as error:
            if "Unknown key" not in str(error) or len(key) != 1:
                raise
            await page.keyboard.insert_text(key)

    async def _copy(self, message: dict[str, Any], page: Page) -> None:
        picked = str((await self._active(page)).get("picked", ""))
        self._send({"t": "clipboard", "text": picked[:TEXT_CHARACTERS_MAX]})
        if message.get("cut") is True and picked:
            await page.keyboard.press("Delete")

    async def _pick(self, message: dict[str, Any], page: Page) -> None:
        picker, self._picker = self._picker, None
        if picker is None:
            return
        if isinstance(message.get("value"), str):
            await picker.fill(message["value"], timeout=2000)
        elif isinstance(message.get("places"), list):
            places = [int(place) for place in message["places"][:OPTIONS_MAX]]
            await picker.select_option(index=places, timeout=2000)

    async def _go(self, message: dict[str, Any], page: Page) -> None:
        try:
            url = resolve_address(str(message["url"]), self._chromium.settings.root)
            await page.goto(url, wait_until="commit", timeout=20_000)
        except ActionRefused as refused:
            self._send({"t": "note", "text": str(refused)})
        except Error as error:
            reason = error.message.splitlines()[0][:200]
            self._send({"t": "note", "text": f"The page cannot be opened: {reason}"})

    async def _history(self, message: dict[str, Any], page: Page) -> None:
        steps = {"back": page.go_back, "forward": page.go_forward, "reload": page.reload}
        await steps[str(message["to"])](wait_until="commit", timeout=10_000)

    async def _tab(self, message: dict[str, Any], page: Page) -> None:
        self._chromium.select_tab(self._chromium.tab_by_id(int(message["id"])))

    async def _close(self, message: dict[str, Any], page: Page) -> None:
        await self._chromium.tab_by_id(int(message["id"])).close()

    async def _new(self, message: dict[str, Any], page: Page) -> None:
        await self._chromium.new_tab()

    async def _opened_picker(self, page: Page, x: float, y: float) -> bool:
        """Shows lists, calendars and colour pickers on our page: they are native windows, which no screenshot
        contains."""
        try:
            return await asyncio.wait_for(self._find_picker(page, x, y), ANSWER_SECONDS)
        except (Error, TimeoutError, KeyError, TypeError):
            return False

    async def _find_picker(self, page: Page, x: float, y: float) -> bool:
        frame = page.main_frame
        for _ in range(FRAMES_DEEP):
            element = (await frame.evaluate_handle(HIT, [x, y])).as_element()
            if element is None:
                return False
            facts: dict[str, Any] = await element.evaluate(FACTS)
            if facts["tag"] in ("IFRAME", "FRAME"):
                inside = await element.content_frame()
                if inside is None:
                    return False
                frame, x, y = inside, x - float(facts["left"]), y - float(facts["top"])
                continue
            return facts["disabled"] is not True and await self._show_picker(element, facts)
        return False

    async def _show_picker(self, element: ElementHandle, facts: dict[str, Any]) -> bool:
        if facts["tag"] == "SELECT":
            several = facts["type"] == "select-multiple"
            shown = {"t": "select", "options": await element.evaluate(LIST), "several": several}
        elif facts["tag"] == "INPUT" and facts["type"] in PICKERS:
            value = str(await element.input_value())[:100]
            shown = {"t": "picker", "kind": facts["type"], "value": value}
        else:
            return False
        self._picker = element
        await element.focus()
        self._send(shown)
        return True

    async def _active(self, page: Page) -> dict[str, Any]:
        """Returns the selection of the focused frame, and whether it accepts text."""
        for frame in frames_of(page)[:20]:
            try:
                has_focus = await asyncio.wait_for(
                    frame.evaluate("document.hasFocus() && !/^I?FRAME$/.test(document.activeElement?.tagName)"), 1
                )
                if has_focus:
                    found: dict[str, Any] = await asyncio.wait_for(frame.evaluate(ACTIVE), 1)
                    return found
            except (Error, TimeoutError):
                continue
        return {}


def _button(message: dict[str, Any]) -> Literal["left", "middle", "right"]:
    buttons: tuple[Literal["left", "middle", "right"], ...] = ("left", "middle", "right")
    return buttons[int(message.get("b", 0)) % 3]


def _clicks(message: dict[str, Any]) -> int:
    return max(1, min(3, int(message.get("n", 1))))


def _bounded(value: object) -> float:
    return max(-5000.0, min(5000.0, float(str(value))))
