"""The conversation of `threadhand setup`: questions in the terminal, keys recognised by shape, lists to pick from."""

import codecs
import html
import os
import re
import select
import shutil
import signal
import sys
import termios
import textwrap
import tty
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Protocol

WIDTH_MAX = 80
ROWS_SHOWN_MAX = 20
SLACK_CONFIGURATION_TOKEN = "SLACK_CONFIGURATION_TOKEN"  # noqa: S105 - a name
"""The name of the token that creates Slack apps. It is used once and never stored."""
SHAPES: Mapping[str, str] = {
    SLACK_CONFIGURATION_TOKEN: r"xoxe\.xoxp-[\w-]+",
    "THREADHAND_SLACK_BOT_TOKEN": r"xoxb-[\w-]+",
    "THREADHAND_SLACK_APP_TOKEN": r"xapp-[\w-]+",
    "ANTHROPIC_API_KEY": r"sk-ant-[\w-]+",
    "OPENROUTER_API_KEY": r"sk-or-[\w-]+",
    "OPENAI_API_KEY": r"sk-(?:proj|svcacct)-[\w-]+",
    "THREADHAND_LLM_API_KEY": r"sk-[\w-]{16,}",
    "GROQ_API_KEY": r"gsk_\w+",
    "GEMINI_API_KEY": r"AIza[\w-]{30,}",
    "XAI_API_KEY": r"xai-\w{20,}",
    "THREADHAND_TAVILY_API_KEY": r"tvly-[\w-]+",
    "THREADHAND_DISCORD_TOKEN": r"[MNO][\w-]{5,40}\.[\w-]{5,12}\.[\w-]{8,60}",
}
"""The shapes of keys and tokens, by the variable that each belongs to. The first shape that fits counts."""
_SHAPE = re.compile(
    r"(?<![\w.-])(?:" + "|".join(f"(?P<{name}>{shape})" for name, shape in SHAPES.items()) + r")(?![\w.-])", re.ASCII
)
# client secrets and signing secrets look alike, so their shape does not show which question they belong to
_NAMELESS_SECRET = re.compile(r"(?<!\w)[0-9a-f]{32}(?!\w)")
_TERMINAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]?|O.)?")
PASTED_CHARACTERS_MAX = 10_000


class Dialog(Protocol):
    """Asks the user the questions of `threadhand setup` and shows messages."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        """Returns the answer without surrounding spaces. An empty answer skips the question.

        Raises EOFError at the end of the input, and if the user interrupts."""
        ...

    def show_link(self, title: str, address: str, file: Path) -> None:
        """Opens a long address in the browser. Without a browser, shows the title as a link, and writes `file`, an HTML
        page with the same link."""
        ...


class Terminal:
    """Asks the questions in the terminal, and shows a dot for each character of a secret."""

    def say(self, text: str) -> None:
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
        for line in text.split("\n"):
            indent = " " * (len(line) - len(line.lstrip()))
            wrapped = textwrap.fill(
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            sys.stdout.write(f"{wrapped}\n")
        sys.stdout.flush()

    def ask(self, question: str, *, is_secret: bool = False) -> str:
        *lines, last = question.split("\n")
        if lines:
            self.say("\n".join(lines))
        # the event loop would only record the signal, and the question would keep waiting
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        wakeup = signal.set_wakeup_fd(waker)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return _read_answer(f"{last}: ", woken, is_secret=is_secret).strip()
        except KeyboardInterrupt:
            raise EOFError from None
        finally:
            signal.signal(signal.SIGINT, before)
            signal.set_wakeup_fd(wakeup)
            os.close(woken)
            os.close(waker)

    def show_link(self, title: str, address: str, file: Path) -> None:
        if has_graphical_browser() and webbrowser.open(address):
            self.say(f"{title}: opened in the browser.")
            return
        page = f'<!doctype html><meta charset="utf-8"><a href="{html.escape(address)}">{html.escape(title)}</a>\n'
        file.write_text(page, "utf-8")
        sys.stdout.write(f"\x1b]8;;{address}\x1b\\{title}\x1b]8;;\x1b\\\n")
        self.say(f"If your terminal does not open that link, open this file in a browser:\n{file}")


def has_graphical_browser() -> bool:
    """Whether this machine has a graphical browser. Text browsers do not count, because they occupy the terminal."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def _read_answer(prompt: str, woken: int, *, is_secret: bool) -> str:
    """Reads a line with the terminal's echo switched off, so that a secret in it is recognised before anything is
    shown."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    dot = "•" if sys.stdout.encoding.lower() == "utf-8" else "*"
    typed = shown = ""
    try:
        # the echo is off before the question appears, and what was pasted ahead is kept
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while True:
            # selects first, because a read would go on waiting after a Ctrl-C just before it
            select.select([descriptor, woken], [], [])
            keys = ""
            # pasted text is read as a whole, so that not even its beginning is shown
            while not keys.endswith(("\r", "\n", "\x04")) and select.select([descriptor], [], [], 0)[0]:
                if not (read := os.read(descriptor, 1)):
                    raise EOFError
                keys += decoder.decode(read)
            for key in _TERMINAL_SEQUENCE.sub("", keys):
                if key in "\x7f\b":
                    typed = typed[:-1]
                elif key == "\x15":
                    typed = ""
                elif key.isprintable():
                    typed += key
            wanted = dot * len(typed) if is_secret or contains_secret(typed) else typed
            kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(wanted, shown, strict=False)))
            sys.stdout.write("\b \b" * (len(shown) - kept) + wanted[kept:])
            sys.stdout.flush()
            shown = wanted
            if keys.endswith("\x04"):
                raise EOFError
            if keys.endswith(("\r", "\n")):
                return typed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write("\n")


def contains_secret(text: str) -> bool:
    return bool(recognise_keys(text)) or _NAMELESS_SECRET.search(text[:PASTED_CHARACTERS_MAX]) is not None


def recognise_keys(text: str) -> dict[str, str]:
    """Returns the keys and tokens in pasted text, by the variable that each belongs to."""
    found: dict[str, str] = {}
    for match in _SHAPE.finditer(text[:PASTED_CHARACTERS_MAX]):
        if match.lastgroup:
            found[match.lastgroup] = match[0]
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """A row to pick. `value` is what is stored."""

    value: str
    label: str


def pick_choices(
    say: Callable[[str], None],
    read: Callable[[str], str],
    question: str,
    choices: Sequence[Choice],
    *,
    id_shape: str = "",
    is_single: bool = False,
) -> list[str]:
    """Shows the choices with numbers and returns the values of those picked, none if the answer is empty.

    An answer names choices by number, by label, or by a text that only one label contains. `id_shape` is a pattern of
    values that may be typed although they are not listed."""
    while True:
        rows = [f"  {n:>2}  {one.label}" for n, one in enumerate(choices[:ROWS_SHOWN_MAX], 1)]
        if len(choices) > ROWS_SHOWN_MAX:
            rows.append(f"      and {len(choices) - ROWS_SHOWN_MAX} more: type a part of the name")
        if rows:
            say("\n".join(rows))
        answer = read(question)
        if not answer:
            return []
        picked: list[str] = []
        problem = ""
        for part in (piece.strip() for piece in ([answer] if is_single else answer.split(","))):
            value, problem = _resolve(part, choices, id_shape)
            if problem:
                break
            picked.append(value)
        if not problem:
            return list(dict.fromkeys(picked))
        say(problem)


def _resolve(text: str, choices: Sequence[Choice], id_shape: str) -> tuple[str, str]:
    """Returns the value that the text stands for, or a sentence that says why there is none."""
    if text.isdecimal() and 1 <= int(text) <= min(len(choices), ROWS_SHOWN_MAX):
        return choices[int(text) - 1].value, ""
    wanted = text.lstrip("#@").lower()
    exact = [one for one in choices if text == one.value or wanted == one.label.split(" (")[0].lstrip("#@").lower()]
    near = exact or [one for one in choices if wanted and wanted in one.label.lower()]
    if len(near) == 1:
        return near[0].value, ""
    if id_shape and re.fullmatch(id_shape, text, re.ASCII):
        return text, ""
    if near:
        shown = ", ".join(one.label for one in near[:ROWS_SHOWN_MAX])
        return "", f"{text} fits several: {shown}."
    expected = "neither in the list nor an id" if id_shape else "not in the list"
    return "", f"{text} is {expected}."
